"""Makes a new log of a backup: its entries byte for byte in ledgers of their own, its origin named in its chain.

Nothing of the log is seen before all that it takes from the backup is found right: the chain is created last. What was
written is deleted if it comes to nothing; a process that is killed leaves ledgers that no log names.
"""

# Longer than 400 lines: one restore decides what it writes, what its chain says, and what goes if it fails.

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError, NotEnoughBookiesError
from rsm_spark.backup.history import BackupHistory
from rsm_spark.backup.manifest import BackupError, BackupLedger, BackupManifest, CorruptBackupError, origins_at
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.plan import RestorePlan, is_believed, plan_restore
from rsm_spark.backup.verifying import copied_snapshot, install_snapshot, lacking_keys
from rsm_spark.core.admission import password_mark
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, LogOrigin
from rsm_spark.core.envelope import entry_hash
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.core.position import LogPosition
from rsm_spark.core.seal import KeyRing
from rsm_spark.errors import NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

_STEP_BYTES = 4 << 20
_STEP_ENTRIES = 256
TRIMMED_LEDGER = (1 << 63) - 1
"""Stands for the first ledger of a log whose beginning the backup lacks: no ledger has this id."""


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request to make a log of a backup.

    Attributes:
        name: Of the new log.
        rsm_root: Root of the logs.
        revision, time_ms: Where it ends; None = with the backup.
        keys: Of the log, if it has any.
        password: Of the ledgers that have no key.
        quorum: Ensemble, write quorum, ack quorum of its ledgers.
        snapshots: Of a replica's folder that a snapshot is put into; None = none.
        lake: Snapshots of the new log in a lake; None = none.
        by: Who restores.

    """

    name: str
    rsm_root: str
    revision: int | None = None
    time_ms: int | None = None
    keys: KeyRing | None = None
    password: bytes = b""
    quorum: tuple[int, int, int] = (2, 2, 2)
    snapshots: LocalSnapshots | None = None
    lake: SnapshotStore | None = None
    by: str = ""


class RestoreOutcome(msgspec.Struct, frozen=True):
    """Outcome of a restore.

    Attributes:
        log, log_id: The new log.
        revision: Its last record, the end of an entry.
        prefix_hash: Hash up to there, hex.
        logged_ms: Logged time of that entry.
        entries, bytes, ledgers: What was written.
        snapshot_revision: Of the snapshot that was put into the folder or lake; 0 = none.
        key_ids: Keys that its replicas need.

    """

    log: str
    log_id: str
    revision: int
    prefix_hash: str
    logged_ms: int
    entries: int
    bytes: int
    ledgers: int
    snapshot_revision: int
    key_ids: tuple[str, ...]


class LogRestore:
    """One restore.

    Args:
        client: Connected ledger client.
        place: Where the backup lies.
        manifest: Of the backup.
        target: What is to become of it.
        progress: Told now and then: revision, bytes written.

    """

    def __init__(
        self,
        client: LedgerClient,
        place: BackupPlace,
        manifest: BackupManifest,
        target: RestoreRequest,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._client = client
        self._place = place
        self._manifest = manifest
        self._target = target
        self._progress = progress
        self._log_id = secrets.token_hex(16)
        self._known = {one.ledger_id: one for one in manifest.ledgers}
        self._hashes = {one.prefix_hash for one in manifest.snapshots}
        self._places: dict[str, LogPosition] = {}  # By prefix hash: where the entry lies in the new log.
        self._ledgers: list[ChainLedger] = []
        self._created: list[int] = []
        self._handle: WriteHandle | None = None
        self._source = -1  # Ledger that the entries being written came from.
        self._first_revision = 0
        self._last: LogEntry | None = None
        self._hash = ""
        self._entries = self._bytes = 0
        self._written: asyncio.Future[int] | None = None

    async def make(self) -> RestoreOutcome:
        """Write the log; its chain is created last.

        Raises:
            CorruptBackupError: The backup is not what it must be.
            BackupError: It does not hold what is wanted; there is a log of this name; a key is lacking.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked.

        """
        manifest, target = self._manifest, self._target
        chains = ChainStore(self._client.store, target.name, target.rsm_root)
        plan = plan_restore(manifest, target.revision, target.time_ms)
        await self._check(chains, plan)
        try:
            history = BackupHistory(self._place, manifest, keys=target.keys)
            await self._write_entries(history, plan)
            await self._end_ledger()
            last = self._ended().envelope
            chain = self._chain()
            self._check_sealed(chain)
            snapshot = self._choose_snapshot(history, plan, chain)
            if snapshot is not None:
                await asyncio.to_thread(self._put_snapshot, snapshot)
            await chains.create(chain)
        except BaseException:
            await asyncio.shield(self._forget())
            raise
        return RestoreOutcome(
            target.name,
            self._log_id,
            last.last_revision,
            self._hash,
            last.logged_ms,
            self._entries,
            self._bytes,
            len(self._ledgers),
            0 if snapshot is None else snapshot.revision,
            tuple(sorted({one.key_id for one in self._ledgers} - {""})),
        )

    async def _check(self, chains: ChainStore, plan: RestorePlan) -> None:
        target, folder = self._target, self._manifest.folder
        with contextlib.suppress(NoSuchLogError):
            chain, _ = await chains.read()
            raise BackupError(
                f"log {target.name}: there is one already, with id {chain.log_id}: restore as another name (--as)"
            )
        if target.lake is not None:
            held: list[SnapshotManifest] = await asyncio.to_thread(target.lake.manifests)
            if held:
                raise BackupError(f"log {target.name}: the lake holds snapshots of a log of this name")
        lacking = lacking_keys(self._manifest, target.keys)
        if lacking:
            raise BackupError(
                f"backup {folder}: the log's entries are sealed with key {', '.join(lacking)}: give the key file that "
                "holds it (--log-key FILE). A backup has no keys; they are kept where other secrets are"
            )
        if not plan.is_whole and target.snapshots is None and target.lake is None:
            raise BackupError(
                f"backup {folder}: it begins with revision {self._manifest.first_revision}, so that replicas need a "
                "snapshot to begin with: name the folder of the first replica (--data-dir), or a lake (--lake)"
            )

    def _check_sealed(self, chain: LogChain) -> None:
        """Refuse a history without a key where one was given: somebody may have written it anew."""
        target = self._target
        is_all = target.revision is None and target.time_ms is None
        if target.keys is not None and not chain.key_id and (is_all or not self._manifest.key_ids):
            raise CorruptBackupError(
                f"backup {self._manifest.folder}: a key was given, but the last entry has no seal: somebody has "
                "changed the backup, or the log had no key yet; then leave --log-key out"
            )

    # ---- entries

    async def _write_entries(self, history: BackupHistory, plan: RestorePlan) -> None:
        entries = history.entries(plan.segments)
        is_past_end = False
        waiting: list[LogEntry] = []  # Without records: they belong to the log only if one with records follows.
        while step := await asyncio.to_thread(_step, entries):
            for entry in step:
                is_past_end = is_past_end or self._is_late(entry)
                if is_past_end:
                    continue  # Read all the same: the hash of the file is known at its end.
                waiting.append(entry)
                if entry.envelope.record_count:
                    for one in waiting:
                        await self._write(one)
                    waiting.clear()
            if self._handle is not None:
                await self._handle.drain()
            if self._progress is not None and self._last is not None:
                self._progress(self._last.envelope.last_revision, self._bytes)

    def _is_late(self, entry: LogEntry) -> bool:
        target, envelope = self._target, entry.envelope
        if target.revision is not None and envelope.last_revision > target.revision:
            return True
        return target.time_ms is not None and envelope.logged_ms > target.time_ms

    async def _write(self, entry: LogEntry) -> None:
        if entry.position.ledger_id != self._source:
            await self._end_ledger()
            self._source = entry.position.ledger_id
            self._first_revision = entry.envelope.first_revision
            self._handle = await self._create(self._known[self._source])
            self._ledger_entries = self._ledger_bytes = 0
        assert self._handle is not None
        self._written = self._handle.append(entry.payload)
        self._written.add_done_callback(_look_at)
        self._hash = self._after(entry)
        if self._hash in self._hashes:
            self._places[self._hash] = LogPosition(self._handle.ledger_id, self._ledger_entries)
        self._ledger_entries += 1
        self._ledger_bytes += len(entry.payload)
        self._entries += 1
        self._bytes += len(entry.payload)
        self._last = entry
        if self._handle.in_flight_bytes > _STEP_BYTES:
            await self._handle.drain()

    @staticmethod
    def _after(entry: LogEntry) -> str:
        return (entry.prefix_hash or entry_hash(entry.payload)).hex()

    async def _create(self, source: BackupLedger) -> WriteHandle:
        """Create a ledger on as many bookies as there are, at least the ack quorum."""
        target = self._target
        password = target.password
        if source.key_id:
            assert target.keys is not None, "checked before"
            password = target.keys.password(source.key_id, self._log_id)
        previous = self._ledgers[-1].ledger_id if self._ledgers else -1
        custom = custom_metadata(target.name, self._log_id, source.leader_epoch, previous, source.key_id)
        ensemble_size, write_quorum, ack_quorum = target.quorum
        while True:
            try:
                handle = await self._client.create(
                    ensemble_size=ensemble_size,
                    write_quorum=min(write_quorum, ensemble_size),
                    ack_quorum=ack_quorum,
                    password=password,
                    custom=custom,
                )
            except NotEnoughBookiesError:
                if ensemble_size <= ack_quorum:
                    raise
                ensemble_size -= 1
            else:
                self._created.append(handle.ledger_id)
                return handle

    async def _end_ledger(self) -> None:
        """Close the ledger being written, and note it for the chain."""
        handle, last = self._handle, self._last
        if handle is None:
            return
        assert last is not None, "a ledger is created for an entry"
        assert self._written is not None, "likewise"
        await self._written
        last_entry_id = await handle.close()
        self._handle = None
        end = ClosedEnd(
            last_entry_id,
            last.envelope.last_revision,
            last.envelope.logged_ms,
            handle.metadata.length,
            self._hash,
        )
        source = self._known[self._source]
        now_ms = time.time_ns() // 1_000_000
        self._ledgers.append(
            ChainLedger(handle.ledger_id, now_ms, source.leader_epoch, self._first_revision, end, source.key_id)
        )

    # ---- chain and snapshot

    def _ended(self) -> LogEntry:
        """Return the last entry of the new log."""
        if self._last is None:
            raise BackupError(
                f"backup {self._manifest.folder}: no entry ends by then: the first one holds revisions from "
                f"{self._manifest.first_revision} on"
            )
        return self._last

    def _chain(self) -> LogChain:
        manifest, target = self._manifest, self._target
        revision = self._ended().envelope.last_revision
        source = f"backup {self._place.shown}/{manifest.folder}/backups/{manifest.name}"
        made_ms = time.time_ns() // 1_000_000
        end = LogOrigin(manifest.log, manifest.log_id, revision, self._hash, made_ms, target.by, source)
        return LogChain(
            self._log_id,
            first_ledger_id=self._ledgers[0].ledger_id if manifest.first_revision == 1 else TRIMMED_LEDGER,
            leader_epoch=max(one.leader_epoch for one in self._ledgers),
            ledgers=tuple(self._ledgers),
            format_level=manifest.chain.format_level,
            password_mark=password_mark(target.password, self._log_id),
            origins=origins_at(manifest, end),
            key_id=self._ledgers[-1].key_id,
        )

    def _choose_snapshot(self, history: BackupHistory, plan: RestorePlan, chain: LogChain) -> SnapshotManifest | None:
        """Return the newest snapshot that the new log reaches, where one is wanted."""
        target = self._target
        if target.snapshots is None and target.lake is None:
            return None
        for snapshot in plan.snapshots:
            if snapshot.prefix_hash not in self._places:
                continue
            checkpoint = history.check_snapshot(snapshot).checkpoint
            is_in_log = snapshot.revision < self._ended().envelope.last_revision
            if is_believed(
                has_key=bool(chain.key_id),
                is_named=checkpoint is not None,
                is_named_in_log=is_in_log,
                is_for_lake=target.lake is not None,
            ):
                return snapshot
        if plan.is_whole:
            return None
        last = self._ended().envelope.last_revision
        raise BackupError(
            f"backup {self._manifest.folder}: it has no snapshot at or below revision {last} "
            "that the log says is right, and does not begin with the first record: choose a later revision"
        )

    def _put_snapshot(self, snapshot: SnapshotManifest) -> None:
        """Put a snapshot where the replicas of the new log find it."""
        target, place = self._target, self._places[snapshot.prefix_hash]
        wanted = msgspec.structs.replace(
            snapshot,
            log_name=target.name,
            log_id=self._log_id,
            ledger_id=place.ledger_id,
            entry_id=place.entry_id,
            written_by="rsm backup restore",
        )
        if target.snapshots is not None:
            install_snapshot(self._place, self._manifest, snapshot, target.snapshots, wanted)
        if target.lake is not None:
            with copied_snapshot(self._place, self._manifest, snapshot) as (store, whole):
                target.lake.write(msgspec.structs.replace(wanted, files=()), store.read(whole))

    async def _forget(self) -> None:
        """Delete what was written for a log that does not come to be."""
        if self._handle is not None:
            self._handle.abandon()
        for ledger_id in self._created:
            with contextlib.suppress(LedgerError):
                await self._client.delete(ledger_id)


def check_new_folder(folder: Path) -> None:
    """Refuse a folder for snapshots that a replica uses already.

    Raises:
        BackupError: It holds something.

    """
    if folder.exists() and any(folder.iterdir()):
        raise BackupError(f"--data-dir {folder}: it is not empty: a restored log begins in a folder of its own")


def _step(entries: Iterator[LogEntry]) -> list[LogEntry]:
    """Return the next entries, some megabytes at most; blocks."""
    found: list[LogEntry] = []
    size = 0
    for entry in entries:
        found.append(entry)
        size += len(entry.payload)
        if size >= _STEP_BYTES or len(found) >= _STEP_ENTRIES:
            break
    return found


def _look_at(written: asyncio.Future[int]) -> None:
    if not written.cancelled():
        written.exception()  # The last one of the ledger is waited for.
