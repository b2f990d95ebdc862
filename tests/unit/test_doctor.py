from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rsm_spark.cli.doctor import Finding, Grade, look_at_disk, look_at_here, look_at_log

REPLICA = {"replica_id": "a", "role": "leader", "failure": "", "damaged_snapshots": [], "behind": 0}
STATUS = {"log": "orders", "leader": "a", "revision": 7, "replicas": [REPLICA, {**REPLICA, "replica_id": "b"}],
          "alarms": []}  # fmt: skip


def _bad(status: dict[str, Any]) -> list[Finding]:
    return [one for one in look_at_log(status) if one.verdict is Grade.BAD]


def _here(what: str) -> Finding:
    (found,) = (one for one in look_at_here({}) if one.what == what)
    return found


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RSM_CONF_DIR", raising=False)
    return tmp_path


def test_a_log_that_is_well_has_nothing_bad() -> None:
    assert _bad(STATUS) == []
    assert {one.verdict for one in look_at_log(STATUS)} == {Grade.GOOD}


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"leader": None}, "has no leader"),
        ({"alarms": ["a: nothing is trimmed"]}, "a: nothing is trimmed"),
        ({"replicas": [REPLICA, {"replica_id": "b", "error": "no answer"}]}, "no answer"),
        ({"replicas": [REPLICA, {**REPLICA, "failure": "CorruptLogError: x"}]}, "CorruptLogError: x"),
    ],
)
def test_what_is_wrong_with_a_log_is_found_with_an_advice(changes: dict[str, Any], seen: str) -> None:
    (found,) = _bad({**STATUS, **changes})
    assert found.seen == seen
    assert found.advice


def test_an_expired_certificate_is_no_matter_of_the_network() -> None:
    said = "Tls handshake failed: CERTIFICATE_VERIFY_FAILED: certificate has expired: OK"
    (found,) = _bad({**STATUS, "replicas": [REPLICA, {"replica_id": "b", "error": said}]})
    assert (found.seen, "rsm init-cluster --renew" in found.advice) == (said, True)


def test_a_log_that_nobody_serves_is_bad_until_somebody_says_that_nobody_is_to() -> None:
    alone = {**STATUS, "leader": None, "replicas": []}
    (found,) = _bad(alone)
    assert "rsm doctor --forget orders" in found.advice
    forgotten = {"log_id": "1" * 32, "leader_epoch": 3, "by": "ann@host", "at_ms": 1_700_000_000_000}
    (found,) = look_at_log({**alone, "forgotten": forgotten})
    assert found.verdict is Grade.NOTE
    assert found.seen == "is served no more, as ann@host said on 2023-11-14"
    assert "rsm log delete orders" in found.advice


def test_a_plain_log_is_well_whether_it_is_written_or_not() -> None:
    idle = {**STATUS, "leader": None, "is_plain": True, "replicas": []}
    assert [(one.verdict, one.seen) for one in look_at_log(idle)] == [
        (Grade.GOOD, "a plain log that nobody writes now")
    ]
    writer = {"replica_id": "till", "address": "", "error": "serves no clients"}
    written = [(one.verdict, one.seen) for one in look_at_log({**idle, "replicas": [writer]})]
    assert written == [(Grade.GOOD, "a plain log, written by till")]


def test_a_single_replica_and_damaged_snapshots_are_noted() -> None:
    replica = {**REPLICA, "damaged_snapshots": [{"place": "x", "reason": "y"}]}
    notes = [one.seen for one in look_at_log({**STATUS, "replicas": [replica]}) if one.verdict is Grade.NOTE]
    assert notes == ["1 damaged snapshots", "one replica"]


def test_a_roll_that_is_under_way_is_noted() -> None:
    replicas = [{**REPLICA, "machine_version": 1}, {**REPLICA, "replica_id": "b", "machine_version": 2}]
    status = {**STATUS, "replicas": replicas, "machine": "bank", "log_version": 1}
    (note,) = (one for one in look_at_log(status) if one.verdict is Grade.NOTE)
    assert note.seen == "the log is of version 1 of machine bank: a runs version 1, b runs version 2"
    assert "raise-version" in note.advice


def test_packages_are_shown_with_the_place_they_come_from() -> None:
    found = _here("package ledger")
    assert found.verdict is Grade.GOOD
    assert found.seen.endswith("__init__.py")


def test_a_folder_that_would_hide_a_package_is_noted(elsewhere: Path) -> None:
    (elsewhere / "connectors").mkdir()
    found = _here("package connectors")
    assert found.verdict is Grade.NOTE
    assert str(elsewhere / "connectors") in found.advice


def test_a_configuration_that_a_process_would_refuse_is_bad(elsewhere: Path) -> None:
    (elsewhere / "conf").mkdir()
    (elsewhere / "conf" / "store.toml").write_text("rol_bytes = 5\n")
    found = _here("configuration of rsm store run")
    assert found.verdict is Grade.BAD
    assert "did you mean 'roll_bytes'" in found.seen


def test_secrets_of_the_environment_are_not_shown() -> None:
    found = {one.what: one.seen for one in look_at_here({"RSM_X_PASSWORD": "hush", "RSM_STORE__TOKEN_FILE": "/a"})}
    assert found["variable RSM_X_PASSWORD"] == "(not shown)"
    assert found["variable RSM_STORE__TOKEN_FILE"] == "/a"


def test_a_disk_that_is_not_there_is_bad(elsewhere: Path) -> None:
    assert look_at_disk(elsewhere / "none").verdict is Grade.BAD
    assert "MiB free" in look_at_disk(elsewhere).seen
