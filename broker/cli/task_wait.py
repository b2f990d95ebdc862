"""`rsm task wait`, with a line that says how far the tasks are, and why those that wait do not begin."""

from __future__ import annotations

import contextlib
import math
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
_PATIENCE_S = 3.0
_LATER_LOOK_S = 10.0
_AGAIN_S = 60.0


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
    """Wait for tasks, in this order.

    A terminal shows how far they are, unless `is_quiet`. Why a task does not begin is always told on standard error.

    Raises:
        WaitTimeoutError: One has not ended within the limit; the message tells why it has not begun.

    """
    is_shown = not is_quiet and sys.stderr.isatty()
    begun_s = time.monotonic()
    end_s = math.inf if limit_s is None else begun_s + limit_s
    reasons = ReasonNotice(begun_s)
    ended: list[Task] = []
    for task_id in task_ids:
        while True:
            now_s = time.monotonic()
            look_s = max(0.0, min(_LOOK_S if is_shown else reasons.next_look_s(now_s), end_s - now_s))
            try:
                ended.append(client.wait(task_id, timeout_s=look_s))
                break
            except WaitTimeoutError:
                task = client.get(task_id)
                reason = _why_not_begun(client, task)
                if time.monotonic() >= end_s:
                    why = f": {reason}" if reason else ""
                    raise WaitTimeoutError(
                        f"task {task_id} is {task.status} after {limit_s:g} s{why}; it goes on"
                    ) from None
                if reason and reasons.is_due(reason, time.monotonic()):
                    clear = "\r\x1b[K" if is_shown else ""
                    sys.stderr.write(f"{clear}rsm: task {task_id} is {task.status}: {reason}\n")
                    sys.stderr.flush()
                if is_shown:
                    _show(task, len(ended), len(task_ids))
    if is_shown:
        sys.stderr.write("\r\x1b[K")
    return ended


class ReasonNotice:
    """Reasons why tasks do not begin, as they are told: after three seconds, then each that is new, or every minute.

    Args:
        begun_s: When the waiting began; seconds of a monotonic clock, as all times here.

    """

    def __init__(self, begun_s: float) -> None:
        self._told: str | None = None
        self._at_s = begun_s + _PATIENCE_S

    def next_look_s(self, now_s: float) -> float:
        """Return in how many seconds to look for a reason again."""
        return max(_LOOK_S, self._at_s - now_s) if self._told is None else _LATER_LOOK_S

    def is_due(self, reason: str, now_s: float) -> bool:
        """Return whether a reason is to be told now; it is then taken as told."""
        if now_s < self._at_s and (self._told is None or self._told == reason):
            return False
        self._told, self._at_s = reason, now_s + _AGAIN_S
        return True


def _why_not_begun(client: BrokerClient, task: Task) -> str:
    """Return why a task waits; "" if it runs, or begins later as it was told to."""
    if task.status != "waiting":
        return ""
    found = client.explain(task.task_id)
    if found.status != "waiting":
        return ""
    place = f"; {found.place} of its tenant's tasks are before it" if found.place > 0 else ""
    return printable(found.text or found.reason) + place


def _show(task: Task, ended_count: int, count: int) -> None:
    of_all = f"{ended_count} of {count} ended; " if count > 1 else ""
    fraction = f" {task.progress:.0%}" if task.progress >= 0 else ""
    message = f" {printable(task.progress_message)}" if task.progress_message else ""
    where = f" on {printable(task.worker_id)}" if task.status == "running" else ""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\r\x1b[K{of_all}task {task.task_id} is {task.status}{where}{fraction}{message}"[:200])
        sys.stderr.flush()
