"""`rsm demo` as a user starts it: real processes, kills, Spark, and a comparison that can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


def _demo(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "rsm_spark", "demo", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1150)
    assert done.stdout, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert "error" not in outcome, outcome["error"] + "\n" + done.stderr
    return done.returncode, outcome


def test_a_short_demo_ends_with_equal_answers(tmp_path: Path) -> None:
    """The acts behind the proof have their turn in the test below."""
    code, outcome = _demo("--flights", "10000", "--last-act", "lake", "--data-dir", str(tmp_path / "demo"))
    assert (code, outcome["ok"], outcome["differences"]) == (0, True, [])
    assert (outcome["records"], outcome["acked_lost"], outcome["applied_twice"]) == (10_000, 0, 0)
    assert outcome["digests_equal"]
    assert outcome["sql_load_s"] > 0
    assert len(outcome["failover_s"]) == 2
    assert outcome["totals"] == {"ok": True, "airlines": 15, "flights": 10_000, "differences": []}
    lake = outcome["lake"]
    assert lake["ok"], lake
    assert lake["proved_entries"] > 0
    assert 0 < lake["flights_then"] < lake["flights_now"] == 10_000
    assert all(outcome[act] is None for act in ("upgrade", "fork", "tasks", "pool"))


def test_a_changed_row_of_the_delta_table_is_named_and_nothing_else_differs(tmp_path: Path) -> None:
    code, outcome = _demo("--flights", "60000", "--sabotage", "delta-row", "--data-dir", str(tmp_path / "demo"))
    assert (code, outcome["ok"]) == (1, False)
    assert len(outcome["differences"]) == 1
    assert outcome["differences"][0].startswith("D942DN: ")
    assert "Delta ('nowhere', 0, 0, 0)" in outcome["differences"][0]
    assert not outcome["digests_equal"]
    assert (outcome["records"], outcome["acked_lost"], outcome["applied_twice"]) == (60_000, 0, 0)
    assert len(outcome["failover_s"]) == 2
    lake, pool, totals = outcome["lake"], outcome["pool"], outcome["totals"]
    assert (totals["ok"], totals["flights"], len(totals["differences"])) == (False, 60_000, 1)
    assert totals["differences"][0].startswith("DL: Spark's table ('DL', ")
    assert len(lake["differences"]) == 1, "the changed row, and nothing else"
    assert "D942DN" in lake["differences"][0]
    assert lake["proved_entries"] > 0
    assert 0 < lake["flights_then"] < lake["flights_now"] == 60_000
    _check_upgrade_and_fork(outcome)
    assert pool["ok"], pool
    tasks = outcome["tasks"]
    assert (tasks["ok"], tasks["tasks"], tasks["never_ran"], tasks["results_equal"]) == (True, 4_383, 0, True)


def _check_upgrade_and_fork(outcome: dict[str, Any]) -> None:
    upgrade, fork = outcome["upgrade"], outcome["fork"]
    assert (upgrade["ok"], upgrade["applied_wrongly"], upgrade["digests_equal"]) == (True, 0, True)
    assert upgrade["commands"] > 800
    assert (fork["ok"], fork["equals_past"]) == (True, True), fork
    assert 0 < fork["flights_then"] <= fork["revision"] < outcome["records"] == fork["flights_now"]


@pytest.mark.slow
def test_all_flights_survive_two_leaders_and_a_bookie(tmp_path: Path) -> None:
    code, outcome = _demo("--data-dir", str(tmp_path / "demo"))
    assert (code, outcome["ok"], outcome["differences"]) == (0, True, [])
    assert (outcome["records"], outcome["keys"], outcome["delta_rows"]) == (336_776, 4_044, 4_044)
    assert (outcome["acked_lost"], outcome["applied_twice"], outcome["digests_equal"]) == (0, 0, True)
    assert outcome["totals"] == {"ok": True, "airlines": 16, "flights": 336_776, "differences": []}
    assert outcome["lake"]["ok"], outcome["lake"]
    assert outcome["fork"]["ok"], outcome["fork"]
    assert outcome["tasks"]["ok"], outcome["tasks"]
    assert outcome["pool"]["ok"], outcome["pool"]
