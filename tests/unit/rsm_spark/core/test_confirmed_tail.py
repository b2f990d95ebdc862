"""Tests of what a leader keeps of its newest confirmed entries, and of what a follower checks of them."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.core import confirmed_tail
from rsm_spark.core.confirmed_tail import ConfirmedTail, check_told
from rsm_spark.core.envelope import Envelope
from rsm_spark.core.position import LogPosition
from rsm_spark.core.seal import ForeignEntryError
from rsm_spark.core.state import StateTip
from rsm_spark.errors import CorruptLogError, ForkedLogError

_BEFORE = LogPosition(3, 9)


def _tail(count: int, *, after: LogPosition | None = _BEFORE, size: int = 10) -> ConfirmedTail:
    tail = ConfirmedTail(after)
    for number in range(count):
        tail.add(LogPosition(4, number), bytes([number]) * size)
    return tail


def _ids(tail: ConfirmedTail, position: LogPosition) -> list[int] | None:
    found = tail.after(position)
    return None if found is None else [entry.position.entry_id for entry in found]


def test_what_follows_an_entry_is_told_also_from_the_ledger_before() -> None:
    tail = _tail(3)
    assert _ids(tail, _BEFORE) == [0, 1, 2]
    assert _ids(tail, LogPosition(4, 1)) == [2]
    assert _ids(tail, LogPosition(4, 2)) == []


@pytest.mark.parametrize("position", [LogPosition(3, 8), LogPosition(4, 3), LogPosition(5, 0)])
def test_what_follows_an_entry_that_is_not_known_is_not_known(position: LogPosition) -> None:
    assert _tail(3).after(position) is None


def test_a_log_that_was_empty_is_told_from_its_first_entry_on() -> None:
    assert _ids(_tail(2, after=None), LogPosition(4, 0)) == [1]


def test_the_oldest_entries_go_and_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmed_tail, "TAIL_COUNT_MAX", 3)
    tail = _tail(10)
    assert len(tail) == 3
    assert _ids(tail, LogPosition(4, 6)) == [7, 8, 9]
    assert _ids(tail, LogPosition(4, 5)) is None
    assert _ids(tail, _BEFORE) is None


def test_few_bytes_are_kept_and_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmed_tail, "TAIL_BYTES_MAX", 100)
    monkeypatch.setattr(confirmed_tail, "TOLD_BYTES_MAX", 45)
    tail = _tail(10, size=20)
    assert (len(tail), tail.byte_count) == (5, 100)
    assert _ids(tail, LogPosition(4, 4)) == [5, 6]
    tail.add(LogPosition(4, 10), bytes(90))
    assert _ids(tail, LogPosition(4, 9)) == [10]  # Longer than an answer should be, and told alone.
    tail.add(LogPosition(4, 11), bytes(200))
    assert (len(tail), tail.byte_count) == (0, 0)  # Longer than all that may be kept: bookies have it.
    assert _ids(tail, LogPosition(4, 10)) is None
    assert _ids(tail, LogPosition(4, 11)) == []


_LOG_ID = b"l" * 16
_TIP = StateTip(7, b"h" * 32, 2, 1_000)
_NEXT: dict[str, Any] = {
    "log_id": _LOG_ID,
    "leader_epoch": 2,
    "first_revision": 8,
    "confirmed_revision": 7,
    "logged_ms": 1_000,
    "record_count": 1,
    "prefix_hash": b"h" * 32,
}


def _check(tip: StateTip = _TIP, *, ledger_epoch: int = 2, told_epoch: int = 2, **changed: Any) -> None:
    check_told(Envelope(**{**_NEXT, **changed}), tip, _LOG_ID, ledger_epoch, told_epoch)


def test_the_next_entry_of_this_history_is_taken() -> None:
    _check()
    _check(leader_epoch=5, ledger_epoch=5, told_epoch=5)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"prefix_hash": b"g" * 32}, ForkedLogError),
        ({"log_id": b"m" * 16}, ForkedLogError),
        ({"first_revision": 9}, CorruptLogError),
        ({"leader_epoch": 1}, CorruptLogError),
        ({"leader_epoch": 3}, CorruptLogError),
        ({"logged_ms": 999}, CorruptLogError),
        ({"told_epoch": 3}, CorruptLogError),
        ({"ledger_epoch": 1}, CorruptLogError),
        ({"tip": StateTip(7, b"h" * 32, 2, 1_000, is_sealed=True)}, ForeignEntryError),
    ],
)
def test_what_cannot_be_the_next_entry_is_refused(changed: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        _check(**changed)
