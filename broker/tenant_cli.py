"""`rsm tenant`: what tenants are entitled to, changed while they work."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from broker.client.client import TIMEOUT_S
from broker.client.shapes import Tenant as TenantShown
from broker.terminal import MetadataUri, Timeout, TlsCa, TokenFile, Urls, amounts, connected, print_rows, to_json
from ledger.errors import UsageError
from rsm_spark.store.terminal import Json, print_json

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Set what tenants are entitled to; pause, drain and resume their tasks.",
    pretty_exceptions_enable=False,
)

_Name = Annotated[str, typer.Argument(help="Name of the tenant.")]
_Type = Annotated[str, typer.Option("--type", help="Only tasks of this type.")]
_Key = Annotated[str, typer.Option("--key", help="Only tasks with this key.")]
_Until = Annotated[float, typer.Option("--for", min=0, help="Seconds; 0 = until it is resumed.")]
_Reason = Annotated[str, typer.Option("--reason", help="Shown to people.")]


@app.command("set")
def set_policy(
    name: _Name,
    weight: Annotated[float | None, typer.Option("--weight", help="Share, relative to others; above 0.")] = None,
    running_max: Annotated[int | None, typer.Option("--running-max", min=0, help="At once; 0 = no bound.")] = None,
    running_max_by_type: Annotated[
        list[str] | None, typer.Option("--type-max", metavar="TYPE=COUNT", help="At once, of one type.")
    ] = None,
    waiting_max: Annotated[
        int | None, typer.Option("--waiting-max", min=0, help="Not ended, before submits are refused; 0 = no bound.")
    ] = None,
    group: Annotated[int | None, typer.Option("--group", help="Of tasks that name none.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Of tasks that name none.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--attempts", min=0, help="The same; 0 = unlimited.")] = None,
    retention_ms: Annotated[int | None, typer.Option("--retention-ms", min=0, help="Of ended tasks.")] = None,
    dead_retention_ms: Annotated[int | None, typer.Option("--dead-retention-ms", min=0, help="Of errors.")] = None,
    default: Annotated[bool, typer.Option("--default", help="Go back to the default policy.")] = False,
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Change a tenant's policy; it holds from the next dispatch, for waiting tasks too. What is not named stays.

    Examples:
        rsm tenant set acme --weight 3

        rsm tenant set acme --running-max 50 --type-max mail=10

        rsm tenant set acme --default

    """
    named: dict[str, Any] = {
        "weight": weight, "running_max": running_max, "waiting_max": waiting_max, "group": group,
        "priority": priority, "max_attempts": max_attempts, "retention_ms": retention_ms,
        "dead_retention_ms": dead_retention_ms,
        "running_max_by_type": None if running_max_by_type is None else amounts(running_max_by_type, "--type-max"),
    }  # fmt: skip
    changes = {field: value for field, value in named.items() if value is not None}
    if bool(changes) == default:
        raise UsageError("rsm tenant set: say what changes, such as --weight 2, or --default alone")
    with connected(urls, metadata_uri, "", token_file, tls_ca, timeout) as client:
        if default:
            client.remove_tenant(name)
            shown: dict[str, Any] = {"tenant": name, "is_default": True}
        else:
            shown = {"tenant": name, "policy": to_json(client.change_tenant(name, **changes))}
    if json:
        print_json(shown)
    else:
        said = ", ".join(f"{field} {value}" for field, value in changes.items()) or "the default policy"
        typer.echo(f"{name}: {said}")


