"""`rsm task wait`, with a line that says how far the tasks are."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Annotated

import typer

from broker.cli.terminal import TenantOptions, to_json
from broker.client.blocking import BrokerClient
from broker.client.errors import WaitTimeoutError
from broker.client.task import Task
from ledger.configuration import options_command
from rsm_spark.cli.terminal import print_json, printable

_LOOK_S = 2.0


@options_command
def wait(
    at: TenantOptions,
    task_ids: Annotated[list[int], typer.Argument(help="Ids of tasks.", min=1)],
    limit: Annotated[float | None, typer.Option("--for", min=0, help="Seconds.", show_default="for ever")] = None,
) -> None:
    """Wait until tasks have ended; exit code 1 unless all of them finished well.

    Examples:
        rsm task wait 4711

        rsm task wait 4711 4712 4713 --for 60 --json

    """
    with at.connect() as client:
        try:
            ended = wait_shown(client, task_ids, limit, is_quiet=at.json)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    for task in ended:
        if at.json:
            print_json(to_json(task))
        else:
            why = f": {task.outcome} {printable(task.error)}".rstrip() if task.status != "finished" else ""
            typer.echo(f"{task.task_id}  {task.status}{why}")
    if any(task.status != "finished" for task in ended):
        raise typer.Exit(1)


def wait_shown(client: BrokerClient, task_ids: list[int], limit_s: float | None, *, is_quiet: bool) -> list[Task]:
    """Wait for tasks, in this order, and say on a terminal how far they are.

    Raises:
        WaitTimeoutError: One has not ended within the limit.

    """
    is_shown = not is_quiet and sys.stderr.isatty()
    end = None if limit_s is None else time.monotonic() + limit_s
    ended: list[Task] = []
    for task_id in task_ids:
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            look_s = _LOOK_S if left is None else min(_LOOK_S, left)
            try:
                ended.append(client.wait(task_id, timeout_s=look_s if is_shown else left))
                break
            except WaitTimeoutError:
                if end is not None and time.monotonic() >= end:
                    raise
                _show(client.get(task_id), len(ended), len(task_ids))
    if is_shown:
        sys.stderr.write("\r\x1b[K")
    return ended


def _show(task: Task, ended_count: int, count: int) -> None:
    of_all = f"{ended_count} of {count} ended; " if count > 1 else ""
    fraction = f" {task.progress:.0%}" if task.progress >= 0 else ""
    message = f" {printable(task.progress_message)}" if task.progress_message else ""
    where = f" on {printable(task.worker_id)}" if task.status == "running" else ""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\r\x1b[K{of_all}task {task.task_id} is {task.status}{where}{fraction}{message}"[:200])
        sys.stderr.flush()
