"""Findings of the doctor about copies of ledgers: counted now, whether an auditor has noticed or not."""

from __future__ import annotations

from ledger.replication.copies_report import CopiesReport
from rsm_spark.cli.copies import RUN_ONE, copies_summary
from rsm_spark.cli.doctor import Finding, Grade


def look_at_copies(report: CopiesReport) -> list[Finding]:
    """Judge them: what lacks copies is bad, whoever has or has not noticed it."""
    found = [_of_bookie(report, bookie_id) for bookie_id in _absent(report)]
    if report.is_whole:
        seen = f"{report.ledger_count} ledgers have all of them on bookies that serve"
        found.append(Finding("copies", Grade.GOOD, seen))
    else:
        found.append(Finding("copies", Grade.BAD, copies_summary(report), _advice(report)))
    if report.unread:
        ids = ", ".join(map(str, report.unread[:5]))
        advice = "their metadata are damaged: see the auditor's log"
        found.append(Finding("copies", Grade.BAD, f"ledgers {ids} cannot be looked at", advice))
    if report.auditor is None:
        grade = Grade.NOTE if report.is_whole else Grade.BAD
        found.append(Finding("auto-recovery", grade, "nobody looks for lost copies", RUN_ONE))
    elif not report.is_enabled:
        found.append(Finding("auto-recovery", Grade.NOTE, "is switched off", "rsm autorecovery enable"))
    else:
        found.append(Finding("auto-recovery", Grade.GOOD, f"{report.auditor} audits"))
    return found


def _absent(report: CopiesReport) -> list[str]:
    """Return every bookie that does not serve, and has a cookie or is named by a ledger that lacks it."""
    named = {bookie_id for one in report.lacking for bookie_id in one.bookie_ids}
    return sorted({*report.missing, *named})


def _of_bookie(report: CopiesReport, bookie_id: str) -> Finding:
    what = f"bookie {bookie_id}"
    lacking = [one for one in report.lacking if bookie_id in one.bookie_ids]
    if not lacking:
        seen = "served once and does not serve now; no ledger lacks it"
        return Finding(what, Grade.NOTE, seen, "start it on its folder, if it is to serve again")
    seen = f"does not serve; {len(lacking)} ledgers name it, and lack its copies"
    advice = f"start it on its folder; if that is gone, {_repair(report)}"
    return Finding(what, Grade.BAD, seen, advice)


def _repair(report: CopiesReport) -> str:
    if report.auditor is None:
        return f"nobody copies what it held to others: {RUN_ONE}"
    if not report.is_enabled:
        return "others get its copies after: rsm autorecovery enable"
    return "others get its copies once it has been missing for the cluster's delay: rsm autorecovery status"


def _advice(report: CopiesReport) -> str:
    if report.unreadable_count:
        return "nobody who serves has some entries: bring a bookie that held them back, with its folder"
    if report.lacking:
        return "start the bookies that are missing, or wait for auto-recovery: rsm autorecovery status"
    return "auto-recovery works on them: rsm autorecovery status"
