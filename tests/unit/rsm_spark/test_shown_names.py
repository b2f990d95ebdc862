"""Names that others chose are shown as they are: no markup of theirs colours, hides or moves anything."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.cli import snapshot, status
from rsm_spark.cli.snapshot_source import Holding
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.testing.counter_map import CounterMap

_NAME = "[bold]a[/bold][/red]"
_MOVED = "\x1b[2Jb\n"


def _status(name: str) -> dict[str, Any]:
    replica = {
        "replica_id": name, "role": name, "address": name, "revision": 1, "behind": 0, "lag_ms": 0, "logged_ms": 1,
        "row_count": 1, "snapshots": [], "damaged_snapshots": [],
    }  # fmt: skip
    return {
        "log": name, "leader": name, "leader_epoch": 1, "revision": 1, "ledgers": 1, "bookies": [name],
        "replicas": [replica, {"replica_id": name, "address": name, "error": name}],
        "verified": {name: 1}, "forgotten": {"by": name}, "machine": name, "log_version": 1, "alarms": [name],
        "is_plain": False,
        "trim": {"ledger_ids": [], "blocked": [
            {"first_ledger_id": 1, "last_ledger_id": 1, "ledger_count": 1, "text": name}
        ]},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def test_status_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    status._print(_status(_NAME))
    assert capsys.readouterr().out.count(_NAME) == 13
    status._print(_status(_MOVED))
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert said.count(r"\x1b[2Jb\x0a") == 13


def test_snapshots_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for name, shown in ((_NAME, _NAME), (_MOVED, r"\x1b[2Jb\x0a")):
        told = SnapshotManifest(name, "", 1, 1, 1, "", "00", 1, 1, 1, 1, CounterMap().description, written_by=name)
        snapshot._print([Holding(name, [told], [name], name), Holding(name, [], [])])
        snapshot._print([Holding(name, [], [])])
        said = capsys.readouterr().out
        assert said.count(shown) == 8
        assert "\x1b" not in said
