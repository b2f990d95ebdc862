"""Makes a new log of a backup: its entries byte for byte in ledgers of their own, its origin named in its chain.

Nothing of the log is seen before all that it takes from the backup is found right: the chain is created last. What was
written is deleted if it comes to nothing; what a process that is killed leaves is swept by the next backup or restore.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.backup.content_files import content_chunks
from rsm_spark.backup.copied_ledgers import STEP_BYTES, CopiedLedgers
from rsm_spark.backup.history import BackupHistory
from rsm_spark.backup.made_contents import MadeContents, in_thread
from rsm_spark.backup.manifest import BackupError, BackupManifest, CorruptBackupError, origins_at
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.plan import RestorePlan, is_believed, plan_restore
from rsm_spark.backup.put_snapshot import remove_from_lake, to_its_end
from rsm_spark.backup.restore_mark import RestoreMark, is_withdrawn
from rsm_spark.backup.verifying import copied_snapshot, install_snapshot, lacking_keys
from rsm_spark.core.admission import check_level, password_mark
from rsm_spark.core.chain import LogChain, LogOrigin
from rsm_spark.core.seal import KeyRing
from rsm_spark.errors import LogExistsError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.log.contents import note_places
from rsm_spark.log.deletion import contents_path, delete_tree
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import LakeStore, SnapshotManifest

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
    lake: LakeStore | None = None
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
        contents: Contents beside the log that were written, or are shared.

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
    contents: int


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
        self._contents: MadeContents | None = None
        self._known = {one.ledger_id: one for one in manifest.ledgers}
        self._copies = CopiedLedgers(
            client,
            target.name,
            self._log_id,
            keys=target.keys,
            password=target.password,
            quorum=target.quorum,
            wanted={one.prefix_hash for one in manifest.snapshots},
        )

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
        mark = RestoreMark(self._client.store, target.rsm_root, target.name, self._log_id, target.by)
        await mark.set()
        try:
            history = BackupHistory(self._place, manifest, keys=target.keys)
            await self._write_entries(history, plan)
            last = self._ended().envelope
            chain = self._chain()
            self._check_sealed(chain)
            history.check_contents()
            await self._write_contents(chain)
            snapshot = self._choose_snapshot(history, plan, chain)
            if snapshot is not None:
                await to_its_end(lambda: self._put_snapshot(snapshot))
            await mark.create_chain(chain)
        except BaseException as error:
            await asyncio.shield(self._undo(mark, error))
            raise
        return RestoreOutcome(
            target.name,
            self._log_id,
            last.last_revision,
            self._copies.prefix_hash,
            last.logged_ms,
            self._copies.entries,
            self._copies.bytes,
            len(self._copies.ledgers),
            0 if snapshot is None else snapshot.revision,
            tuple(sorted({one.key_id for one in self._copies.ledgers} - {""})),
            0 if self._contents is None else len(self._contents.places),
        )

    async def _undo(self, mark: RestoreMark, why: BaseException) -> None:
        """Delete what was written, once it is certain that no chain names it; what cannot be is swept later."""
        if not await is_withdrawn(mark, self._target.name, why):
            return
        await remove_from_lake(self._target.lake, self._log_id)
        is_gone = self._contents is None or await self._contents.forget()
        if await self._copies.forget() and is_gone:
            await delete_tree(self._client.store, contents_path(self._log_id, self._target.rsm_root))
            await mark.clear()

    async def _check(self, chains: ChainStore, plan: RestorePlan) -> None:
        target, folder = self._target, self._manifest.folder
        check_level(self._manifest.chain, f"{folder} of the backup")
        with contextlib.suppress(NoSuchLogError):
            chain, _ = await chains.read()
            raise LogExistsError(
                f"log {target.name}: there is one already, with id {chain.log_id}: restore as another name (--as)"
            )
        if target.lake is not None:
            check_new_lake(target.name, await asyncio.to_thread(target.lake.manifests))
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
        entries, copies = history.entries(plan.segments), self._copies
        is_past_end = False
        while step := await asyncio.to_thread(_step, entries):
            wanted = []
            for entry in step:
                is_past_end = is_past_end or self._is_late(entry)
                if not is_past_end:  # What is behind is read all the same: the hash of the file is known at its end.
                    wanted.append((entry, self._known[entry.position.ledger_id]))
            await copies.write(wanted)
            if self._progress is not None and copies.last is not None:
                self._progress(copies.last.envelope.last_revision, copies.bytes)
        await copies.end()

    def _is_late(self, entry: LogEntry) -> bool:
        target, envelope = self._target, entry.envelope
        if target.revision is not None and envelope.last_revision > target.revision:
            return True
        return target.time_ms is not None and envelope.logged_ms > target.time_ms

    # ---- contents

    async def _write_contents(self, chain: LogChain) -> None:
        """Write the contents that the last state names, and note where they lie."""
        manifest, target, last = self._manifest, self._target, self._ended().envelope.last_revision
        if not manifest.contents:
            return
        wanted = [one for one in manifest.contents if one.is_named_at(last)]
        lost = next((one for one in wanted if not one.is_kept), None)
        if lost is not None:
            raise BackupError(
                f"backup {manifest.folder}: revision {last} of the log names content {lost.number} beside it, which "
                f"was gone or could not be read when the backup was made: choose revision {lost.freed} or a later one"
            )
        password = target.password
        if chain.key_id:
            assert target.keys is not None, "checked before"
            password = target.keys.password(chain.key_id, self._log_id)
        self._contents = made = MadeContents(
            self._client, target.name, self._log_id, password=password, quorum=target.quorum
        )
        for one in wanted:
            async with aclosing(in_thread(content_chunks(self._place, manifest, one))) as chunks:
                await made.write(one, chunks)
            if self._progress is not None:
                self._progress(last, self._copies.bytes + made.bytes)
        await note_places(self._client.store, self._log_id, made.places, target.rsm_root)

    # ---- chain and snapshot

    def _ended(self) -> LogEntry:
        """Return the last entry of the new log."""
        if self._copies.last is None:
            raise BackupError(
                f"backup {self._manifest.folder}: no entry ends by then: the first one holds revisions from "
                f"{self._manifest.first_revision} on"
            )
        return self._copies.last

    def _chain(self) -> LogChain:
        manifest, target = self._manifest, self._target
        revision = self._ended().envelope.last_revision
        source = f"backup {self._place.shown}/{manifest.folder}/backups/{manifest.name}"
        made_ms = time.time_ns() // 1_000_000
        end = LogOrigin(manifest.log, manifest.log_id, revision, self._copies.prefix_hash, made_ms, target.by, source)
        return LogChain(
            self._log_id,
            first_ledger_id=self._copies.ledgers[0].ledger_id if manifest.first_revision == 1 else TRIMMED_LEDGER,
            leader_epoch=max(one.leader_epoch for one in self._copies.ledgers),
            ledgers=tuple(self._copies.ledgers),
            format_level=manifest.chain.format_level,
            password_mark=password_mark(target.password, self._log_id),
            origins=origins_at(manifest.chain.origins, end),
            key_id=self._copies.ledgers[-1].key_id,
        )

    def _choose_snapshot(self, history: BackupHistory, plan: RestorePlan, chain: LogChain) -> SnapshotManifest | None:
        """Return the newest snapshot that the new log reaches, where one is wanted."""
        target = self._target
        if target.snapshots is None and target.lake is None:
            return None
        for snapshot in plan.snapshots:
            if snapshot.prefix_hash not in self._copies.places:
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
        target, place = self._target, self._copies.places[snapshot.prefix_hash]
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


def check_new_lake(log: str, held: Sequence[SnapshotManifest]) -> None:
    """Refuse a lake that knows a log of the name that is to be made.

    Raises:
        BackupError: It holds snapshots of one.

    """
    if held:
        raise BackupError(f"log {log}: the lake holds snapshots of a log of this name")


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
        if size >= STEP_BYTES or len(found) >= _STEP_ENTRIES:
            break
    return found
