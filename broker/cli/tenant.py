"""`rsm tenant`: what tenants are entitled to, changed while they work."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from broker.cli.terminal import BrokerOptions, amounts, to_json
from broker.client.shapes import Tenant as TenantShown
from ledger.configuration import options_command
from ledger.errors import UsageError
from rsm_spark.cli.terminal import print_json, print_rows

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
@options_command
def set_policy(
    at: BrokerOptions,
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
    bytes_max: Annotated[
        int | None,
        typer.Option(
            "--bytes-max", min=0, help="Bytes of its tasks that are kept; 0 = the broker's bound for a tenant."
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-type", metavar="TYPE", help="Only these types, 'mail*' for all that begin so; 'any' = all."
        ),
    ] = None,
    codes: Annotated[
        list[str] | None, typer.Option("--allow-code", metavar="POOL", help="These code pools; 'none' = none.")
    ] = None,
    resources: Annotated[
        list[str] | None, typer.Option("--allow-resource", metavar="NAME", help="Only these resources; 'any' = all.")
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--allow-group", metavar="GROUP", help="Only these groups; 'any' = all.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Go back to the default policy.")] = False,
) -> None:
    """Change a tenant's policy; it holds from the next dispatch, for waiting tasks too. What is not named stays.

    Examples:
        rsm tenant set acme --weight 3

        rsm tenant set acme --running-max 50 --type-max mail=10

        rsm tenant set acme --allow-type 'mail*' --allow-type spark_sql --allow-code greetings

        rsm tenant set acme --default

    """
    named: dict[str, Any] = {
        "weight": weight, "running_max": running_max, "waiting_max": waiting_max, "group": group,
        "priority": priority, "max_attempts": max_attempts, "retention_ms": retention_ms,
        "dead_retention_ms": dead_retention_ms,
        "running_max_by_type": None if running_max_by_type is None else amounts(running_max_by_type, "--type-max"),
        "bytes_max": bytes_max,
    }  # fmt: skip
    changes = {field: value for field, value in named.items() if value is not None}
    changes |= _allowed(types=types, codes=codes, resources=resources, groups=groups)
    if bool(changes) == default:
        raise UsageError("rsm tenant set: say what changes, such as --weight 2, or --default alone")
    with at.connect() as client:
        if default:
            client.remove_tenant(name)
            shown: dict[str, Any] = {"tenant": name, "is_default": True}
        else:
            shown = {"tenant": name, "policy": to_json(client.change_tenant(name, **changes))}
    if at.json:
        print_json(shown)
    else:
        said = ", ".join(f"{field} {value}" for field, value in changes.items()) or "the default policy"
        typer.echo(f"{name}: {said}")


def _allowed(**named: list[str] | None) -> dict[str, Any]:
    """Return what the policy says of names that were listed; a lone "any" or "none" takes the list away."""
    changes: dict[str, Any] = {}
    for field, names in named.items():
        if names is None:
            continue
        if names in (["any"], ["none"]):
            changes[field] = () if field == "codes" or names == ["none"] else None
        elif field == "groups":
            if not all(name.isdigit() for name in names):
                raise UsageError(f"--allow-group {' '.join(names)}: groups are numbers")
            changes[field] = tuple(map(int, names))
        else:
            changes[field] = tuple(names)
    return changes


@app.command("list")
@options_command
def list_tenants(
    at: BrokerOptions,
) -> None:
    """List tenants with a policy or with tasks.

    Examples:
        rsm tenant list

    """
    with at.connect() as client:
        if at.json:
            for tenant in client.tenants():
                print_json(to_json(tenant))
            return
        rows = [_row(tenant) for tenant in client.tenants()]
    titles = ("tenant", "weight", "share", "running", "waiting", "errors", "wait p50", "wait p99")
    print_rows(titles, rows, right=range(1, len(titles)))


@app.command()
@options_command
def show(
    at: BrokerOptions,
    name: _Name,
) -> None:
    """Show a tenant: policy, counts, waits, holds.

    Examples:
        rsm tenant show acme

    """
    with at.connect() as client:
        tenant = client.tenant(name)
        holds = [hold for hold in client.limits().holds if hold.tenant in {"", name}]
    if at.json:
        print_json({**to_json(tenant), "holds": [to_json(hold) for hold in holds]})
        return
    print_rows(("tenant", "weight", "share", "running", "waiting", "errors", "wait p50", "wait p99"), [_row(tenant)])
    for field, value in to_json(tenant.policy).items():
        typer.echo(f"  {field:<20} {value}")
    for hold in holds:
        what = "draining" if hold.is_draining else "paused"
        by = f"by {hold.by_role} {hold.by_name}".rstrip()
        typer.echo(f"  {what} {by}: type {hold.type or 'any'}, key {hold.key or 'any'} {hold.reason}".rstrip())


@app.command()
@options_command
def pause(
    at: BrokerOptions,
    name: _Name,
    type: _Type = "",  # noqa: A002 - what it is called everywhere
    key: _Key = "",
    until: _Until = 0,
    reason: _Reason = "",
) -> None:
    """Dispatch none of a tenant's tasks; what runs goes on, and tasks are accepted.

    Examples:
        rsm tenant pause acme --reason "database is down" --for 600

    """
    with at.connect() as client:
        client.hold(tenant=name, type=type, key=key, until_ms=_end_ms(until), reason=reason)
    _print(at.json, name, type, key, "paused")


@app.command()
@options_command
def drain(
    at: BrokerOptions,
    name: _Name,
    type: _Type = "",  # noqa: A002 - what it is called everywhere
    until: _Until = 0,
    reason: _Reason = "",
) -> None:
    """Accept no more tasks of a tenant; what is there is run.

    Examples:
        rsm tenant drain acme --type mail

    """
    with at.connect() as client:
        client.hold(tenant=name, type=type, is_paused=False, is_draining=True, until_ms=_end_ms(until), reason=reason)
    _print(at.json, name, type, "", "draining")


@app.command()
@options_command
def resume(
    at: BrokerOptions,
    name: _Name,
    type: _Type = "",  # noqa: A002 - what it is called everywhere
    key: _Key = "",
) -> None:
    """End a pause or a drain, of the same tenant, type and key.

    Examples:
        rsm tenant resume acme

    """
    with at.connect() as client:
        client.release(tenant=name, type=type, key=key)
    _print(at.json, name, type, key, "resumed")


@app.command()
@options_command
def limit(
    at: BrokerOptions,
    resource: Annotated[str, typer.Argument(help="Name of the resource.")],
    amount: Annotated[int | None, typer.Argument(min=0, help="At once; without it there is no limit.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Only what this tenant uses.")] = "",
    type: _Type = "",  # noqa: A002 - what it is called everywhere
) -> None:
    """Limit what all workers together use of a resource, in all or of one tenant or type.

    Examples:
        rsm tenant limit database 20

        rsm tenant limit database 5 --tenant acme

    """
    with at.connect() as client:
        client.limit(resource, amount, tenant=tenant, type=type)
    if at.json:
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
