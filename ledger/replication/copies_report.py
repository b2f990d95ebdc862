"""Report of the copies that a cluster lacks, counted from the metadata of all ledgers and the bookies that serve."""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.errors import NoNodeError
from ledger.replication.core.lacking_copies import LackingCopies, lacking_copies
from ledger.replication.election import AuditorElection
from ledger.replication.marks import MarkStore
from ledger.replication.metadata_reading import read_each
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore

_MARKS_READ_MAX: Final = 1_000


class CopiesReport(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one cluster's ledgers at one moment.

    Attributes:
        writable: Bookies that take adds.
        read_only: Bookies that serve and take none.
        missing: Bookies with a cookie (they served once) that do not serve now.
        ledger_count: Ledgers.
        lacking: Those that lack copies, ascending.
        unread: Ledgers whose metadata cannot be read, ascending.
        auditor: Who audits; None = nobody does, so that nobody repairs.
        is_enabled: Auto-recovery is not switched off for the cluster.
        checked_ms: When all copies were last checked, Unix time; None = never.
        marked: Ledgers that an auditor has found to lack copies, ascending.
        since_ms: When the oldest mark was made or last added to; None = there is none.
        worked_on: Who copies which ledger now.

    """

    writable: tuple[str, ...]
    read_only: tuple[str, ...]
    missing: tuple[str, ...]
    ledger_count: int
    lacking: tuple[LackingCopies, ...]
    unread: tuple[int, ...]
    auditor: str | None
    is_enabled: bool
    checked_ms: int | None
    marked: tuple[int, ...]
    since_ms: int | None
    worked_on: dict[int, str]

    @property
    def entry_count(self) -> int:
        """Entries known to lack a copy."""
        return sum(one.entry_count for one in self.lacking)

    @property
    def unreadable_count(self) -> int:
        """Ledgers of which nobody who serves has some entries."""
        return sum(one.is_unreadable for one in self.lacking)

    @property
    def is_whole(self) -> bool:
        """Nothing is known to be lacking."""
        return not (self.lacking or self.marked or self.unread)


async def report_copies(ledgers: LedgerStore, *, is_thorough: bool = True) -> CopiesReport:
    """Count.

    Args:
        ledgers: Metadata of the cluster.
        is_thorough: Look at every ledger; if not, only where a bookie is missing, a ledger is marked, or nobody
            audits: else the auditor would have marked what lacks copies.

    Raises:
        LedgerError: There is no cluster, or the metadata store does not answer.

    """
    await ledgers.store.sync(ledgers.root)
    writable = await ledgers.writable_bookies()
    read_only = await ledgers.read_only_bookies()
    serving = frozenset({*writable, *read_only})
    try:
        cookies = await ledgers.store.children(paths.cookie_path(ledgers.root))
    except NoNodeError:
        cookies = []
    missing = tuple(bookie_id for bookie_id in cookies if bookie_id not in serving)
    marks = MarkStore(ledgers.store, ledgers.root, "")
    marked = await marks.marked()
    auditor = await AuditorElection(marks).leader()
    ids = sorted(await ledgers.list())
    is_needed = is_thorough or bool(missing or marked) or auditor is None
    lacking, unread = await _look(ledgers, ids, serving) if is_needed else ([], [])
    return CopiesReport(
        writable=tuple(writable),
        read_only=tuple(read_only),
        missing=missing,
        ledger_count=len(ids),
        lacking=tuple(lacking),
        unread=tuple(unread),
        auditor=auditor,
        is_enabled=await marks.is_enabled(),
        checked_ms=await marks.checked_ms(),
        marked=tuple(marked),
        since_ms=await _since_ms(marks, marked),
        worked_on=await _worked_on(marks),
    )


async def _look(ledgers: LedgerStore, ids: list[int], serving: frozenset[str]) -> tuple[list[LackingCopies], list[int]]:
    """Return what lacks copies, and which ledgers cannot be read."""
    lacking: list[LackingCopies] = []
    unread: list[int] = []
    async for ledger_id, metadata in read_each(ledgers, ids):
        if metadata is None:
            unread.append(ledger_id)
            continue
        lack = lacking_copies(ledger_id, metadata, serving)
        if lack is not None:
            lacking.append(lack)
    return lacking, unread


async def _since_ms(marks: MarkStore, marked: list[int]) -> int | None:
    since: int | None = None
    for ledger_id in marked[:_MARKS_READ_MAX]:
        found = await marks.read(ledger_id)
        if found is not None and found[0].created_ms is not None:
            since = found[0].created_ms if since is None else min(since, found[0].created_ms)
    return since


async def _worked_on(marks: MarkStore) -> dict[int, str]:
    owners: dict[int, str] = {}
    for ledger_id in await marks.locked():
        owner = await marks.owner_of(ledger_id)
        if owner is not None:
            owners[ledger_id] = owner
    return owners
