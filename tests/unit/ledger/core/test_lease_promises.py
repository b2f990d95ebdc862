"""Promises of a bookie: how long they hold a fence back, what is asked for, restarts, and how many there may be."""

from __future__ import annotations

import pytest

from ledger.core.lease_promises import LEASE_MS_MAX, LeasePromises


def test_a_promise_holds_a_fence_back_for_its_time_and_no_longer() -> None:
    promises = LeasePromises(0.0)
    assert promises.promise(7, 100, 10.0) == 100
    assert promises.wait_s(7, 10.04) == pytest.approx(0.06)
    assert promises.wait_s(7, 10.11) <= 0
    assert promises.wait_s(8, 10.04) <= 0


def test_more_is_asked_for_than_any_bookie_promises() -> None:
    promises = LeasePromises(0.0)
    assert promises.promise(7, 1 << 30, 10.0) == LEASE_MS_MAX
    assert promises.wait_s(7, 10.0) == pytest.approx(LEASE_MS_MAX / 1000)
    assert promises.promise(8, 0, 10.0) == promises.promise(8, -5, 10.0) == 0
    assert promises.wait_s(8, 10.0) <= 0


def test_a_shorter_promise_takes_nothing_back() -> None:
    promises = LeasePromises(0.0)
    promises.promise(7, 200, 10.0)
    promises.promise(7, 10, 10.0)
    assert promises.wait_s(7, 10.0) == pytest.approx(0.2)


def test_after_the_start_every_fence_waits_for_what_may_have_been_promised_before() -> None:
    promises = LeasePromises(5.0)
    assert promises.wait_s(7, 5.0) == pytest.approx(LEASE_MS_MAX / 1000)
    assert promises.wait_s(7, 5.0 + LEASE_MS_MAX / 1000) <= 0


def test_promises_that_are_over_are_forgotten_and_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.core.lease_promises._PROMISES_MAX", 3_000)
    promises = LeasePromises(0.0)
    granted = [promises.promise(number, 100, 10.0) for number in range(4_000)]
    assert granted == [100] * 3_000 + [0] * 1_000
    assert promises.promise(9_999, 100, 10.2) == 100
    assert len(promises._until) == 1
