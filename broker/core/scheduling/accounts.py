"""Accounts: how much service a tenant has had, as virtual time.

    virtual time(now) = service(now) / weight + a quantum / weight per dispatch        service in thread-ms

The tenant with the least is served first. Three additions make that fair in the short run too:

1. **What runs is charged ahead.** Durations are not known before a task ends; the mean of the tenant's last ones of
   that type is expected. A tenant's running tasks count with what they have used or what they are expected to use,
   whichever is more. Without it a newcomer would take every thread that becomes free until its *used* time had caught
   up, and the old ones then again: with jobs of an hour a swing of hours.
2. **Waiting earns nothing.** A tenant that becomes runnable starts at the least virtual time of those with whom it
   competes, unless its own is higher: no credit is hoarded by idling, no debt is forgiven by idling for a moment.
3. **Credit is bounded.** Whoever was runnable but not placeable (its workers were full) is at most `CREDIT_MS_MAX`
   behind the one that was served last.

Virtual time rises while time goes on; it falls only when a task ends earlier than expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.scheduling.lines import Line

__all__ = ["CREDIT_MS_MAX", "QUANTUM_MS", "Account", "Arena"]

QUANTUM_MS = 1
"""Charged per dispatch: tasks that take no time are shared out by count."""

CREDIT_MS_MAX = 60_000
"""Virtual time by which an account may lag behind its arena's floor when it is served."""

_WEIGHT_MIN = 1e-6
"""Lower weights count as this: virtual times stay numbers that can be added up."""

_NEWEST = 0.125
"""Share of the newest duration in the expected one."""


class Arena:
    """Where tenants compete: all workers of a broker, so that service counts wherever a tenant has it.

    Attributes:
        floor: Virtual time of the account served last; it never falls. Newcomers start here.

    """

    __slots__ = ("floor",)

    def __init__(self) -> None:
        self.floor = 0.0


class Account:
    """Service of one tenant in one arena.

    Attributes:
        weight: Of the tenant.
        settled: Virtual time up to `at_ms`, without what is expected.
        at_ms: Logged time up to which service is settled; 0 = nothing has happened yet.
        version: Rises when anything of it changes.
        running: Tasks that run.
        expected_ms: Sum of the durations expected of them.
        started_ms: Sum of their starts.
        waiting: Tasks that wait, whether they may run or not.
        queued: Lines that have an entry in their class. Invariant: the number of `lines` with one.
        lines: Of the tenant in this arena.
        durations: Expected duration by task type.

    """

    __slots__ = (
        "arena", "at_ms", "durations", "expected_ms", "lines", "queued", "running", "settled", "started_ms", "tenant",
        "version", "waiting", "weight",
    )  # fmt: skip

    def __init__(self, tenant: str, weight: float, arena: Arena) -> None:
        self.tenant = tenant
        self.weight = max(weight, _WEIGHT_MIN)
        self.arena = arena
        self.settled = 0.0
        self.at_ms = 0
        self.version = 0
        self.running = 0
        self.expected_ms = 0
        self.started_ms = 0
        self.waiting = 0
        self.queued = 0
        self.lines: dict[Line, None] = {}
        self.durations: dict[str, float] = {}

    def virtual_time(self, now_ms: int) -> float:
        """Return it as of a logged time, or of the last event if that is later."""
        running = self.running
        at_ms = self.at_ms
        if not running or not at_ms:
            return self.settled
        if now_ms < at_ms:  # noqa: PLR1730 - twice as fast as a call
            now_ms = at_ms
        left = self.expected_ms + self.started_ms - running * now_ms
        used = running * (now_ms - at_ms)
        return self.settled + (used + left if left > 0 else used) / self.weight

    def settle(self, now_ms: int) -> None:
        """Count the service up to now."""
        at_ms = self.at_ms
        if now_ms > at_ms:
            if at_ms and self.running:
                self.settled += self.running * (now_ms - at_ms) / self.weight
            self.at_ms = now_ms

    def raise_to(self, virtual_time: float, now_ms: int) -> None:
        """Have it start no lower than this."""
        behind = virtual_time - self.virtual_time(now_ms)
        if behind > 0:
            self.settled += behind
            self.version += 1

    def start(self, expected_ms: int, now_ms: int) -> None:
        """Count a dispatch."""
        self.settle(now_ms)
        self.settled += QUANTUM_MS / self.weight
        self.version += 1
        self.running += 1
        self.expected_ms += expected_ms
        self.started_ms += now_ms

    def resume(self, since_ms: int) -> None:
        """Count a task that runs already: its service is counted from the next event on."""
        self.version += 1
        self.running += 1
        self.started_ms += since_ms

    def end(self, task_type: str, expected_ms: int, since_ms: int, now_ms: int) -> None:
        """Count an end."""
        self.settle(now_ms)
        self.version += 1
        self.running -= 1
        self.expected_ms -= expected_ms
        self.started_ms -= since_ms
        took_ms = max(now_ms - since_ms, 0)
        known = self.durations.get(task_type)
        self.durations[task_type] = took_ms if known is None else known + (took_ms - known) * _NEWEST

    def set_weight(self, weight: float, now_ms: int) -> None:
        """Have service count by another weight from now on."""
        self.settle(now_ms)
        self.version += 1
        self.weight = max(weight, _WEIGHT_MIN)
