"""Virtual time: what is charged, when, and from where a newcomer starts."""

from __future__ import annotations

import pytest

from broker.core.scheduling.accounts import QUANTUM_MS, Account, Arena

NOW_MS = 1_700_000_000_000


@pytest.fixture
def account():
    return Account("a", 1.0, Arena())


def test_a_running_task_is_charged_as_time_goes_on(account):
    account.start(0, NOW_MS)
    assert account.virtual_time(NOW_MS) == QUANTUM_MS
    assert account.virtual_time(NOW_MS + 100) == QUANTUM_MS + 100


def test_what_is_expected_is_charged_ahead_and_what_runs_longer_after_it(account):
    account.start(500, NOW_MS)
    assert account.virtual_time(NOW_MS) == account.virtual_time(NOW_MS + 500) == QUANTUM_MS + 500
    assert account.virtual_time(NOW_MS + 700) == QUANTUM_MS + 700


@pytest.mark.parametrize("took_ms", [0, 200, 500, 900])
def test_an_end_settles_what_the_task_really_took(account, took_ms):
    account.start(500, NOW_MS)
    account.end("t", 500, NOW_MS, NOW_MS + took_ms)
    assert account.virtual_time(NOW_MS + 10_000) == QUANTUM_MS + took_ms
    assert (account.running, account.expected_ms, account.started_ms) == (0, 0, 0)


def test_service_counts_by_the_weight_at_its_time(account):
    account.start(0, NOW_MS)
    account.set_weight(4.0, NOW_MS + 100)
    assert account.virtual_time(NOW_MS + 500) == QUANTUM_MS + 100 + 400 / 4


def test_two_tasks_are_charged_twice(account):
    account.start(0, NOW_MS)
    account.start(0, NOW_MS + 50)
    assert account.virtual_time(NOW_MS + 100) == 2 * QUANTUM_MS + 100 + 50


def test_a_newcomer_is_raised_and_never_lowered(account):
    account.raise_to(1_000, NOW_MS)
    assert account.virtual_time(NOW_MS) == 1_000
    account.raise_to(10, NOW_MS)
    assert account.virtual_time(NOW_MS) == 1_000


def test_what_is_resumed_is_charged_from_the_next_event_on(account):
    account.resume(NOW_MS - 3_600_000)
    assert account.virtual_time(NOW_MS) == 0
    account.start(0, NOW_MS)
    assert account.virtual_time(NOW_MS + 100) == QUANTUM_MS + 200


def test_expected_is_the_mean_of_the_last_durations(account):
    for took_ms in (1_000, *[100] * 60):
        account.start(0, NOW_MS)
        account.end("t", 0, NOW_MS, NOW_MS + took_ms)
    assert account.durations["t"] == pytest.approx(100, rel=0.05)


def test_a_clock_that_stands_still_or_goes_back_charges_nothing(account):
    account.start(0, NOW_MS)
    account.settle(NOW_MS - 500)
    assert account.virtual_time(NOW_MS - 500) == QUANTUM_MS
    account.end("t", 0, NOW_MS, NOW_MS - 100)
    assert account.virtual_time(NOW_MS) == QUANTUM_MS
