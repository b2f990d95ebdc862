"""The victim beside an attacker: an honest client that goes on, and the memory of the process under attack.

    quiet = await Victim(submit).run_for(2.0)
    async with attack():
        attacked = await Victim(submit).run_for(4.0)
    attacked.assert_goes_on_like(quiet)

What is compared is the same work in the same run, with generous ratios: cores are shared, and a lock that is missing
costs hundreds of times more than a noisy neighbour.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Served", "Victim", "resident_mib"]

_QUIET_S_MIN = 0.02
"""A quiet call is counted as at least this long: a factor of 1 ms is the noise of two shared cores."""


@dataclass
class Served:
    """What one victim got: seconds of each call that was answered, and the errors of the others."""

    latencies_s: list[float] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def quantile_s(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def assert_goes_on_like(self, quiet: Served, *, p50: float = 10.0, p99: float = 50.0) -> None:
        """Fail if a call failed, or if calls took longer than these factors of the quiet ones.

        The factors are those of a broken lock on a shared machine, not a promise; benches measure the promise.
        """
        assert not self.errors, f"{len(self.errors)} calls of the victim failed, first: {self.errors[0]!r}"
        assert self.latencies_s, "the victim was not served at all"
        for share, factor in ((0.5, p50), (0.99, p99)):
            before = max(quiet.quantile_s(share), _QUIET_S_MIN)
            during = self.quantile_s(share)
            told = f"p{share * 100:.0f} of the victim: {before * 1e3:.1f} ms when quiet"
            assert during <= factor * before, f"{told}, {during * 1e3:.1f} ms under attack"


class Victim:
    """Calls one thing after the other and notes how it is served.

    Args:
        call: One honest operation; what it raises is an error of the service.
        limit_s: A call that takes longer counts as failed.

    """

    def __init__(self, call: Callable[[], Awaitable[object]], *, limit_s: float = 20.0) -> None:
        self._call = call
        self._limit_s = limit_s

    async def run_for(self, seconds: float) -> Served:
        """Call until so much time has gone by; at least once."""
        served = Served()
        end = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._limit_s):
                    await self._call()
            except Exception as error:
                served.errors.append(error)
            else:
                served.latencies_s.append(time.monotonic() - began)
            if time.monotonic() >= end:
                return served


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
