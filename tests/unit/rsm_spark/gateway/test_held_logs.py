"""Bounds on what waits to be appended to one log: of a producer, of an owner, of all."""

from __future__ import annotations

import contextlib

import pytest

from rsm_spark.core.producers import RANGES_MAX, RecordSource
from rsm_spark.gateway.held_logs import HeldLog, TooMuchWaitsError


def _held() -> HeldLog:
    return HeldLog(None, 0.0)  # type: ignore[arg-type]  # What waits knows no writer.


def test_a_producer_has_so_many_appends_under_way() -> None:
    held = _held()
    source = RecordSource("p", "ann", 1)
    with contextlib.ExitStack() as under_way:
        for _ in range(RANGES_MAX):
            under_way.enter_context(held.waits(source, 1, 100, 50))
        with pytest.raises(TooMuchWaitsError, match="appends of producer 'p'"), held.waits(source, 1, 100, 50):
            pass
        with held.waits(RecordSource("q", "ann", 1), 1, 100, 50):
            assert held.bytes == RANGES_MAX + 1
    assert (held.bytes, dict(held.owners), dict(held.producers)) == (0, {}, {})


def test_an_owner_has_its_part_and_leaves_the_rest_to_others() -> None:
    held = _held()
    with held.waits(RecordSource("p", "eve", 1), 50, 100, 50):
        with (
            pytest.raises(TooMuchWaitsError, match="fills your part"),
            held.waits(RecordSource("q", "eve", 1), 1, 100, 50),
        ):
            pass
        with held.waits(RecordSource("r", "ann", 1), 50, 100, 50):
            assert held.bytes == 100
            with (
                pytest.raises(TooMuchWaitsError, match="fills this log's room"),
                held.waits(RecordSource("s", "bob", 1), 1, 100, 50),
            ):
                pass


def test_one_append_is_always_taken_however_large() -> None:
    held = _held()
    with held.waits(RecordSource("p", "ann", 1), 1_000, 100, 50):
        assert held.bytes == 1_000
    assert held.bytes == 0
