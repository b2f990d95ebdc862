"""Look at where copies lie, what audits have found, and to which disks bookies are tied, as rows of the console.

It asks what `rsm cluster placement`, `audit` and `cookies` ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ledger.errors import CorruptMetadataError
from ledger.replication.audit_records import AuditRecord
from ledger.replication.placement_report import PlacementReport, report_placement
from ledger.zookeeper.ledgers import LedgerStore
from rsm_spark.cli.cluster_audit import AuditState, audit_state, found_words
from rsm_spark.cli.cluster_bookies import look_at_cookies
from rsm_spark.cli.cluster_placement import rule_words
from rsm_spark.console.core.view import AuditRow, AuditView, BookieRow, CookieRow, MisplacedRow, PlacementView
from rsm_spark.console.log_look import cut

_MISPLACED_MAX = 200
_SEGMENTS_MAX = 10
_NAMES_MAX = 100
_COOKIES_MAX = 1_000
_LEVELS = 3


class PlacementLook:
    """See the module.

    Args:
        ledgers: Of the cluster.

    Attributes:
        placement: The rule and what breaks it, as it was looked at last; None = it was not yet.
        cookies: The same of the cookies.

    """

    def __init__(self, ledgers: LedgerStore) -> None:
        self._ledgers = ledgers
        self._places: PlacementReport | None = None
        self.placement: PlacementView | None = None
        self.cookies: tuple[CookieRow, ...] = ()

    async def look(self) -> None:
        """Look at the places of all copies, and at the cookies."""
        try:
            self._places = await report_placement(self._ledgers)
            self.placement = placement_view(self._places)
        except CorruptMetadataError as error:
            self._places = None
            self.placement = PlacementView(problem=cut(str(error)))
        self.cookies = cookie_rows(await look_at_cookies(self._ledgers))

    async def audits(self) -> AuditView:
        """Return what the auditor has told up to now."""
        return audit_view(await audit_state(self._ledgers))

    def placed(self, row: BookieRow) -> BookieRow:
        """Return the row of a bookie with where it stands."""
        placement = None if self._places is None else self._places.placement
        place = None if placement is None else placement.place(row.bookie_id)
        region, zone, rack = levels_of(place or "")
        return msgspec.structs.replace(row, region=region, zone=zone, rack=rack)


def levels_of(place: str) -> tuple[str, str, str]:
    """Return region, zone and rack of a place, each by its own name; "" = it has none."""
    names = place.strip("/").split("/")[-_LEVELS:]
    region, zone, rack = [""] * (_LEVELS - len(names)) + names
    return region, zone, rack


def placement_view(report: PlacementReport) -> PlacementView:
    """Return what is shown of a report."""
    if report.placement is None:
        return PlacementView()
    return PlacementView(
        rule=rule_words(report.placement.rule),
        is_strict=report.placement.rule.is_strict,
        unplaced=report.unplaced[:_NAMES_MAX],
        unplaced_count=len(report.unplaced),
        ledger_count=report.ledger_count,
        misplaced=tuple(
            MisplacedRow(one.ledger_id, one.first_entries[:_SEGMENTS_MAX], len(one.first_entries))
            for one in report.misplaced[:_MISPLACED_MAX]
        ),
        misplaced_count=len(report.misplaced),
    )


def audit_view(state: AuditState) -> AuditView:
    """Return what is shown of the audits."""
    return AuditView(
        auditor=state.auditor or "",
        is_enabled=state.enabled,
        checked_ms=state.checked_ms or 0,
        looks=(audit_row("audit", state.audit, state.auditor), audit_row("check", state.check, state.auditor)),
    )


def audit_row(kind: str, record: AuditRecord, auditor: str | None) -> AuditRow:
    """Return what is shown of one kind of look."""
    last, running = record.last, record.running
    row = AuditRow(kind=kind, problem=cut(record.problem))
    if last is not None:
        row = msgspec.structs.replace(
            row,
            by=cut(last.by),
            began_ms=last.began_ms,
            ended_ms=last.ended_ms or last.began_ms,
            ledger_count=last.ledger_count,
            found=found_words(last),
            found_nothing=last.found_nothing,
            lost=last.lost[:_NAMES_MAX],
            drained=last.drained[:_NAMES_MAX],
        )
    if running is None:
        return row
    return msgspec.structs.replace(
        row,
        running_by=cut(running.by),
        running_ms=running.began_ms,
        running_seen=running.seen_count,
        running_count=running.ledger_count,
        running_goes_on=running.by == auditor,
    )


def cookie_rows(told: Sequence[Mapping[str, Any]]) -> tuple[CookieRow, ...]:
    """Return the rows of what `rsm cluster cookies --json` says."""
    return tuple(
        CookieRow(
            bookie_id=cut(one["bookie_id"]),
            serves=one["serves"],
            journal=cut(one.get("journal_dirs", "")),
            ledgers=tuple(map(cut, one.get("ledger_dirs", ())[:_NAMES_MAX])),
            problem=cut(one["problem"]),
        )
        for one in told[:_COOKIES_MAX]
    )
