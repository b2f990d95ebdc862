"""Findings of the doctor about the places of copies."""

from __future__ import annotations

from ledger.errors import CorruptMetadataError
from ledger.replication.placement_report import report_placement
from ledger.zookeeper.ledgers import LedgerStore
from rsm_spark.cli.cluster_placement import rule_words
from rsm_spark.cli.doctor import Finding, Grade


async def look_at_placement(ledgers: LedgerStore) -> list[Finding]:
    """Judge whether the cluster's rule is kept; nothing is said where there is none."""
    try:
        report = await report_placement(ledgers)
    except CorruptMetadataError as error:
        return [Finding("placement", Grade.BAD, str(error), "rsm cluster set-placement FILE")]
    if report.placement is None:
        return []
    found: list[Finding] = []
    if report.unplaced:
        names = ", ".join(report.unplaced[:5])
        advice = "name their places in the file of rsm cluster set-placement"
        found.append(Finding("placement", Grade.NOTE, f"nobody said where {names} stand", advice))
    if report.misplaced:
        seen = f"{len(report.misplaced)} of {report.ledger_count} ledgers break the rule"
        advice = "rsm cluster placement names them; drain a bookie to have its copies moved"
        found.append(Finding("placement", Grade.NOTE, seen, advice))
    else:
        found.append(Finding("placement", Grade.GOOD, rule_words(report.placement.rule)))
    return found
