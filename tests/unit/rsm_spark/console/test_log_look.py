"""Rows of logs, of what replicas and the metadata store say: also of what is odd in it."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.console.log_look import consumer_row, cut, log_row, replica_row

REPLICA: dict[str, Any] = {
    "replica_id": "a", "address": "a:1", "role": "leader", "phase": "lead", "revision": 12, "behind": 0, "lag_ms": 0,
    "logged_ms": 1, "row_count": 3, "session_count": 1, "queued": 0, "machine_version": 1, "failure": "",
    "snapshots": [{"revision": 5, "rows": 1, "created_ms": 7}], "damaged_snapshots": [], "more": {"un": "known"},
}  # fmt: skip
STATUS: dict[str, Any] = {
    "log": "orders", "log_id": "ab" * 16, "leader_epoch": 3, "leader": "a", "leader_address": "a:1", "revision": 12,
    "ledgers": 2, "deleting": 0, "verified": {"b": 5}, "machine": "map", "is_plain": False, "log_version": 1,
    "alarms": ["a: room"],
    "trim": {"ledger_ids": [1], "blocked": [{"first_ledger_id": 2, "last_ledger_id": 2, "text": "young"}]},
    "replicas": [REPLICA], "forgotten": None, "bookies": [],
}  # fmt: skip


def test_a_log_is_a_row() -> None:
    row = log_row(STATUS, ())
    assert (row.leader, row.trim_count, row.stays, row.alarms) == ("a", 1, ("ledger 2 stays: young",), ("a: room",))
    (replica,) = row.replicas
    assert (replica.snapshots, replica.snapshot_ms, replica.problem) == ((5,), 7, "")


def test_a_plain_log_has_a_writer_and_no_replicas() -> None:
    writer = {"replica_id": "till", "address": "", "error": "serves no clients"}
    plain = {"machine": "log", "is_plain": True, "leader": None, "leader_address": None, "trim": None}
    row = log_row({**STATUS, **plain, "replicas": [writer]}, ())
    assert (row.is_plain, row.leader, row.replicas) == (True, "till", ())


def test_a_replica_that_does_not_answer_has_the_error_as_its_problem() -> None:
    assert replica_row({"replica_id": "b", "address": "b:1", "error": "unavailable"}).problem == "unavailable"
    assert replica_row({**REPLICA, "failure": "its state differs"}).problem == "its state differs"
    assert replica_row({**REPLICA, "logged_ms": 0, "lag_ms": 10**12}).lag_ms == -1


@pytest.mark.parametrize("odd", [{"revision": "many"}, {"snapshots": [1]}, {"role": None}, {"damaged_snapshots": 3}])
def test_what_is_odd_is_the_replicas_problem(odd: dict[str, Any]) -> None:
    assert "not understood" in replica_row({**REPLICA, **odd}).problem


def test_what_others_write_is_cut() -> None:
    long = replica_row({**REPLICA, "replica_id": "x" * 10_000, "failure": "y" * 10_000})
    assert len(long.replica_id) == len(long.problem) == 1_001
    assert cut("short") == "short"


def test_a_consumer_is_behind_as_far_as_the_log_is_known() -> None:
    told = {
        "name": "lake", "what": "a query", "revision": 5, "moved_ms": 1, "problem": "", "held_bytes": 9,
        "lost_revisions": 0,
    }  # fmt: skip
    assert (consumer_row(told, 12).behind, consumer_row(told, 3).behind) == (7, 0)
    assert consumer_row({**told, "problem": "unreadable", "lost_revisions": None}, 12).behind == 0
