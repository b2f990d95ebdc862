"""Bugs to plant into reads without an entry: the simulation must find each (`test_replica_bugs`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rsm_spark.runtime.own_ledger import OwnLedger
from rsm_spark.runtime.read_checks import ReadChecks
from rsm_spark.testing.ledger_twin import TwinWriter

__all__ = [
    "answers_whatever_the_bookies_say",
    "asks_about_a_former_ledger",
    "believes_an_earlier_answer",
    "check_covers_reads_that_came_later",
    "does_not_ask_again",
]


def check_covers_reads_that_came_later(patch: pytest.MonkeyPatch) -> None:
    answer = ReadChecks.answer

    def answer_all(self: ReadChecks) -> bool:
        self._mark = self._queue.set_mark()
        return answer(self)

    patch.setattr(ReadChecks, "answer", answer_all)


def does_not_ask_again(patch: pytest.MonkeyPatch) -> None:
    """What one check has proven holds as long as the ledger is the same."""
    begin = ReadChecks.begin
    proven: set[tuple[int, int]] = set()

    def begin_once(self: ReadChecks) -> bool:
        key = id(self), self._ledger.ledger_id
        if key in proven:
            self._mark, self._ledger_id = self._queue.set_mark(), key[1]
            assert self._asked is not None
            self._on_told(self._asked)
            return False
        is_under_way = begin(self)
        assert self._asked is not None

        def note(asked: asyncio.Future[bool]) -> None:
            if not asked.cancelled() and asked.result():
                proven.add(key)

        self._asked.add_done_callback(note)
        return is_under_way

    patch.setattr(ReadChecks, "begin", begin_once)


def answers_whatever_the_bookies_say(patch: pytest.MonkeyPatch) -> None:
    check_fence = OwnLedger.check_fence

    def ask(self: OwnLedger) -> asyncio.Future[bool]:
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        check_fence(self).add_done_callback(lambda _asked: _tell(told, is_open=True))
        return told

    patch.setattr(OwnLedger, "check_fence", ask)


def asks_about_a_former_ledger(patch: pytest.MonkeyPatch) -> None:
    """The first ledger of a leadership is never fenced when this leader has closed it itself."""

    def ask(self: OwnLedger) -> asyncio.Future[bool]:
        handle: Any = self.__dict__.setdefault("first", self._handle)
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        handle._world.later(0.001, lambda: _tell(told, is_open=not handle._twin.is_fenced))
        return told

    patch.setattr(OwnLedger, "check_fence", ask)


def believes_an_earlier_answer(patch: pytest.MonkeyPatch) -> None:
    """An answer that was on its way for another check counts for the present one."""
    look = TwinWriter._look

    def look_earlier(self: TwinWriter, future: asyncio.Future[bool], is_heard: bool) -> None:
        is_open = is_heard and not self._twin.is_fenced
        earlier = self.__dict__.get("earlier")
        self.__dict__["earlier"] = is_open
        if earlier is None:
            look(self, future, is_heard)
        else:
            self._world.later(0.001, self._tell, future, earlier)

    patch.setattr(TwinWriter, "_look", look_earlier)


def _tell(told: asyncio.Future[bool], *, is_open: bool) -> None:
    if not told.done():
        told.set_result(is_open)
