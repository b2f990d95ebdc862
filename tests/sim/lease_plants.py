"""Bugs to plant into leases of reads: the simulation must find each (`test_leased_reads`)."""

from __future__ import annotations

import asyncio

import pytest

from rsm_spark.runtime.own_ledger import OwnLedger
from rsm_spark.testing.ledger_twin import TwinWriter
from rsm_spark.testing.ledger_world import LedgerTwin, LedgerWorld

__all__ = [
    "counts_from_the_answer",
    "fence_is_not_waited_for",
    "looks_at_a_former_ledger",
    "looks_before_a_pause",
    "takes_a_lease_for_ever",
]


def fence_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Bookies tell of a fence at once, whatever they have promised."""

    async def go_on(_world: LedgerWorld, _twin: LedgerTwin) -> None:
        return

    patch.setattr(LedgerWorld, "wait_out", go_on)


def counts_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    tell = TwinWriter._tell

    def tell_as_if_asked_now(self: TwinWriter, future: asyncio.Future[bool], is_open: bool) -> None:
        if future in self._wishes:
            self._wishes[future] = (self._client.clock(), self._wishes[future][1])
        tell(self, future, is_open)

    patch.setattr(TwinWriter, "_tell", tell_as_if_asked_now)


def looks_before_a_pause(patch: pytest.MonkeyPatch) -> None:
    """The lease is looked at, then nothing is done for a while; what has come by then is answered by that look."""
    holds = OwnLedger.holds_lease

    def held_before(self: OwnLedger) -> bool:
        before = bool(self.__dict__.get("held"))
        self.__dict__["held"] = holds(self)
        return before

    patch.setattr(OwnLedger, "holds_lease", held_before)


def takes_a_lease_for_ever(patch: pytest.MonkeyPatch) -> None:
    holds = TwinWriter.holds_lease

    def held_once(self: TwinWriter) -> bool:
        self.__dict__["held"] = self.__dict__.get("held") or holds(self)
        return bool(self.__dict__["held"])

    patch.setattr(TwinWriter, "holds_lease", held_once)


def looks_at_a_former_ledger(patch: pytest.MonkeyPatch) -> None:
    """Promises for the first ledger of a leadership count for those that follow, fenced or not."""

    def held(self: OwnLedger) -> bool:
        first = self.__dict__.setdefault("first", self._handle)
        return bool(first._client.clock() < first._lease_until)

    patch.setattr(OwnLedger, "holds_lease", held)