@app.command("list")
def list_tenants(
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """List tenants with a policy or with tasks.

    Examples:
        rsm tenant list

    """
    with connected(urls, metadata_uri, "", token_file, tls_ca, timeout) as client:
        if json:
            for tenant in client.tenants():
                print_json(to_json(tenant))
            return
        rows = [_row(tenant) for tenant in client.tenants()]
    titles = ("tenant", "weight", "share", "running", "waiting", "errors", "wait p50", "wait p99")
    print_rows(titles, rows, right=range(1, len(titles)))


@app.command()
def show(
    name: _Name,
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Show a tenant: policy, counts, waits, holds.

    Examples:
        rsm tenant show acme

    """
    with connected(urls, metadata_uri, "", token_file, tls_ca, timeout) as client:
        tenant = client.tenant(name)
        holds = [hold for hold in client.limits().holds if hold.tenant in {"", name}]
    if json:
        print_json({**to_json(tenant), "holds": [to_json(hold) for hold in holds]})
        return
    print_rows(("tenant", "weight", "share", "running", "waiting", "errors", "wait p50", "wait p99"), [_row(tenant)])
    for field, value in to_json(tenant.policy).items():
        typer.echo(f"  {field:<20} {value}")
    for hold in holds:
        what = "draining" if hold.is_draining else "paused"
        typer.echo(f"  {what}: type {hold.type or 'any'}, key {hold.key or 'any'} {hold.reason}".rstrip())


@app.command()
def pause(
    name: _Name,
    type: _Type = "",  # noqa: A002 - what it is called everywhere
    key: _Key = "",
    until: _Until = 0,
    reason: _Reason = "",
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Dispatch none of a tenant's tasks; what runs goes on, and tasks are accepted.

    Examples:
        rsm tenant pause acme --reason "database is down" --for 600

    """
    with connected(urls, metadata_uri, "", token_file, tls_ca, timeout) as client:
        client.hold(tenant=name, type=type, key=key, until_ms=_end_ms(until), reason=reason)
    _print(json, name, type, key, "paused")


@app.command()
def drain(
    name: _Name,
    type: _Type = "",  # noqa: A002 - what it is called everywhere
    until: _Until = 0,
    reason: _Reason = "",
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Accept no more tasks of a tenant; what is there is run.

    Examples:
        rsm tenant drain acme --type mail

    """
    with connected(urls, metadata_uri, "", token_file, tls_ca, timeout) as client:
        client.hold(tenant=name, type=type, is_paused=False, is_draining=True, until_ms=_end_ms(until), reason=reason)
    _print(json, name, type, "", "draining")


@app.command()
def resume(
    name: _Name,
    type: _Type = "",  # noqa: A002 - what it is called everywhere
    key: _Key = "",
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """End a pause or a drain, of the same tenant, type and key.

    Examples:
        rsm tenant resume acme

    """
    with connected(urls, metadata_uri, "", token_file, tls_ca, timeout) as client:
        client.release(tenant=name, type=type, key=key)
    _print(json, name, type, key, "resumed")


@app.command()
def limit(
    resource: Annotated[str, typer.Argument(help="Name of the resource.")],
    amount: Annotated[int | None, typer.Argument(min=0, help="At once; without it there is no limit.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Only what this tenant uses.")] = "",
    type: _Type = "",  # noqa: A002 - what it is called everywhere
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Limit what all workers together use of a resource, in all or of one tenant or type.

    Examples:
        rsm tenant limit database 20

        rsm tenant limit database 5 --tenant acme

    """
    with connected(urls, metadata_uri, "", token_file, tls_ca, timeout) as client:
        client.limit(resource, amount, tenant=tenant, type=type)
    if json:
        print_json({"resource": resource, "amount_max": amount, "tenant": tenant, "type": type})
    else:
        typer.echo(f"{resource}: {'no limit' if amount is None else amount}")


def _row(tenant: TenantShown) -> tuple[object, ...]:
    counts = tenant.by_status
    return (
        tenant.tenant,
        f"{tenant.policy.weight:g}",
        f"{tenant.share:.0%}",
        f"{counts.get('running', 0):,}",
        f"{counts.get('waiting', 0) + counts.get('delayed', 0):,}",
        f"{counts.get('error', 0):,}",
        _milliseconds(tenant.wait_ms_p50),
        _milliseconds(tenant.wait_ms_p99),
    )


def _milliseconds(value: float) -> str:
    if value < 0:
        return "-"
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def _end_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000) if seconds else 0


def _print(is_json: bool, tenant: str, task_type: str, key: str, what: str) -> None:
    if is_json:
        print_json({"tenant": tenant, "type": task_type, "key": key, "state": what})
    else:
        narrowed = "".join((f", type {task_type}" if task_type else "", f", key {key}" if key else ""))
        typer.echo(f"{tenant}{narrowed}: {what}")
