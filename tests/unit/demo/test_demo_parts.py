"""The demonstration's own parts: its data, its schedule, its verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import rsm_demo
from rsm_demo.flights import Aircraft, Flight, data_file, read_flights, share_of
from rsm_demo.schedule import Blow, Schedule
from rsm_demo.verdict import Answers, compare


def test_the_plain_count_and_the_running_accounts_agree_on_the_first_flights() -> None:
    accounts: dict[str, Aircraft] = {}
    values = {}
    for flight in read_flights(5_000):
        values[flight.tail] = json.loads(accounts.setdefault(flight.tail, Aircraft()).add(flight))
    script = Path(rsm_demo.__file__).with_name("plain_count.py")
    command = [sys.executable, "-I", str(script), str(data_file()), "5000"]
    assert json.loads(subprocess.run(command, check=True, capture_output=True).stdout) == values


def test_a_cancelled_flight_moves_no_aircraft() -> None:
    aircraft = Aircraft()
    aircraft.add(Flight("N1", "BOS", is_cancelled=False, delay_minutes=5, airline="UA"))
    account = aircraft.add(Flight("N1", "LAX", is_cancelled=True, delay_minutes=0, airline="DL"))
    assert json.loads(account) == ["BOS", 2, 1, 5, {"UA": [1, 0, 5], "DL": [1, 1, 0]}]


def test_shares_are_the_same_in_every_process() -> None:
    assert [share_of(tail, 8) for tail in ("N14228", "N24211", "unknown")] == [6, 1, 7]


def test_each_blow_falls_once_and_in_order() -> None:
    schedule = Schedule()
    assert schedule.due(0.1) is None
    assert [schedule.due(1.0) for _ in range(5)] == [
        Blow.KILL_LEADER,
        Blow.KILL_BOOKIE,
        Blow.KILL_LEADER,
        Blow.RETURN_BOOKIE,
        None,
    ]
    assert [strike.blow for strike in Schedule(with_bookies=False).left] == [Blow.KILL_LEADER] * 2


def test_the_load_waits_for_a_strike_that_is_due_and_a_kill_waits_for_a_leader() -> None:
    schedule = Schedule()
    shares = []
    while schedule.left:
        share = schedule.left[0].at_share
        assert share < schedule.ceiling < 1, "the strike is due before the load stands"
        shares.append(schedule.ceiling)
        if schedule.left[0].blow is Blow.KILL_LEADER:
            assert schedule.due(1.0, has_leader=False) is None
        assert schedule.due(share) is not None
    assert shares == sorted(shares)
    assert schedule.ceiling == 1.0


def test_a_row_that_one_source_lacks_is_a_difference() -> None:
    answers = Answers.of({"leader": {"a": ["x", 1, 0, 0], "b": ["y", 1, 0, 0]}, "Delta": {"a": ["x", 1, 0, 0]}})
    (difference,) = compare(answers)
    assert str(difference) == "b: leader ('y', 1, 0, 0), Delta None"
    assert answers.totals() == {"leader": (2, 2, 0, 0), "Delta": (1, 1, 0, 0)}


def test_accounts_are_summed_up_by_airline_and_a_damaged_one_is_missed() -> None:
    right = {"a": ["x", 3, 1, 9, {"UA": [2, 1, 5], "DL": [1, 0, 4]}], "b": ["y", 1, 0, 2, {"DL": [1, 0, 2]}]}
    answers = Answers.by_airline({"map": right, "Delta": {**right, "b": ["nowhere", 0, 0, 0]}})
    assert answers.by_source["map"] == {"UA": ("UA", 2, 1, 5), "DL": ("DL", 2, 0, 6)}
    (difference,) = compare(answers)
    assert str(difference) == "DL: map ('DL', 2, 0, 6), Delta ('DL', 1, 0, 4)"
