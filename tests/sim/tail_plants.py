"""Bugs to plant into what leaders tell their followers: `test_told_entries` must find each."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rsm_spark.core.confirmed_tail import ConfirmedEntry, ConfirmedTail
from rsm_spark.core.leadership_events import Event
from rsm_spark.core.position import LogPosition
from rsm_spark.log import commit_log
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.runtime.following import Follower
from rsm_spark.runtime.leading import LeaderDriver

__all__ = [
    "follower_believes_whoever_tells",
    "follower_waits_for_its_leader_alone",
    "leader_passes_over_what_it_has_lost",
    "leader_says_nothing_follows_what_it_has_lost",
    "leader_tells_what_is_only_sent",
]


def leader_tells_what_is_only_sent(patch: pytest.MonkeyPatch) -> None:
    """An entry is told when it is given to the bookies; those of a deposed leader are confirmed by nobody."""
    append = LeaderDriver._append
    sent: Counter[tuple[LeaderDriver, int]] = Counter()

    async def tell_and_append(self: LeaderDriver, payload: bytes) -> Event:
        ledger_id = self._ledger.ledger_id
        assert self.telling is not None
        self.telling.add(LogPosition(ledger_id, sent[self, ledger_id]), payload)
        sent[self, ledger_id] += 1
        return await append(self, payload)

    def add(self: ConfirmedTail, position: LogPosition, payload: bytes) -> None:
        if position not in self._serials:
            _ADD(self, position, payload)

    patch.setattr(LeaderDriver, "_append", tell_and_append)
    patch.setattr(ConfirmedTail, "add", add)


def leader_passes_over_what_it_has_lost(patch: pytest.MonkeyPatch) -> None:
    """Whoever is further behind than what is kept is told what is kept; and followers do not look at what follows."""
    _keeps_little(patch)

    def after(self: ConfirmedTail, position: LogPosition) -> tuple[ConfirmedEntry, ...] | None:
        found = _AFTER(self, position)
        return tuple(self._entries) if found is None else found

    patch.setattr(ConfirmedTail, "after", after)
    follower_believes_whoever_tells(patch)


def follower_believes_whoever_tells(patch: pytest.MonkeyPatch) -> None:
    """Neither place nor history of what is told is looked at."""
    patch.setattr(LogReader, "_place_fault", lambda *_: "")
    patch.setattr(commit_log, "check_told", lambda *_: None)


def follower_waits_for_its_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """What a leader does not tell is not read from bookies, as long as somebody is known to lead."""
    next_entries = Follower._next_entries

    async def wait_for_leader(self: Follower, reader: LogReader) -> list[LogEntry]:
        tail, context = self._tail, self._context
        told = None if tail is None else tail.take()
        if told is not None:
            return (await reader.take_told(told, context.tip)).entries
        is_led = reader.position is not None and context.leader_address is not None
        if not is_led:
            return await next_entries(self, reader)
        await asyncio.sleep(0.1)
        return []

    patch.setattr(Follower, "_next_entries", wait_for_leader)


def leader_says_nothing_follows_what_it_has_lost(patch: pytest.MonkeyPatch) -> None:
    """A window that has moved on is silent about it. This one does no harm: silence has the bookies read."""
    _keeps_little(patch)

    def after(self: ConfirmedTail, position: LogPosition) -> tuple[ConfirmedEntry, ...] | None:
        return _AFTER(self, position) or ()

    patch.setattr(ConfirmedTail, "after", after)


def _keeps_little(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("rsm_spark.core.confirmed_tail.TAIL_COUNT_MAX", 2)


_ADD = ConfirmedTail.add
_AFTER = ConfirmedTail.after
