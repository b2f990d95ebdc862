"""What `rsm cluster audit` tells, in words."""

from __future__ import annotations

from ledger.replication.audit_records import AuditLook, AuditRecord
from rsm_spark.cli.cluster_audit import AuditState, audit_lines

_NOW_MS = 1_700_000_000_000
_LOOK = AuditLook(
    by="h:1.ab", request=1, began_ms=_NOW_MS - 61_500, ended_ms=_NOW_MS - 60_000, ledger_count=1200, seen_count=1200
)


def _state(**fields: object) -> AuditState:
    defaults = {
        "auditor": "h:1.ab", "enabled": True, "checked_ms": None, "audit": AuditRecord(last=_LOOK),
        "check": AuditRecord(),
    }  # fmt: skip
    return AuditState(**defaults | fields)  # type: ignore[arg-type]


def test_a_good_audit_is_told_in_a_line_of_each_kind() -> None:
    state = _state()
    who, audit, check = audit_lines(state, _NOW_MS)
    assert who == "auditor h:1.ab"
    assert "(1 min ago), by h:1.ab: 1,200 ledgers read in 1.5 s, all is as it should be" in audit
    assert check == "check: none yet"
    assert state.is_good


def test_what_was_found_is_named_and_bad() -> None:
    found = AuditLook(
        by="h:1.ab", request=1, began_ms=_NOW_MS, ended_ms=_NOW_MS, ledger_count=9, lacking_count=7,
        lacking=tuple(range(7)), short_count=2, unreadable_count=1, unread_count=3, marked_count=4,
        lost=("b1\x1b[31m",), drained=("b2",), silent=("b3",),
    )  # fmt: skip
    state = _state(audit=AuditRecord(last=found, problem="no reply"))
    text = "\n".join(audit_lines(state, _NOW_MS))
    assert "7 lack copies (0, 1, 2, 3, 4, …)" in text
    for words in (
        "2 have entries with fewer copies",
        "1 have entries that nobody",
        "3 have damaged",
        "4 newly marked",
        "bookies did not say what they hold (b3)",
    ):
        assert words in text
    assert "lost bookies: b1\\x1b[31m" in text
    assert "drained bookies: b2" in text
    assert "put off: no reply" in text
    assert "\x1b" not in text
    assert not state.is_good


def test_nobody_and_switched_off_and_never_are_bad() -> None:
    assert "nobody audits: start one" in audit_lines(_state(auditor=None), _NOW_MS)[0]
    assert "switched off" in audit_lines(_state(enabled=False), _NOW_MS)[0]
    assert not _state(auditor=None).is_good
    assert not _state(enabled=False).is_good
    assert not _state(audit=AuditRecord()).is_good


def test_a_look_under_way_tells_how_far_it_is_or_that_it_was_broken_off() -> None:
    running = AuditLook(by="h:1.ab", request=2, began_ms=_NOW_MS - 5000, seen_count=300, ledger_count=1000)
    lines = audit_lines(_state(check=AuditRecord(running=running)), _NOW_MS)
    assert "check: under way for 5 s: 300 of 1,000 ledgers" in lines
    lines = audit_lines(_state(auditor="other", check=AuditRecord(running=running)), _NOW_MS)
    assert "check: one of h:1.ab was broken off: it audits no more" in lines


def test_a_check_of_bookkeepers_auditor_is_told() -> None:
    lines = audit_lines(_state(checked_ms=_NOW_MS - 7_200_000), _NOW_MS)
    assert lines[-1] == "check: BookKeeper's auditor ended one 2 h ago"
