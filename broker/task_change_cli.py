"""`rsm task cancel | change | replay`."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.client.client import TIMEOUT_S
from broker.client.shapes import Change
from broker.terminal import MetadataUri, Tenant, Timeout, TlsCa, TokenFile, Urls, amounts, connected, to_json
from ledger.errors import UsageError
from rsm_spark.store.terminal import Json, print_json

__all__ = ["cancel", "change", "replay"]

_Ids = Annotated[list[int], typer.Argument(help="Ids of tasks.", min=1)]


def cancel(
    task_ids: _Ids,
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    tenant: Tenant = "",
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Cancel tasks: those that wait at once, those that run by asking their workers.

    Examples:
        rsm task cancel 4711 4712

    """
    with connected(urls, metadata_uri, tenant, token_file, tls_ca, timeout) as client:
        done = client.cancel(*task_ids)
    _print(json, done, "cancelled")


def change(
    task_id: Annotated[int, typer.Argument(help="Id of the task.", min=1)],
    priority: Annotated[int | None, typer.Option("--priority", help="Among the tenant's own, higher first.")] = None,
    group: Annotated[int | None, typer.Option("--group", help="Of workers' preferences.")] = None,
    resources: Annotated[
        list[str] | None, typer.Option("--resource", metavar="NAME=AMOUNT", help="All that it needs from now on.")
    ] = None,
    deadline_ms: Annotated[int | None, typer.Option("--deadline-ms", min=0, help="ms since 1970; 0 = none.")] = None,
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    tenant: Tenant = "",
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Change a task that has not ended; what is not named stays.

    Examples:
        rsm task change 4711 --priority 10

    """
    needed = None if resources is None else amounts(resources, "--resource")
    with connected(urls, metadata_uri, tenant, token_file, tls_ca, timeout) as client:
        client.change(task_id, priority=priority, group=group, resources=needed, deadline_ms=deadline_ms)
    if json:
        print_json({"task_id": task_id, "changed": True})
    else:
        typer.echo(f"task {task_id} is changed")


def replay(
    task_ids: Annotated[list[int] | None, typer.Argument(help="Ids of tasks in error.", min=1)] = None,
    type: Annotated[str, typer.Option("--type", help="Or all of this type.")] = "",  # noqa: A002
    outcome: Annotated[str, typer.Option("--outcome", help="And with this outcome, such as timed_out.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Or all there are.")] = False,
    urls: Urls = None,
    metadata_uri: MetadataUri = None,
    tenant: Tenant = "",
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Have dead letters wait again; their attempts begin anew. At most 5,000 at once.

    Examples:
        rsm task replay 4711

        rsm task replay --type mail --outcome worker_died

    """
    if sum((bool(task_ids), bool(type or outcome), everything)) != 1:
        raise UsageError("rsm task replay: name tasks, or --type and --outcome, or --all")
    with connected(urls, metadata_uri, tenant, token_file, tls_ca, timeout) as client:
        done = client.replay_dead(*(task_ids or ()), type=type, outcome=outcome)
    _print(json, done, "waiting again")


def _print(is_json: bool, done: Change, what: str) -> None:
    if is_json:
        print_json(to_json(done))
        return
    asked = f", {done.asked} asked to end" if done.asked else ""
    passed = f", {done.passed_over} passed over: ended, or not there" if done.passed_over else ""
    typer.echo(f"{done.count} {what}{asked}{passed}")
