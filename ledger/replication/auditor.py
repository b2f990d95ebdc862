"""The auditor: marks the ledgers that lack copies. One of all leads (see `ledger.replication.election`).

* A bookie that is missing for the cluster's delay is lost: every ledger that names it is marked. A bookie counts as
  known by its registration, by its cookie, or because a ledger names it.
* A bookie that is to be drained is treated the same, though it serves.
* A bookie that is back after it was missing may have missed entries: the ledgers that name it are checked.
* Who asks for a look at all ledgers gets one at once, and what looks have found is told to everybody
  (`ledger.replication.audit_records`).
* Every so often all copies of all ledgers are checked (`ledger.replication.copies_check`).

All of it may be done twice, or by two auditors at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from ledger.client.pool import ConnectionPool
from ledger.core.metadata import LedgerMetadata
from ledger.errors import CorruptMetadataError, LedgerError, NoNodeError
from ledger.replication.audit_records import AuditRecords, LookRecorder
from ledger.replication.copies_check import CopiesCheck
from ledger.replication.core.lacking_copies import LackingCopies, lacking_copies
from ledger.replication.core.lost_bookies import LostBookies
from ledger.replication.core.repair_plan import named_bookies
from ledger.replication.election import AuditorElection
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.replication.questions import read_patiently
from ledger.replication.settings import ReplicationSettings
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)
_MS_PER_S = 1000


class AuditorCounts(msgspec.Struct):
    """Counts of an auditor's work since it started.

    Attributes:
        is_leading: It is the auditor now.
        lost: The bookies that are lost now.
        marked_count: Marks that it made or added to.
        standing_count: Ledgers that are marked now, whoever marked them, some seconds ago.
        ledger_count: Ledgers that the last audit saw.
        short_count: Of these, those with entries that have fewer copies than an acknowledgement needs.
        unreadable_count: Of these, those with entries that nobody who serves has.
        audited_ms: When that audit was, Unix time; 0 = there was none yet.

    """

    is_leading: bool = False
    lost: tuple[str, ...] = ()
    marked_count: int = 0
    standing_count: int = 0
    ledger_count: int = 0
    short_count: int = 0
    unreadable_count: int = 0
    audited_ms: int = 0


class Auditor:
    """One candidate for the auditor's place.

    Args:
        ledgers: Metadata of ledgers and bookies.
        pool: Connections to bookies.
        marks: Where marks and votes go.
        settings: Times.
        wall_ms: Wall clock, for marks and for when the last check was.

    Attributes:
        counts: What it has done.

    """

    def __init__(
        self,
        ledgers: LedgerStore,
        pool: ConnectionPool,
        marks: MarkStore,
        settings: ReplicationSettings,
        *,
        wall_ms: Callable[[], int],
    ) -> None:
        self.counts = AuditorCounts()
        self._ledgers = ledgers
        self._pool = pool
        self._marks = marks
        self._settings = settings
        self._wall_ms = wall_ms
        self._term: _Term | None = None

    def look_now(self) -> bool:
        """Audit at once if this is the auditor; return whether it is."""
        if self._term is None:
            return False
        self._term.look_now()
        return True

    async def run(self) -> None:
        """Stand for election and audit whenever elected, until cancelled."""
        election = AuditorElection(self._marks)
        try:
            while True:
                await election.wait_until_elected()
                await self._lead(election)
        except asyncio.CancelledError:
            await election.withdraw()
            raise

    async def _lead(self, election: AuditorElection) -> None:
        loop = asyncio.get_running_loop()
        _LOGGER.info("%s is the auditor", self._marks.owner)
        self.counts.is_leading = True
        self._term = _Term(self)
        audit = loop.create_task(self._term.run())
        deposed = loop.create_task(election.wait_until_deposed())
        audit.add_done_callback(lambda _: deposed.cancel())
        try:
            await asyncio.gather(deposed, return_exceptions=True)
        except asyncio.CancelledError:
            await _end(deposed, audit)
            raise
        self.counts.is_leading = False
        self._term = None
        await _end(audit)
        _LOGGER.warning("%s is the auditor no more", self._marks.owner)


async def _end(*tasks: asyncio.Task[None]) -> None:
    """End tasks and wait for that; a defect in one of them is not kept quiet."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


