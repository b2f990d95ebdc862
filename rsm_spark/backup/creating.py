"""Makes a backup of a log while it is served: what is new is read as any follower reads it, and kept."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.backup.catalog import find_backups, home_of, keep_backup
from rsm_spark.backup.content_files import ContentCopies
from rsm_spark.backup.manifest import (
    BACKUP_FORMAT,
    CONTENTS_FORMAT,
    BackupContent,
    BackupError,
    BackupLedger,
    BackupManifest,
    BackupSegment,
    segment_path,
    snapshot_path,
)
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.plan import BackupPlan, is_reached, kept_snapshots, plan_backup
from rsm_spark.backup.running import RunningBackup
from rsm_spark.backup.segments import EntryFileWriter
from rsm_spark.core.admission import check_level
from rsm_spark.core.chain import LogChain
from rsm_spark.core.contents import CONTENTS_TABLE, KnownContents, content_of_row
from rsm_spark.core.envelope import body_of, decode_envelope, entry_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import decode_records
from rsm_spark.core.seal import KeyRing
from rsm_spark.errors import CorruptLogError, ForkedLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.log.contents import has_contents, read_places
from rsm_spark.log.former_names import former_names
from rsm_spark.snapshots.checks import snapshot_name
from rsm_spark.snapshots.local import table_rows
from rsm_spark.snapshots.manifest import SnapshotManifest

_SEGMENT_BYTES = 64 << 20
_ENTRIES_MAX = 64
_SNAPSHOTS_KEPT = 3
_PATIENCE_S = 5.0
_POLL_S = 0.5


class SnapshotAccess(Protocol):
    """Access to the snapshots that a backup can take."""

    async def manifests(self) -> list[SnapshotManifest]:
        """Return the whole snapshots of the log that can be had now."""
        ...

    async def copy(self, manifest: SnapshotManifest, folder: Path) -> tuple[SnapshotManifest, Path]:
        """Copy one into a folder, read back; return its manifest with its files, and where they lie."""
        ...


class BackupOutcome(msgspec.Struct, frozen=True):
    """Outcome of a backup.

    Attributes:
        manifest: The backup that there is now.
        new_entries, new_bytes: Copied by this one; 0 entries = there was nothing new.
        new_snapshot: Revision of the snapshot that was copied; 0 = none.
        swept: Files that were removed, which backups that were killed had left.
        new_contents: Contents beside the log that were copied.

    """

    manifest: BackupManifest
    new_entries: int
    new_bytes: int
    new_snapshot: int
    swept: int = 0
    new_contents: int = 0


class _Tail(NamedTuple):
    """Place where the log ended when the backup began.

    Attributes:
        ledger_ids: Of the chain then.
        position: Last entry of it that a reader may see.
        revision: Last one that is certainly confirmed; an entry behind it may be.

    """

    ledger_ids: frozenset[int]
    position: LogPosition
    revision: int

    def is_reached(self, entry: LogEntry) -> bool:
        """Return whether an entry is that place, or behind it."""
        place = entry.position
        if place.ledger_id not in self.ledger_ids:
            return True
        return place.ledger_id == self.position.ledger_id and place.entry_id >= self.position.entry_id


class LogBackup:
    """One backup of one log.

    Args:
        client: Connected ledger client.
        log: Name of the log.
        rsm_root: Root of the logs.
        place: Where to.
        supply: Snapshots; None = none is taken.
        keys: Of the log: seals are checked while entries are read; None = they are copied as they are.
        rate: Bytes a second at most; 0 = no limit.
        by: Who makes it.
        progress: Told now and then how far it is: revision, bytes copied.

    """

    def __init__(
        self,
        client: LedgerClient,
        log: str,
        *,
        rsm_root: str,
        place: BackupPlace,
        supply: SnapshotAccess | None,
        keys: KeyRing | None = None,
        rate: int = 0,
        by: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._client = client
        self._log = log
        self._place = place
        self._supply = supply
        self._keys = keys
        self._rate = rate
        self._by = by
        self._progress = progress
        self._rsm_root = rsm_root
        self._chains = ChainStore(client.store, log, rsm_root)
        self._segments: list[BackupSegment] = []
        self._entries = self._bytes = 0
        self._hash = ""
        self._home = log  # Name below which its backups lie.
        self._folder = ""
        self._began_s = time.monotonic()
        self._tail = _Tail(frozenset(), LogPosition(-1, -1), 0)
        self._patience_s = _PATIENCE_S
        self._contents: KnownContents | None = None

    async def make(self) -> BackupOutcome:
        """Copy what is new, then write the manifest.

        Raises:
            BackupError: The place cannot be written; or the log's beginning has been trimmed, and there is no snapshot.
            DamagedContentError: A content beside the log is not what was written: the backup would lack it.
            FormatLevelError: The log may hold what this version does not know.
            ForkedLogError: The log is not the one that the backup before was made of.
            MissingLogError: It was trimmed meanwhile: begin again.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked.

        """
        made_ms = time.time_ns() // 1_000_000
        chain, _ = await self._chains.read()
        check_level(chain, self._log)
        async with RunningBackup(self._client.store, self._rsm_root, chain.log_id) as running:
            outcome = await self._make(chain, made_ms)
            swept = await running.sweep(self._place, self._home, chain.log_id)
        return msgspec.structs.replace(outcome, swept=swept)

    async def _make(self, chain: LogChain, made_ms: int) -> BackupOutcome:
        self._tail = await self._ask_tail(chain)
        names = await former_names(self._client.store, chain.log_id, self._rsm_root)
        self._home = await asyncio.to_thread(home_of, self._place, self._log, chain.log_id, names)
        found = await asyncio.to_thread(find_backups, self._place, self._home, chain.log_id)
        before = found.whole[0] if found.whole else None
        self._folder = f"{self._home}/{chain.log_id}"
        sizes = await asyncio.to_thread(self._place.sizes, self._folder)
        plan = plan_backup(chain, before, sizes)
        await self._look_for_contents(chain, () if before is None or plan.position is None else before.contents)
        self._segments, self._hash = list(plan.segments), plan.prefix_hash
        chain = await self._copy_entries(chain, plan)
        manifest = BackupManifest(
            self._home, chain.log_id, made_ms, self._by, chain, _joined(plan, chain), tuple(self._segments),
            tail_revision=self._tail.revision,
        )  # fmt: skip
        if manifest.last_revision < self._tail.revision:
            raise BackupError(
                f"log {self._log}: its entries could be copied up to revision {manifest.last_revision} only, it holds "
                f"revision {self._tail.revision}: no backup was made. Try again; rsm log verify {self._log} says "
                "whether an entry is wrong"
            )
        taken = await self._take_snapshot(manifest, plan)
        snapshots = kept_snapshots([*plan.snapshots, *([taken] if taken is not None else [])], _SNAPSHOTS_KEPT)
        manifest = msgspec.structs.replace(manifest, snapshots=snapshots)
        if manifest.first_revision > 1 and not snapshots:
            raise BackupError(
                f"log {self._log}: it begins with revision {manifest.first_revision} now, and no snapshot was found: "
                "nothing could be restored. Name the lake (--lake), a replica's folder (--data-dir), or start a replica"
            )
        manifest, copied = await self._keep_contents(manifest, chain, sizes)
        is_old = not self._entries and taken is None and not copied
        if before is not None and is_old and (plan.segments, manifest.contents) == (before.segments, before.contents):
            return BackupOutcome(before, 0, 0, 0)
        await asyncio.to_thread(keep_backup, self._place, manifest)
        taken_revision = 0 if taken is None else taken.revision
        return BackupOutcome(manifest, self._entries, self._bytes, taken_revision, new_contents=copied)

    async def _look_for_contents(self, chain: LogChain, known: tuple[BackupContent, ...]) -> None:
        """Have contents beside the log noted as its records pass; asked once it is known how far those go."""
        if known or await has_contents(self._client.store, chain.log_id, self._rsm_root):
            self._contents = KnownContents(known)

    async def _keep_contents(
        self, manifest: BackupManifest, chain: LogChain, sizes: dict[str, int]
    ) -> tuple[BackupManifest, int]:
        """Copy the contents that entries and snapshots name; return the manifest with them, and how many were new."""
        if self._contents is None:
            return manifest, 0
        moved = await read_places(self._client.store, chain.log_id, self._rsm_root)
        copies = ContentCopies(self._client, chain, moved, self._place, self._folder, self._hold_back)
        held: list[BackupContent] = []
        for _, known in sorted(self._contents.by_number.items()):
            one = BackupContent(known.number, known.content, known.named, known.freed)
            held.append(msgspec.structs.replace(one, is_kept=await copies.keep(known, sizes)))
            if self._progress is not None:
                self._progress(manifest.last_revision, self._bytes)
        form = CONTENTS_FORMAT if held else BACKUP_FORMAT
        return msgspec.structs.replace(manifest, contents=tuple(held), format=form), copies.copied

    async def _ask_tail(self, chain: LogChain) -> _Tail:
        """Ask the bookies, without the reader that copies, how far the log goes."""
        if not chain.ledgers:
            return _Tail(frozenset(), LogPosition(-1, -1), 0)
        ids, last = frozenset(ledger.ledger_id for ledger in chain.ledgers), chain.ledgers[-1]
        if last.closed is not None:
            return _Tail(ids, LogPosition(last.ledger_id, last.closed.last_entry_id), last.closed.last_revision)
        revision = last.first_revision - 1
        handle = await self._client.open_no_recovery(last.ledger_id, password=None)
        try:
            lac = await handle.read_lac()
            place = LogPosition(last.ledger_id, max(lac.last_add_confirmed, lac.explicit_lac))
            if lac.last_add_confirmed >= 0:
                (entry,) = await handle.read(lac.last_add_confirmed, lac.last_add_confirmed)
                # It does not vouch for itself.
                with contextlib.suppress(CorruptLogError):  # Whoever reads it, as the copy does, says what is wrong.
                    revision = max(revision, decode_envelope(entry.payload).confirmed_revision)
        finally:
            await handle.close()
        return _Tail(ids, place, revision)

    async def _copy_entries(self, chain: LogChain, plan: BackupPlan) -> LogChain:
        """Copy the entries behind the plan's place; return the chain as read last."""
        if not chain.ledgers:
            return chain
        reader = LogReader(
            self._client,
            self._chains,
            password=None,
            keys=self._keys,
            position=plan.position or LogPosition(chain.ledgers[0].ledger_id, -1),
            revision=plan.revision,
            entries_max=_ENTRIES_MAX,
        )
        try:
            is_more = True
            while is_more:
                is_more = await self._copy_segment(reader)
        finally:
            await reader.close()
        return reader.chain or chain

    async def _copy_segment(self, reader: LogReader) -> bool:
        """Copy entries into one file; return whether there are more behind them."""
        is_more = True
        with tempfile.NamedTemporaryFile(prefix="rsm-backup-") as draft:
            writer = EntryFileWriter(draft)
            while writer.bytes < _SEGMENT_BYTES:
                entries = await reader.read()
                for entry in entries:
                    self._follow(entry)
                    writer.add(entry)
                await self._hold_back(sum(len(entry.payload) for entry in entries))
                # What comes while it is copied is the next backup's: it would never end.
                if entries:
                    is_more = not self._tail.is_reached(entries[-1])
                elif reader.ledgers_ahead == 0:
                    is_more = await self._is_awaited(reader)
                if not is_more:
                    break
            if writer.has_records:
                segment = writer.finish()
                path = f"{self._folder}/{segment_path(segment)}"
                await asyncio.to_thread(self._place.copy_in, Path(draft.name), path)
                self._segments.append(segment)
                self._entries += segment.entries
                if self._progress is not None:
                    self._progress(segment.last_revision, self._bytes)
        return is_more

    async def _is_awaited(self, reader: LogReader) -> bool:
        """Wait for entries that the tail has and the reader does not see yet; return whether to look again."""
        if reader.revision >= self._tail.revision or self._patience_s <= 0:
            return False
        self._patience_s -= _POLL_S
        await reader.wait(_POLL_S)
        return True

    def _follow(self, entry: LogEntry) -> None:
        if self._hash and entry.envelope.prefix_hash.hex() != self._hash:
            raise ForkedLogError(
                f"log {self._log}: the entry of revision {entry.envelope.first_revision} does not continue what the "
                f"backup in {self._place.shown} holds: the log was changed, or the backup was. Take a new one into "
                "another place, then find out which"
            )
        self._hash = (entry.prefix_hash or entry_hash(entry.payload)).hex()
        if self._contents is not None:
            self._contents.fold(decode_records(body_of(entry.payload)), entry.envelope.first_revision)

    async def _hold_back(self, count: int) -> None:
        """Count what was copied; wait if that was more than the rate allows."""
        self._bytes += count
        if self._rate:
            due_s = self._began_s + self._bytes / self._rate
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _take_snapshot(self, manifest: BackupManifest, plan: BackupPlan) -> SnapshotManifest | None:
        """Copy the newest snapshot that the entries reach, unless it is there."""
        if self._supply is None or not manifest.segments:
            return None
        usable = [
            one
            for one in await self._supply.manifests()
            if one.log_id == manifest.log_id
            and not one.contradiction
            and manifest.first_revision <= one.revision
            and is_reached(one, manifest.segments[-1])
        ]
        newest = max(usable, key=lambda one: one.revision, default=None)
        if newest is None or any(snapshot_name(one) == snapshot_name(newest) for one in plan.snapshots):
            return None
        with tempfile.TemporaryDirectory(prefix="rsm-backup-") as folder:
            whole, files = await self._supply.copy(newest, Path(folder))
            for file in whole.files:
                path = f"{self._folder}/{snapshot_path(whole, file.name)}"
                await asyncio.to_thread(self._place.copy_in, files / file.name, path)
                await self._hold_back(file.bytes)
            if self._contents is not None and manifest.first_revision > 1:
                for row in await asyncio.to_thread(lambda: list(table_rows(files, whole, CONTENTS_TABLE))):
                    self._contents.add_row(*content_of_row(row), row.revision)
        return whole


def _joined(plan: BackupPlan, chain: LogChain) -> tuple[BackupLedger, ...]:
    known = {one.ledger_id: one for one in plan.ledgers}
    for one in chain.ledgers:
        known[one.ledger_id] = BackupLedger(one.ledger_id, one.leader_epoch, one.key_id)
    return tuple(known[ledger_id] for ledger_id in sorted(known))
