"""Copies of the ledgers, as `rsm status` tells them: what is lacking, since when, and who does what about it."""

from __future__ import annotations

import time
from typing import Any

from ledger.replication.copies_report import CopiesReport
from rsm_spark.cli.terminal import painted

RUN_ONE = "start one: rsm autorecovery run, or a bookie without --no-autorecovery"
"""Advice where nobody looks for lost copies."""


def copies_facts(report: CopiesReport) -> dict[str, Any]:
    """Return what `rsm status --json` says of them."""
    return {
        "ledgers": report.ledger_count,
        "lacking": len(report.lacking),
        "lacking_entries": report.entry_count,
        "unreadable": report.unreadable_count,
        "marked": len(report.marked),
        "since_ms": report.since_ms,
        "missing_bookies": list(report.missing),
        "auditor": report.auditor,
        "enabled": report.is_enabled,
        "worked_on": {str(ledger_id): owner for ledger_id, owner in report.worked_on.items()},
    }


def copies_lines(report: CopiesReport) -> list[str]:
    """Return what `rsm status` says of them."""
    serving = f"{len(report.writable) + len(report.read_only)} bookies serve"
    gone = f", {', '.join(report.missing)} do not" if len(report.missing) > 1 else ""
    gone = gone or (f", {report.missing[0]} does not" if report.missing else "")
    lines = [f"copies: {copies_summary(report)}; {serving}{gone}"]
    if report.auditor is None:
        lines.append(f"  nobody looks for lost copies: {RUN_ONE}")
    elif not report.is_enabled:
        lines.append("  auto-recovery is switched off for the cluster: rsm autorecovery enable")
    elif not report.is_whole:
        work = ", ".join(f"{owner} copies ledger {one}" for one, owner in list(report.worked_on.items())[:3])
        lines.append(f"  auditor {report.auditor}; {len(report.marked)} marked; {work or 'nobody copies now'}")
    return lines


def painted_copies(report: CopiesReport) -> str:
    """Return what `rsm status` says of them, green or red on a terminal."""
    return painted("\n".join(copies_lines(report)), is_good=report.is_whole and not report.missing)


def copies_summary(report: CopiesReport) -> str:
    """Return how many copies are lacking, and since when."""
    if not report.lacking and not report.marked:
        return f"all of {report.ledger_count} ledgers"
    since = ""
    if report.since_ms is not None:
        since = time.strftime(" since %Y-%m-%d %H:%M:%S", time.localtime(report.since_ms / 1000))
    if not report.lacking:
        return f"{len(report.marked)} of {report.ledger_count} ledgers are marked as lacking some{since}"
    entries = f"{report.entry_count:,} entries"
    if any(one.is_being_written for one in report.lacking):
        entries += " and those being written"
    lost = f", {report.unreadable_count} have entries that nobody who serves has" if report.unreadable_count else ""
    return f"{len(report.lacking)} of {report.ledger_count} ledgers lack some ({entries}){since}{lost}"