class _Term:
    """One time of leading: knows only what it has seen itself."""

    def __init__(self, auditor: Auditor) -> None:
        self._counts = auditor.counts
        self._ledgers = auditor._ledgers
        self._store = auditor._ledgers.store
        self._pool = auditor._pool
        self._marks = auditor._marks
        self._settings = auditor._settings
        self._wall_ms = auditor._wall_ms
        records = AuditRecords(self._store, self._ledgers.root)
        self._audits = LookRecorder(records, "audit", self._marks.owner, self._wall_ms)
        self._all_checks = LookRecorder(records, "check", self._marks.owner, self._wall_ms)
        self._hints = Hints()
        self._checks = Hints()
        self._bookies = LostBookies()
        self._serving: frozenset[str] | None = None
        self._cookies: list[str] = []
        self._draining: list[str] = []
        self._named: frozenset[str] = frozenset()
        self._audited_s: float | None = None
        self._check_at_s: float | None = None
        # Lost and drained bookies whose ledgers are all marked; bookies that are back, and whose ledgers are to be
        # checked.
        self._told: dict[str, None] = {}
        self._back: dict[str, None] = {}

    def look_now(self) -> None:
        self._audited_s = None
        self._hints.wake()

    async def run(self) -> None:
        """Audit until cancelled; an error ends a round, not the term."""
        await asyncio.gather(
            self._repeat(self._round, self._hints, self._audits),
            self._repeat(self._check_round, self._checks, self._all_checks),
        )

    async def _repeat(self, work: Callable[[], Awaitable[float]], hints: Hints, recorder: LookRecorder) -> None:
        while True:
            try:
                wait_s = await work() if await self._marks.is_enabled(hints) else self._settings.watch_s
            except LedgerError as error:
                _LOGGER.warning("the audit is put off: %s", error)
                hints.forget_all()
                wait_s = self._settings.retry_s_min
                with contextlib.suppress(LedgerError):  # Often the metadata store is what is away.
                    await recorder.put_off(str(error))
            await hints.wait(wait_s)

    async def _round(self) -> float:
        """Look at the bookies and mark what is due; return when to look again."""
        now_s = asyncio.get_running_loop().time()
        is_wanted = await self._audits.is_wanted(self._hints)
        await self._look(now_s)
        delay_s = await self._marks.recovery_delay_s(self._settings.lost_bookie_delay_s)
        lost = self._bookies.lost(now_s, delay_s)
        self._counts.lost = tuple(lost)
        leaving = sorted({*lost, *self._draining})
        before, self._counts.standing_count = self._counts.standing_count, len(await self._marks.marked())
        if before and not self._counts.standing_count:
            self._doubt_the_last_audit()
        is_audit_due = self._audited_s is None or now_s - self._audited_s >= self._settings.audit_s
        if is_audit_due or is_wanted or any(bookie_id not in self._told for bookie_id in leaving):
            await self._audit(leaving)
            self._audited_s = now_s
            return 0.0  # Ledgers may name bookies that nobody knew.
        next_loss_s = self._bookies.next_loss_s(asyncio.get_running_loop().time(), delay_s)
        return min(self._settings.watch_s, self._settings.watch_s if next_loss_s is None else next_loss_s + 0.001)

    async def _check_round(self) -> float:
        """Check what is due; return when to look again. Apart from the rounds, for it may take hours."""
        now_s = asyncio.get_running_loop().time()
        if self._back:
            await self._check(list(self._back))
        is_wanted = await self._all_checks.is_wanted(self._checks)
        if is_wanted or await self._is_check_due(now_s):
            await self._check(None)
            await self._marks.set_checked_ms(self._wall_ms())
            self._check_at_s = now_s + self._settings.check_s
        return self._settings.watch_s

    async def _look(self, now_s: float) -> None:
        """See who is registered now, and leave watches."""
        root = self._ledgers.root
        registered = await self._ledgers.writable_bookies(watch=self._hints.on(paths.available_path(root)))
        registered += await self._ledgers.read_only_bookies(watch=self._hints.on(paths.read_only_path(root)))
        self._tell_membership(registered)
        try:
            self._cookies = await self._store.children(paths.cookie_path(root))
        except NoNodeError:
            self._cookies = []
        before, self._draining = self._draining, await self._marks.draining(self._hints)
        for bookie_id in before:
            if bookie_id not in self._draining:  # A later order is news again.
                self._told.pop(bookie_id, None)
        for bookie_id in self._bookies.observe([*self._cookies, *self._named], registered, now_s):
            self._told.pop(bookie_id, None)
            self._back[bookie_id] = None
            self._checks.wake()
            self._doubt_the_last_audit()

    def _doubt_the_last_audit(self) -> None:
        """Audit again soon if the last audit found entries that lack copies: they may have them now."""
        if self._counts.short_count or self._counts.unreadable_count:
            self._audited_s = None

    def _tell_membership(self, registered: Sequence[str]) -> None:
        """Say who came and who went since the last look."""
        before, self._serving = self._serving, frozenset(registered)
        if before is None:
            _LOGGER.info("%d bookies serve: %s", len(registered), ", ".join(registered) or "none")
            return
        for bookie_id in sorted(self._serving - before):
            _LOGGER.info("bookie %s serves now", bookie_id)
        for bookie_id in sorted(before - self._serving):
            _LOGGER.info("bookie %s serves no more", bookie_id)

    # -- ledgers of bookies that leave ----------------------------------------------------------------------

    async def _audit(self, leaving: Sequence[str]) -> None:
        """Mark every ledger that names a bookie that leaves, and learn whom ledgers name."""
        named: dict[str, None] = {}
        before = self._counts.marked_count
        serving = self._serving or frozenset()
        seen: list[LackingCopies] = []
        drained = tuple(self._draining)
        lost = tuple(one for one in leaving if one not in drained)
        await self._audits.begin(lost=lost, drained=drained)

        async def visit(ledger_id: int, metadata: LedgerMetadata) -> None:
            lack = lacking_copies(ledger_id, metadata, serving)
            if lack is not None:
                seen.append(lack)
            bookies = named_bookies(metadata)
            named.update(dict.fromkeys(bookies))
            missing = [bookie_id for bookie_id in bookies if bookie_id in leaving]
            if missing:
                await self._mark(ledger_id, missing)

        ledger_count, unread_count = await self._visit_ledgers(visit, self._audits)
        self._note_audit(ledger_count, seen)
        await self._audits.end(
            [one.ledger_id for one in seen],
            unread_count=unread_count,
            short_count=self._counts.short_count,
            unreadable_count=self._counts.unreadable_count,
            marked_count=self._counts.marked_count - before,
        )
        self._named = frozenset(named)
        self._bookies.forget({*self._cookies, *named})
        news = [bookie_id for bookie_id in leaving if bookie_id not in self._told]
        self._told.update(dict.fromkeys(news))
        if news:
            marked_count = self._counts.marked_count - before
            names = ", ".join(f"{one} (drained)" if one in self._draining else one for one in news)
            _LOGGER.warning("lost: %s; %d ledgers that name it are newly marked", names, marked_count)

    def _note_audit(self, ledger_count: int, seen: Sequence[LackingCopies]) -> None:
        counts = self._counts
        counts.ledger_count, counts.audited_ms = ledger_count, self._wall_ms()
        counts.short_count = sum(one.is_short for one in seen)
        counts.unreadable_count = sum(one.is_unreadable for one in seen)

    async def _mark(self, ledger_id: int, bookie_ids: Collection[str]) -> bool:
        is_news = await self._marks.mark(ledger_id, bookie_ids, self._wall_ms())
        self._counts.marked_count += is_news
        return is_news

    async def _visit_ledgers(
        self, visit: Callable[[int, LedgerMetadata], Awaitable[None]], recorder: LookRecorder | None = None
    ) -> tuple[int, int]:
        """Show all ledgers that can be read, ascending; one that cannot is named in the log and passed over.

        Returns how many were shown, and how many could not be read.
        """
        await self._store.sync(self._ledgers.root)
        ids = await self._ledgers.list()
        shown_count = unread_count = 0
        step = self._settings.metadata_reads
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            found = await asyncio.gather(*[self._read(ledger_id) for ledger_id in part])
            for ledger_id, (metadata, is_damaged) in zip(part, found, strict=True):
                unread_count += is_damaged
                if metadata is not None:
                    shown_count += 1
                    await visit(ledger_id, metadata)
            if recorder is not None:
                await recorder.step(start + len(part), len(ids))
        return shown_count, unread_count

    async def _read(self, ledger_id: int) -> tuple[LedgerMetadata | None, bool]:
        """Return a ledger's metadata, None if it is gone or damaged; and whether it is damaged."""
        try:
            return await read_patiently(self._ledgers, ledger_id), False
        except CorruptMetadataError as error:
            _LOGGER.error("the audit passes over a ledger: %s", error)
            return None, True

    # -- what bookies hold ---------------------------------------------------------------------------------

    async def _is_check_due(self, now_s: float) -> bool:
        if self._settings.check_s <= 0:
            return False
        if self._check_at_s is None:
            checked_ms = await self._marks.checked_ms()
            passed_s = self._settings.check_s
            if checked_ms is not None:
                passed_s = max(0.0, (self._wall_ms() - checked_ms) / _MS_PER_S)
            self._check_at_s = now_s + max(0.0, self._settings.check_s - passed_s)
        return now_s >= self._check_at_s

    async def _check(self, only: Sequence[str] | None) -> None:
        """Check what bookies hold of all ledgers, and have what is lacking copied; `only` those bookies, or all."""
        registered = [*await self._ledgers.writable_bookies(), *await self._ledgers.read_only_bookies()]
        before = self._counts.marked_count
        check = CopiesCheck(self._ledgers, self._pool, self._settings, only)
        found: list[int] = []
        recorder = self._all_checks if only is None else None
        if recorder is not None:
            await recorder.begin()

        async def visit(ledger_id: int, metadata: LedgerMetadata) -> None:
            lacking = await check.lacking(ledger_id, metadata, registered)
            if lacking:
                _LOGGER.warning("ledger %d lacks copies on %s", ledger_id, ", ".join(lacking))
                found.append(ledger_id)
                await self._mark(ledger_id, lacking)

        _, unread_count = await self._visit_ledgers(visit, recorder)
        found += await check.fill_open_ends(registered)
        if recorder is not None:
            await recorder.end(
                sorted(frozenset(found)),
                unread_count=unread_count,
                marked_count=self._counts.marked_count - before,
                silent=tuple(sorted(check.silent)),
                covers_open=True,
            )
        for bookie_id in only or ():
            self._back.pop(bookie_id, None)
