"""Places, audits and cookies as rows: what is asked for is shown in words, and lists are bounded."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.core.placement_rule import ClusterPlacement, PlacementRule
from ledger.replication.audit_records import AuditLook, AuditRecord
from ledger.replication.placement_report import MisplacedLedger, PlacementReport
from rsm_spark.cli.cluster_audit import AuditState
from rsm_spark.console.core.view import PlacementView
from rsm_spark.console.placement_look import audit_row, audit_view, cookie_rows, levels_of, placement_view

LOOK = AuditLook(by="b1", request=0, began_ms=1_000, ended_ms=3_000, ledger_count=7, seen_count=7)


@pytest.mark.parametrize(
    ("place", "levels"),
    [
        ("", ("", "", "")),
        ("/r7", ("", "", "r7")),
        ("/a/r7", ("", "a", "r7")),
        ("/north/a/r7", ("north", "a", "r7")),
    ],
)
def test_a_place_has_its_levels_from_the_back(place: str, levels: tuple[str, str, str]) -> None:
    assert levels_of(place) == levels


def test_without_a_rule_nothing_is_said_of_places() -> None:
    assert placement_view(PlacementReport(placement=None)) == PlacementView()


def test_ledgers_that_break_the_rule_are_counted_and_the_first_are_named() -> None:
    many = tuple(MisplacedLedger(number, tuple(range(20))) for number in range(300))
    rule = ClusterPlacement(rule=PlacementRule(zones_min=2, is_strict=False), bookies={"b1": "/a/1"})
    shown = placement_view(PlacementReport(placement=rule, unplaced=("b2",), ledger_count=400, misplaced=many))
    assert "2 zones" in shown.rule
    assert (shown.is_strict, shown.unplaced, shown.unplaced_count) == (False, ("b2",), 1)
    assert (len(shown.misplaced), shown.misplaced_count, shown.ledger_count) == (200, 300, 400)
    assert (len(shown.misplaced[0].first_entries), shown.misplaced[0].segment_count) == (10, 20)


def test_an_audit_is_told_with_what_it_found_and_what_is_under_way() -> None:
    found = AuditLook(by="b1", request=0, began_ms=1, ended_ms=2, lacking_count=1, lacking=(5,), lost=("b3",))
    row = audit_row("audit", AuditRecord(last=found, running=LOOK), "b1")
    assert ("1 lack copies (5)" in row.found, row.found_nothing, row.lost) == (True, False, ("b3",))
    assert (row.running_by, row.running_seen, row.running_count, row.running_goes_on) == ("b1", 7, 7, True)
    assert not audit_row("audit", AuditRecord(running=LOOK), "b2").running_goes_on
    none = AuditState(auditor=None, enabled=False, checked_ms=None, audit=AuditRecord(), check=AuditRecord(problem="p"))
    shown = audit_view(none)
    assert (shown.auditor, shown.is_enabled, shown.checked_ms) == ("", False, 0)
    assert [(one.kind, one.by, one.problem) for one in shown.looks] == [("audit", "", ""), ("check", "", "p")]


def test_a_damaged_cookie_is_a_row_with_its_problem() -> None:
    told: list[dict[str, Any]] = [
        {"bookie_id": "b1", "serves": True, "journal_dirs": "/j", "ledger_dirs": ["/l"], "problem": ""},
        {"bookie_id": "b2", "serves": False, "problem": "cannot be read"},
    ]
    good, bad = cookie_rows(told)
    assert (good.journal, good.ledgers, good.serves) == ("/j", ("/l",), True)
    assert (bad.journal, bad.ledgers, bad.problem) == ("", (), "cannot be read")
