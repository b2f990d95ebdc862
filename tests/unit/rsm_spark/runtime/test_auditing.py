"""What is asked is in the log before it is done; refusals are counted, and told now and then."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger.audit_lines import open_audit_file
from ledger.logs import AUDIT_LOGGER
from rsm_spark.core.commands import ASKED, Answer, AnswerStatus, Audited, Request
from rsm_spark.errors import NotLeaderError, OutcomeUnknownError, OverloadedError
from rsm_spark.runtime.auditing import AuditTrail

BANNED = Audited("ann", "operator", "10.0.0.7", "PUT /holds", "tenant evil", "")


class Scripted:
    """A replica that answers as told."""

    leader_address = "b2:7365"

    def __init__(self, status: AnswerStatus = AnswerStatus.OK) -> None:
        self.status = status
        self.logged: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> asyncio.Future[Sequence[Answer]]:
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self.logged += requests
        future.set_result([Answer(self.status, 7, b"")] * len(requests))
        return future


def _noted(replica: Scripted, outcome: str = "") -> None:
    trail = AuditTrail(replica, "broker")
    asyncio.run(trail.ended(BANNED, outcome) if outcome else trail.asked(BANNED))


def test_what_is_asked_is_logged_and_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    replica = Scripted()
    _noted(replica)
    (logged,) = replica.logged
    assert isinstance(logged, Audited)
    assert (logged.principal, logged.outcome) == ("ann", ASKED)
    assert caplog.messages == ["ann (operator) from 10.0.0.7: PUT /holds on tenant evil: asked"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (AnswerStatus.NOT_LEADER, NotLeaderError),
        (AnswerStatus.OUTCOME_UNKNOWN, OutcomeUnknownError),
        (AnswerStatus.OVERLOADED, OverloadedError),
    ],
)
def test_what_cannot_be_audited_must_not_be_done(status: AnswerStatus, expected: type[Exception]) -> None:
    with pytest.raises(expected, match="not done"):
        _noted(Scripted(status))


def test_an_outcome_that_cannot_be_logged_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _noted(Scripted(AnswerStatus.NOT_LEADER), "done")
    assert "the outcome 'done' of PUT /holds is not in the log" in caplog.text


def test_a_log_that_knows_no_audits_still_has_its_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    _noted(Scripted(AnswerStatus.REFUSED))
    assert len(caplog.messages) == 1


def test_refusals_are_counted_and_one_of_a_kind_is_told_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    replica = Scripted()
    trail = AuditTrail(replica, "broker")
    for second in range(30):
        trail.refused(BANNED, float(second))
    trail.refused(Audited("eve", "tenant", "", "PUT /holds", "", "not allowed"), 30.0)
    assert trail.refusals == 31
    assert [getattr(record, "left_out", 0) for record in caplog.records] == [0, 9, 9, 0]
    assert replica.logged == []


def test_kinds_of_refusals_take_bounded_memory() -> None:
    trail = AuditTrail(Scripted(), "broker")
    for number in range(5_000):
        trail.refused(Audited(f"name-{number}", "", "", "x", "", "unknown"), 0.0)
    assert len(trail._refusals._told) <= 1_000


def test_an_audit_file_has_a_json_object_a_line_and_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    handler = open_audit_file(str(path))
    try:
        _noted(Scripted())
    finally:
        logging.getLogger(AUDIT_LOGGER).removeHandler(handler)
        handler.close()
    (line,) = path.read_text().splitlines()
    said = json.loads(line)
    assert (said["principal"], said["action"], said["outcome"], said["revision"]) == ("ann", "PUT /holds", "asked", 7)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
