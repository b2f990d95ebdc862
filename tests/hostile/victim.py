"""The victim beside an attacker: an honest client that goes on, and what the process under attack spends meanwhile.

    work = Work()
    victim = Victim(submit, servers=[pid])
    quiet = await victim.run(calls=30)
    async with attack(work):
        attacked = await victim.run(calls=30, beside=work, units=1_000)
    attacked.assert_goes_on_like(quiet, units_per_call=50)

Nothing is judged by a clock, for cores are shared and a machine may stand still for a while. What is counted is the
same on a slow machine and on a fast one: calls that are answered, what the attackers got done meanwhile, and the
processor time that the server spent for both. A victim that waits behind its attackers sees many of their units go by
for each of its calls; one that waits for the server's work sees much processor time go by; one that waits for nothing
at all hangs, and its call is given up after a minute.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Served", "Victim", "Work", "processor_s", "resident_mib"]

_QUIET_CPU_S_MIN = 0.002
"""A quiet call is counted as at least this much of the server's processor time: less is the noise of counting it."""
_HUNG_S = 240.0
"""All calls of one run together; a run that is well takes some seconds."""


class Work:
    """Counts what attackers got done: requests that were answered, blocks of bytes that were taken, connections.

    Threads and tasks may add to it side by side.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.units = 0
        self.is_over = False

    def add(self, units: int = 1) -> None:
        with self._changed:
            self.units += units
            self._changed.notify_all()

    def wait_for(self, units: int) -> None:
        """Wait until so much is done: then the attack is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_over or self.units >= units, _HUNG_S)
        assert self.units >= units, f"the attackers came to {self.units} of {units} units: nobody attacks"

    async def reaches(self, units: int) -> None:
        """Wait likewise while the attackers run in this loop."""
        await asyncio.to_thread(self.wait_for, units)

    def ends_with(self, attack: asyncio.Task[Any]) -> None:
        """Let nobody wait for an attack any more that is through, or has failed."""
        attack.add_done_callback(lambda _: self.end())

    def end(self) -> None:
        """Tell attackers that go on until then, and who waits for them, that it is over."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()


@dataclass
class Served:
    """What one victim got.

    Attributes:
        latencies_s: Seconds of each call that was answered: to be told, not judged.
        gaps: Units that the attackers got done from one answer to the next, for each answer.
        errors: Of the calls that were not answered.
        missing: What did not come about in time, or "".
        units: What the attackers got done while the victim called.
        cpu_s: Processor time of the servers meanwhile, in seconds.

    """

    latencies_s: list[float] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    missing: str = ""
    units: int = 0
    cpu_s: float = 0.0

    @property
    def calls(self) -> int:
        """How many calls were answered."""
        return len(self.latencies_s)

    def __str__(self) -> str:
        calls = max(1, self.calls)
        told = f"{self.calls} calls, {self.cpu_s / calls * 1e3:.1f} ms of the server's processor each"
        if ordered := sorted(self.latencies_s):
            told += f", half within {ordered[len(ordered) // 2] * 1e3:.1f} ms, all within {ordered[-1] * 1e3:.0f}"
        if self.units:
            told += f"; {self.units} units beside, {self.units / calls:.2f} a call, at most {max(self.gaps)}"
        return told

    def assert_answered(self) -> None:
        """Fail if a call failed, or if the victim or its attackers did not come to their number."""
        assert not self.errors, f"{len(self.errors)} calls of the victim failed, first: {self.errors[0]!r}"
        assert self.calls, "the victim was not served at all"
        assert not self.missing, f"{self.missing}: {self}"

    def assert_goes_on_like(
        self, quiet: Served, *, units_per_call: float | None = None, longest: float = 0.0, cpu: float = 25.0
    ) -> None:
        """Fail if a call failed, or if the victim had to wait behind its attackers.

        Args:
            quiet: The same victim before the attack.
            units_per_call: So many units of the attackers may go by for each call of the victim; None where they hold
                what they have and do nothing more.
            longest: So many for one single call; 0 = twenty times as many.
            cpu: So many times the processor time of a quiet call may the servers spend for a call, the attackers' part
                included.

        """
        print(f"quiet: {quiet}\nattacked: {self}")
        quiet.assert_answered()
        self.assert_answered()
        if units_per_call is not None:
            assert self.units, "nobody attacked"
            told = f"attackers went first, {units_per_call} units a call are allowed"
            assert self.units <= units_per_call * self.calls, f"{told}: {self}"
            longest = longest or max(20.0, 20 * units_per_call)
            assert max(self.gaps) <= longest, f"a call waited for more than {longest:.0f} units: {self}"
        before = max(quiet.cpu_s / quiet.calls, _QUIET_CPU_S_MIN)
        told = f"{before * 1e3:.1f} ms of the server's processor for a call when quiet, {cpu} times as much may be"
        assert self.cpu_s <= cpu * before * self.calls, f"{told}: {self}"


class Victim:
    """Calls one thing after the other and notes how it is served.

    Args:
        call: One honest operation; what it raises is an error of the service.
        servers: Processes under attack; their processor time is counted.
        limit_s: A call that takes longer counts as failed: it hangs.

    """

    def __init__(
        self, call: Callable[[], Awaitable[object]], *, servers: Sequence[int] = (), limit_s: float = 60.0
    ) -> None:
        self._call = call
        self._servers = servers
        self._limit_s = limit_s

    async def run(self, calls: int, *, beside: Work | None = None, units: int = 1) -> Served:
        """Call so often, and on until the attackers beside got so much done or are through.

        The first call that fails is the last one.
        """
        served = Served()
        work = beside or Work()
        first_units, first_cpu_s, began = work.units, self._cpu_s(), time.monotonic()
        seen = first_units
        while not served.errors:
            await self._call_once(served)
            served.gaps.append(work.units - seen)
            seen = work.units
            is_enough = beside is None or work.is_over or seen - first_units >= units
            if served.calls >= calls and is_enough:
                break
            if time.monotonic() - began > _HUNG_S:
                served.missing = f"in {_HUNG_S:.0f} s not {calls} calls beside {units if beside else 0} units"
                break
        served.units, served.cpu_s = seen - first_units, self._cpu_s() - first_cpu_s
        return served

    async def _call_once(self, served: Served) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._limit_s):
                await self._call()
        except Exception as error:
            served.errors.append(error)
        else:
            served.latencies_s.append(time.monotonic() - began)

    def _cpu_s(self) -> float:
        return sum(map(processor_s, self._servers))


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds: its threads, not its children."""
    return time.clock_gettime((~pid << 3) | 2)  # How Linux names the processor clock of another process.


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
