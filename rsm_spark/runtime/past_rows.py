"""Rows of a table as they were, for watches that begin before what the machine remembers of old rows.

    opening    the nearest snapshot here or in the lake, else the beginning of the log; then the log up to the watch
    open       each change of the watch's range takes what its row was, and leaves what it is
    closed     the machine remembers from there on, or the watch has ended

So many pasts are open at once, and so few are opened at a time, that others are served beside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import entry_hash, root_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import (
    ConnectionLostError,
    CorruptSnapshotError,
    ForkedLogError,
    MissingLogError,
    RsmError,
)
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.runtime.change_feed import ChangeFeed, FeedEntry
from rsm_spark.runtime.change_filter import ChangeFilter, TableChange
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.range_rows import OldRow, RangeRows
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

OPEN_MAX = 8
"""Pasts that are open at once on a replica."""
_OPENING_MAX = 2
_PART_BYTES = 256 * 1024
"""Of the log, that is folded in one go."""
_REST_S = 0.0005
"""After each part: the thread that folds leaves the interpreter to the event loop."""
_WAIT_S = 1.0
_WAITS_MAX = 30

Result = TypeVar("Result")


class _TrimmedMeanwhileError(RsmError):
    """The log was trimmed beyond the snapshot with which reading began; never leaves this module."""


def reachable_snapshots(
    known: Iterable[tuple[SnapshotStore, SnapshotManifest]], chain: LogChain, revision: int
) -> list[tuple[SnapshotStore, SnapshotManifest]]:
    """Return the snapshots at or before a revision from which the log leads there, newest first."""
    found: list[tuple[SnapshotStore, SnapshotManifest]] = []
    for store, manifest in known:
        is_of_log = manifest.log_id == chain.log_id
        # At the very revision nothing has to be read from the log.
        reaches = manifest.revision == revision or manifest.entry_id < 0 or chain.has(manifest.ledger_id)
        if is_of_log and manifest.revision <= revision and reaches:
            found.append((store, manifest))
    return sorted(found, key=lambda one: -one[1].revision)


def _parts(entries: Sequence[LogEntry]) -> Iterator[list[LogEntry]]:
    """Yield entries in parts of some bytes, one entry at least."""
    part: list[LogEntry] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += len(entry.payload)
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


class PastRows:
    """Opens pasts of one replica.

    Args:
        context: Of the replica: its snapshots, those in the lake, and its log.
        folder: For their files.
        open_max: Pasts that are open at once.

    Attributes:
        open_count: Pasts that are open now.
        opened_count: Since the process began.

    """

    def __init__(self, context: ReplicaContext, folder: Path, *, open_max: int = OPEN_MAX) -> None:
        self._context = context
        self._folder = folder
        self._open_max = open_max
        self._turns = asyncio.Semaphore(_OPENING_MAX)
        self._of: dict[str, int] = {}
        self._freed = asyncio.Event()
        self.open_count = 0
        self.opened_count = 0

    @classmethod
    def of(cls, feed: ChangeFeed, folder: Path) -> PastRows:
        """Return those of the replica that a feed is of."""
        return cls(feed.context, folder)

    async def open(self, *chosen: ChangeFilter, revision: int, owner: str = "", waits: bool = False) -> RangeRows:
        """Return the rows of a range as they were at a revision; to be closed. Within a command: as before it.

        Args:
            chosen: The range, in each table of which rows are wanted.
            revision: One that has come.
            owner: Whose watch it is: one may have half of the pasts.
            waits: For its turn, where too many are open.

        Raises:
            MissingLogError: Nothing that is left leads there; its `last_revision` + 1 is the first that can be told of.
            InvalidCommandError: The rows have no room.
            ConnectionLostError: Too many are open, or the log does not tell its end.
            LedgerError, MetadataError, LogError: The log cannot be read, or is damaged.

        """
        while (held := self._of.get(owner, 0)) >= max(1, self._open_max // 2) or self.open_count >= self._open_max:
            if not waits:
                raise ConnectionLostError(
                    f"{self.open_count} watches read old values from before what this replica remembers, {held} of "
                    "them of the same caller: use another replica, or come again later"
                )
            await self._freed.wait()
        self.open_count += 1
        self._of[owner] = held + 1
        rows: RangeRows | None = None
        try:
            async with self._turns:
                rows = await self._context.run_blocking(lambda: RangeRows(self._folder, *chosen))
                assert rows is not None
                await self._fill(rows, revision)
        except BaseException:
            self.close(rows, owner)
            raise
        self.opened_count += 1
        return rows

    def close(self, rows: RangeRows | None, owner: str = "") -> None:
        """Close a past of an owner."""
        self.open_count -= 1
        self._of[owner] -= 1
        if not self._of[owner]:
            del self._of[owner]
        if rows is not None:
            rows.close()
        self._freed.set()
        self._freed = asyncio.Event()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return the result of work on rows, which blocks and so is done elsewhere."""
        done: Result = await self._context.run_blocking(work)
        return done

    async def move(self, rows: RangeRows, changes: Sequence[TableChange], start: int) -> tuple[dict[int, OldRow], int]:
        """Fold changes; see `RangeRows.move`."""
        return await self.run(lambda: rows.move(changes, start))

    async def _fill(self, rows: RangeRows, revision: int) -> None:
        while True:
            try:
                await self._fill_by(rows, revision)
            except _TrimmedMeanwhileError:
                # What the log begins with now may be reached from another snapshot; each time it begins later.
                await self._context.run_blocking(rows.clear)
            else:
                return

    async def _fill_by(self, rows: RangeRows, revision: int) -> None:
        context = self._context
        chain, _ = await context.chains.read()
        stores: list[SnapshotStore] = [context.snapshots, *([context.lake] if context.lake is not None else [])]
        known: list[tuple[SnapshotStore, SnapshotManifest]] = []
        for store in stores:
            known += [(store, manifest) for manifest in await context.run_blocking(store.manifests)]
        for store, manifest in reachable_snapshots(known, chain, revision):
            if not await self._load(rows, store, manifest):
                continue
            place = LogPosition(manifest.ledger_id, manifest.entry_id) if manifest.entry_id >= 0 else None
            await self._replay(rows, place, manifest.revision, bytes.fromhex(manifest.prefix_hash), revision)
            return
        if not chain.is_whole:
            raise self._missing([manifest for _, manifest in known], chain, revision)
        await self._replay(rows, None, 0, root_hash(chain.ancestry.root), revision)

    async def _load(self, rows: RangeRows, store: SnapshotStore, manifest: SnapshotManifest) -> bool:
        """Load a snapshot; False = it is damaged, or gone meanwhile."""
        try:
            await self._context.run_blocking(lambda: rows.load(store.read(manifest)))
        except CorruptSnapshotError:
            await self._context.run_blocking(rows.clear)
            return False
        return True

    async def _replay(
        self, rows: RangeRows, place: LogPosition | None, at: int, prefix_hash: bytes, wanted: int
    ) -> None:
        """Read the log up to a revision."""
        context, waits = self._context, 0
        reader = LogReader(
            context.client,
            context.chains,
            password=context.settings.ledger_password,
            keys=context.settings.log_keys,
            position=place,
            revision=at,
            poll_s=context.settings.poll_s,
        )
        try:
            while at < wanted:
                try:
                    entries = await reader.read()
                except MissingLogError as error:
                    raise _TrimmedMeanwhileError(str(error)) from error
                for part in _parts(entries):
                    prefix_hash, at = await self._fold(rows, part, prefix_hash, at, wanted)
                    await asyncio.sleep(_REST_S)
                    if at >= wanted:
                        return
                if not entries and not reader.ledgers_ahead:
                    waits += 1
                    if waits > _WAITS_MAX:
                        raise ConnectionLostError(f"log {context.log}: this replica cannot read revision {wanted} yet")
                    await reader.wait(_WAIT_S)
        finally:
            await reader.close()

    async def _fold(
        self, rows: RangeRows, entries: Sequence[LogEntry], prefix_hash: bytes, at: int, wanted: int
    ) -> tuple[bytes, int]:
        """Check and fold entries, up to a revision; return the prefix hash and the revision behind them.

        All of it is done beside the event loop: hashes of some MiB would hold it up.
        """

        def fold() -> tuple[bytes, int]:
            hashed, last = prefix_hash, at
            needed: list[FeedEntry] = []
            for entry in entries:
                if last >= wanted:
                    break
                hashed = self._continued(entry, hashed, last)
                last = max(last, entry.envelope.last_revision)
                if entry.envelope.record_count:
                    needed.append(FeedEntry(entry.payload, entry.envelope))
            rows.fold(needed, wanted)
            return hashed, last

        folded: tuple[bytes, int] = await self._context.run_blocking(fold)
        return folded

    def _continued(self, entry: LogEntry, prefix_hash: bytes, at: int) -> bytes:
        if entry.envelope.prefix_hash != prefix_hash:
            raise ForkedLogError(
                f"log {self._context.log}: the entry of revision {entry.envelope.first_revision} does not continue "
                f"revision {at}: the snapshot is of another history"
            )
        return entry_hash(entry.payload)

    def _missing(self, manifests: list[SnapshotManifest], chain: LogChain, revision: int) -> MissingLogError:
        later = [one.revision for one in manifests if one.log_id == chain.log_id and one.revision > revision]
        first = min(later, default=0) + 1
        known = f"the first whose old value can be told here is {first}" if later else "there is none at all"
        return MissingLogError(
            f"log {self._context.log}: the old value of revision {revision + 1} cannot be told: this replica does not "
            "remember it, the beginning of the log was trimmed, and no snapshot here or in the lake is at or before "
            f"it and reaches what is left of the log; {known}",
            first_revision=revision + 1,
            last_revision=first - 1 if later else revision + 1,
        )
