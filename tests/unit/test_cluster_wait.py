"""What `rsm cluster wait` says that is lacking."""

from __future__ import annotations

from ledger.replication.copies_report import CopiesReport
from ledger.replication.core.lacking_copies import LackingCopies
from rsm_spark.cli.cluster_wait import lacking_words


def _report(**fields: object) -> CopiesReport:
    defaults = {
        "writable": ("b0", "b1"), "read_only": (), "missing": (), "ledger_count": 7, "lacking": (), "unread": (),
        "auditor": "h:1.ab", "is_enabled": True, "checked_ms": None, "marked": (), "since_ms": None, "worked_on": {},
    }  # fmt: skip
    return CopiesReport(**defaults | fields)  # type: ignore[arg-type]


def test_nothing_is_lacking_where_all_take_entries_and_nothing_is_marked() -> None:
    assert lacking_words(_report(), []) == ""


def test_all_that_is_lacking_is_in_one_sentence() -> None:
    lack = LackingCopies(5, ("b3",), 12, is_being_written=False, copies_min=2, ack_quorum=2)
    report = _report(read_only=("b2",), missing=("b3", "b4"), lacking=(lack,), marked=(5,), unread=(6,))
    assert lacking_words(report, []) == (
        "bookies that do not serve: b3, b4; bookies that are read-only: b2; copies: 1 of 7 ledgers lack some "
        "(12 entries); ledgers with damaged metadata: 6"
    )


def test_a_bookie_that_is_drained_need_not_take_entries_nor_serve() -> None:
    assert lacking_words(_report(read_only=("b2",), missing=("b3",)), ["b2", "b3"]) == ""
    assert lacking_words(_report(writable=()), []) == "no bookie takes entries"


def test_nobody_who_looks_for_copies_and_marks_that_stand_are_lacking() -> None:
    assert "nobody looks for lost copies: start one" in lacking_words(_report(auditor=None), [])
    assert lacking_words(_report(marked=(5, 6)), []) == "copies: 2 of 7 ledgers are marked as lacking some"
