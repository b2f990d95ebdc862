"""`rsm task cancel | change | replay | delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.terminal import TenantOptions, amounts, to_json
from broker.client.shapes import Change
from ledger.configuration import options_command
from ledger.errors import UsageError
from rsm_spark.cli.terminal import print_json, print_result

_Ids = Annotated[list[int], typer.Argument(help="Ids of tasks.", min=1)]


@options_command
def cancel(
    at: TenantOptions,
    task_ids: _Ids,
) -> None:
    """Cancel tasks: those that wait at once, those that run by asking their workers.

    Examples:
        rsm task cancel 4711 4712

    """
    with at.connect() as client:
        done = client.cancel(*task_ids)
    _print(at.json, done, "cancelled")


@options_command
def change(
    at: TenantOptions,
    task_id: Annotated[int, typer.Argument(help="Id of the task.", min=1)],
    priority: Annotated[int | None, typer.Option("--priority", help="Among the tenant's own, higher first.")] = None,
    group: Annotated[int | None, typer.Option("--group", help="Of workers' preferences.")] = None,
    resources: Annotated[
        list[str] | None, typer.Option("--resource", metavar="NAME=AMOUNT", help="All that it needs from now on.")
    ] = None,
    deadline_ms: Annotated[int | None, typer.Option("--deadline-ms", min=0, help="ms since 1970; 0 = none.")] = None,
) -> None:
    """Change a task that has not ended; what is not named stays.

    Examples:
        rsm task change 4711 --priority 10

    """
    needed = None if resources is None else amounts(resources, "--resource")
    with at.connect() as client:
        client.change(task_id, priority=priority, group=group, resources=needed, deadline_ms=deadline_ms)
    print_result(at.json, {"task_id": task_id, "changed": True}, f"task {task_id} is changed")


@options_command
def replay(
    at: TenantOptions,
    task_ids: Annotated[list[int] | None, typer.Argument(help="Ids of tasks in error.", min=1)] = None,
    type: Annotated[str, typer.Option("--type", help="Or all of this type.")] = "",  # noqa: A002
    outcome: Annotated[str, typer.Option("--outcome", help="And with this outcome, such as timed_out.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Or all there are.")] = False,
) -> None:
    """Have dead letters wait again; their attempts begin anew. At most 5,000 at once.

    Examples:
        rsm task replay 4711

        rsm task replay --type mail --outcome worker_died

    """
    if sum((bool(task_ids), bool(type or outcome), everything)) != 1:
        raise UsageError("rsm task replay: name tasks, or --type and --outcome, or --all")
    with at.connect() as client:
        done = client.replay_dead(*(task_ids or ()), type=type, outcome=outcome)
    _print(at.json, done, "waiting again")


@options_command
def delete(
    at: TenantOptions,
    task_ids: _Ids,
) -> None:
    """Forget dead letters before their retention is over. What is no dead letter is passed over, and stays.

    Examples:
        rsm task delete 4711 4712

    """
    with at.connect() as client:
        done = client.delete_dead(*task_ids)
    if at.json:
        print_json(to_json(done))
        return
    passed = f", {done.passed_over} passed over: no dead letters, or not there" if done.passed_over else ""
    typer.echo(f"{done.count} deleted{passed}")


def _print(is_json: bool, done: Change, what: str) -> None:
    if is_json:
        print_json(to_json(done))
        return
    asked = f", {done.asked} asked to end" if done.asked else ""
    passed = f", {done.passed_over} passed over: ended, or not there" if done.passed_over else ""
    typer.echo(f"{done.count} {what}{asked}{passed}")
