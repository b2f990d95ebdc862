"""Look at a whole cluster, by what the commands `rsm status`, `rsm cluster` and `rsm doctor` are made of.

A quick look asks each replica and broker what it says of itself. A thorough one reads the metadata of every ledger too,
connects to each bookie and looks at consumers; a bookie that comes or goes has one taken at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError, NoNodeError
from ledger.replication.copies_report import CopiesReport, report_copies
from ledger.wire.paths import cookie_path, placement_path
from rsm_spark.cli.cluster_bookies import ClusterBookie, look_at_bookies
from rsm_spark.cli.copies import copies_summary
from rsm_spark.cli.doctor import Finding, look_at_cluster
from rsm_spark.cli.doctor_copies import look_at_copies
from rsm_spark.console.core.view import BookieRow, ConsoleView, CopiesView, LackingLedger
from rsm_spark.console.log_look import LogsLook, cut, finding_row
from rsm_spark.console.placement_look import PlacementLook
from rsm_spark.console.task_look import TasksLook
from rsm_spark.errors import RsmError
from rsm_spark.log.partition_names import log_names

_LACKING_MAX = 200
_FINDINGS_MAX = 2_000
_BROKER = "broker"
_BROKERS_MAX = 20


class ClusterLook:
    """See the module.

    Args:
        client: Connected.
        rsm_root: Root of the logs.
        logs_max: So many logs are looked at.

    Attributes:
        on_change: Called when bookies have come or gone since the last look, or the placement rule is another one.

    """

    def __init__(self, client: LedgerClient, rsm_root: str, logs_max: int) -> None:
        self._client = client
        self._root = rsm_root
        self._logs = LogsLook(client, rsm_root, logs_max)
        self._tasks = TasksLook()
        self._placement = PlacementLook(client.ledgers)
        self.on_change: Callable[[], None] = lambda: None
        self._armed: set[str] = set()
        self._bookies: list[ClusterBookie] = []
        self._found: list[Finding] = []
        self._report: CopiesReport | None = None

    async def look(self, before: ConsoleView, now_ms: int, *, is_thorough: bool) -> ConsoleView:
        """Return the view of now, without warnings; where the cluster cannot be asked, the one before with the reason.

        Args:
            before: The last one.
            now_ms: Wall clock.
            is_thorough: See the module.

        """
        try:
            return await self._look(now_ms, is_thorough=is_thorough)
        except (LedgerError, RsmError, TimeoutError, OSError) as error:
            self._armed.clear()  # What has failed may have left no watch.
            why = cut(str(error) or type(error).__name__)
            return msgspec.structs.replace(before, at_ms=now_ms, problem=why)

    async def close(self) -> None:
        """Close what was connected; the client stays its owner's."""
        self._tasks.close()
        await self._logs.close()

    async def _look(self, now_ms: int, *, is_thorough: bool) -> ConsoleView:
        client = self._client
        began_s = time.perf_counter()
        await client.store.sync("/")
        zookeeper_ms = (time.perf_counter() - began_s) * 1000
        await self._watch()
        report = self._report
        if is_thorough or report is None:
            report = await report_copies(client.ledgers)
            self._bookies = await look_at_bookies(client.ledgers)
            self._found = await look_at_cluster(client)
            await self._placement.look()
            self._report = report
        names = await log_names(client.store, self._root)
        logs, found = await self._logs.look(names, list(report.writable), is_thorough=is_thorough)
        brokers = [one for one in logs if one.machine == _BROKER][:_BROKERS_MAX]
        tasks = await asyncio.gather(*(self._tasks.look(one.log, one.url) for one in brokers))
        findings = [*(finding_row(one) for one in (*self._found, *look_at_copies(report))), *found]
        return ConsoleView(
            at_ms=now_ms,
            zookeeper_ms=round(zookeeper_ms, 1),
            bookies=tuple(map(self._placement.placed, bookie_rows(self._bookies, report))),
            placement=self._placement.placement,
            audit=await self._placement.audits(),
            cookies=self._placement.cookies,
            copies=copies_view(report),
            logs=tuple(logs),
            log_count=len(names),
            tasks=tuple(tasks),
            findings=tuple(findings[:_FINDINGS_MAX]),
        )

    async def _watch(self) -> None:
        """Have changes told: a bookie that comes, goes or is taken out, and another rule, wake the next look."""
        ledgers = self._client.ledgers
        await ledgers.writable_bookies(watch=self._watcher("writable"))
        await ledgers.read_only_bookies(watch=self._watcher("read-only"))
        await ledgers.store.exists(placement_path(ledgers.root), watch=self._watcher("placement"))
        try:
            await ledgers.store.children(cookie_path(ledgers.root), watch=self._watcher("cookies"))
        except NoNodeError:
            self._armed.discard("cookies")  # There never was a bookie: the first one to come wakes the look, too.

    def _watcher(self, name: str) -> Callable[[], None] | None:
        """Return what is called when something changes; None = it is waited for already."""
        if name in self._armed:
            return None
        self._armed.add(name)

        def fired() -> None:
            self._armed.discard(name)
            self.on_change()

        return fired


def bookie_rows(bookies: list[ClusterBookie], report: CopiesReport) -> list[BookieRow]:
    """Return the bookies as they were looked at last, with who serves now."""
    serving = dict.fromkeys(report.writable, "writable") | dict.fromkeys(report.read_only, "read-only")
    rows: list[BookieRow] = []
    known: set[str] = set()
    for one in bookies:
        known.add(one.bookie_id)
        state = serving.get(one.bookie_id, "missing")
        state = "draining" if state != "missing" and one.state == "draining" else state
        problem = cut(one.problem) if state != "missing" else ""
        rows.append(BookieRow(one.bookie_id, state, one.total_bytes, one.free_bytes, one.ledger_count, problem))
    rows += [BookieRow(name, state, None, None, 0) for name, state in serving.items() if name not in known]
    return sorted(rows, key=lambda one: one.bookie_id)


def copies_view(report: CopiesReport) -> CopiesView:
    """Return what is shown of a report."""
    marked = frozenset(report.marked)
    return CopiesView(
        summary=copies_summary(report),
        is_whole=report.is_whole,
        ledger_count=report.ledger_count,
        lacking=tuple(
            LackingLedger(
                one.ledger_id, one.entry_count, one.copies_min, one.bookie_ids, one.is_being_written,
                one.ledger_id in marked, report.worked_on.get(one.ledger_id, ""),
            )
            for one in report.lacking[:_LACKING_MAX]
        ),
        lacking_count=max(len(report.lacking), len(report.marked)),
        entry_count=report.entry_count,
        unreadable_count=report.unreadable_count,
        since_ms=report.since_ms or 0,
        auditor=report.auditor or "",
        is_enabled=report.is_enabled,
        checked_ms=report.checked_ms or 0,
    )  # fmt: skip
