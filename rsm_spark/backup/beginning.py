"""Begins a log with a snapshot alone, where the metadata of the log that it is of were lost.

The new log's chain names its origin: which log, up to which revision, with which hash. Its first ledger, closed, holds
two entries: one without records, which continues the hash of the snapshot and is the place that the snapshot has in the
new log, and one with the description of the machine and the checkpoint of the snapshot, so that whoever takes the
snapshot in finds in the log that it is right. The chain is created last.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError, NoSuchLedgerError
from rsm_spark.backup.left_entries import LeftEntries, left_entries
from rsm_spark.backup.manifest import BackupError, CorruptBackupError
from rsm_spark.backup.put_snapshot import remove_from_lake, to_its_end
from rsm_spark.backup.restore_mark import RestoreMark, is_withdrawn
from rsm_spark.backup.restoring import TRIMMED_LEDGER, check_new_lake
from rsm_spark.backup.state_choice import StateRequest, choose_state
from rsm_spark.core.admission import password_mark
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, LogOrigin
from rsm_spark.core.envelope import Envelope, encode_envelope, entry_hash
from rsm_spark.core.machine import encode_description
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import KernelRecord, Record, encode_records
from rsm_spark.core.seal import KEYED_LEVEL
from rsm_spark.errors import CorruptSnapshotError, LogExistsError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore
from rsm_spark.snapshots.pace import no_pace


class LossReport(msgspec.Struct, frozen=True):
    """Report of what a snapshot holds of a log, and what is lost with a log that begins with it.

    Attributes:
        snapshot: Read back; its rows are what it says.
        is_chained: The metadata store still has the log.
        left: Entries that can still be read.
        is_proven: Entries that can still be read say that the state is right.
        lost: In words, a line each.

    """

    snapshot: SnapshotManifest
    is_chained: bool
    left: LeftEntries
    is_proven: bool
    lost: tuple[str, ...]


class BegunLog(msgspec.Struct, frozen=True):
    """Log that has begun.

    Attributes:
        log, log_id: Which.
        origin_id: Log id of its origin.
        snapshot_revision: Of the state that it begins with.
        revision: Its last record.
        key_id: Of its key; "" = it has none.

    """

    log: str
    log_id: str
    origin_id: str
    snapshot_revision: int
    revision: int
    key_id: str


class _FirstLedger(NamedTuple):
    """First ledger of the new log, closed; the snapshot's place in it, and the hash up to there."""

    place: LogPosition
    prefix_hash: str
    end: ClosedEnd


class StateRestore:
    """One beginning of a log with a snapshot.

    Args:
        client: Connected ledger client.
        target: What is to become of it.

    """

    def __init__(self, client: LedgerClient, target: StateRequest) -> None:
        self._client = client
        self._target = target
        self._log_id = secrets.token_hex(16)
        self._handle: WriteHandle | None = None

    async def look(self) -> LossReport:
        """Find the snapshot and say what is lost; nothing is changed.

        Raises:
            BackupError: There is no such snapshot; the log, or one of the new name, is there; a key is lacking.
            CorruptBackupError: The snapshots contradict each other, or the newest one is damaged.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked.

        """
        target = self._target
        found = await asyncio.to_thread(_holding, target)
        snapshot = choose_state(target, *found)
        is_chained = await self._check_names(snapshot)
        self._check_key(snapshot)
        await asyncio.to_thread(_read_through, target.source, snapshot)
        left = await left_entries(self._client, snapshot, target.keys)
        return LossReport(snapshot, is_chained, left, left.is_vouched, _lost(snapshot, left, is_chained=is_chained))

    async def begin(self, report: LossReport) -> BegunLog:
        """Begin the log with what was found.

        Raises:
            BackupError: Nothing says that the state of a log with a key is right.
            LogError: There is a log of this name now.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked; nothing was begun.

        """
        target, snapshot = self._target, report.snapshot
        self._check_proof(report)
        key_id = "" if target.keys is None else target.keys.newest.key_id
        epoch = snapshot.leader_epoch + 1
        mark = RestoreMark(self._client.store, target.rsm_root, target.name, self._log_id, target.by)
        await mark.set()
        try:
            first = await self._write_ledger(snapshot, epoch, key_id)
            now_ms = time.time_ns() // 1_000_000
            origin = LogOrigin(
                target.log, snapshot.log_id, snapshot.revision, snapshot.prefix_hash, now_ms, target.by,
                f"snapshot in {target.shown}",
            )  # fmt: skip
            chain = LogChain(
                self._log_id,
                first_ledger_id=TRIMMED_LEDGER,
                leader_epoch=epoch,
                ledgers=(ChainLedger(first.place.ledger_id, now_ms, epoch, snapshot.revision + 1, first.end, key_id),),
                format_level=KEYED_LEVEL if key_id else 1,
                password_mark=await asyncio.to_thread(password_mark, target.password, self._log_id),
                origins=(origin,),
                key_id=key_id,
            )
            wanted = self._installed(snapshot, first, epoch)
            await to_its_end(lambda: _put(target, wanted, snapshot))
            await mark.create_chain(chain)
        except BaseException as error:
            await asyncio.shield(self._forget(mark, error))
            raise
        return BegunLog(target.name, self._log_id, snapshot.log_id, snapshot.revision, first.end.last_revision, key_id)

    # ---- what is refused

    async def _check_names(self, snapshot: SnapshotManifest) -> bool:
        """Return whether the log of the snapshot is still there, which the new one then has another name than."""
        target = self._target
        known = await self._log_id_of(target.log)
        if known == snapshot.log_id and target.name == target.log:
            raise LogExistsError(
                f"log {target.log}: it is still there, with id {known}: start a replica of it. To begin another log "
                "with this state, name it (--as NEW)"
            )
        taken = known if target.name == target.log else await self._log_id_of(target.name)
        if taken:
            raise LogExistsError(
                f"log {target.name}: there is one already, with id {taken}, and it is not that of the snapshot, "
                f"{snapshot.log_id}: restore as another name (--as NEW), or delete it (rsm log delete {target.name})"
            )
        if target.lake is not None:
            check_new_lake(target.name, await asyncio.to_thread(target.lake.manifests))
        return known == snapshot.log_id

    async def _log_id_of(self, log: str) -> str:
        with contextlib.suppress(NoSuchLogError):
            chain, _ = await ChainStore(self._client.store, log, self._target.rsm_root).read()
            return chain.log_id
        return ""

    def _check_key(self, snapshot: SnapshotManifest) -> None:
        target = self._target
        if snapshot.sealed and target.keys is None:
            raise BackupError(
                f"{target.shown}: the log of the snapshot has a key: give the key file (--log-key FILE), which is kept "
                "where other secrets are"
            )
        if target.keys is not None and not snapshot.sealed:
            raise CorruptBackupError(
                f"{target.shown}: a key was given, but the entry that the snapshot ends with had no seal: somebody has "
                "changed the snapshot, or the log had no key yet; then leave --log-key out"
            )

    def _check_proof(self, report: LossReport) -> None:
        target, snapshot = self._target, report.snapshot
        if not snapshot.sealed or report.is_proven:
            return
        if target.is_open_place:
            raise BackupError(
                f"{target.shown}: no sealed checkpoint that can be read names the snapshot of revision "
                f"{snapshot.revision}: whoever may write to the lake could have changed it. Begin with the folder of a "
                "replica, or restore a backup"
            )
        if not target.is_unproven_accepted:
            raise BackupError(
                f"{target.shown}: no sealed checkpoint that can be read names the snapshot of revision "
                f"{snapshot.revision}. If nobody else could write to that folder, say --accept-unproven"
            )

    # ---- what is made

    async def _write_ledger(self, snapshot: SnapshotManifest, epoch: int, key_id: str) -> _FirstLedger:
        target = self._target
        password = target.password
        if key_id:
            assert target.keys is not None, "whose id is this else"
            password = target.keys.password(key_id, self._log_id)
        described = (encode_description(snapshot.machine),)
        checkpoint = (snapshot.revision, bytes.fromhex(snapshot.digest), snapshot.row_count)
        records = [
            Record(KernelRecord.MACHINE_DESCRIBED, None, described),
            Record(KernelRecord.CHECKPOINT_LOGGED, None, checkpoint),
        ]
        first, after = self._entry(snapshot, epoch, key_id, bytes.fromhex(snapshot.prefix_hash), [])
        second, last = self._entry(snapshot, epoch, key_id, after, records)
        ensemble_size, write_quorum, ack_quorum = target.quorum
        handle = await self._client.create(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            custom=custom_metadata(target.name, self._log_id, epoch, -1, key_id),
        )
        self._handle = handle
        await asyncio.gather(handle.append(first), handle.append(second))
        last_entry_id = await handle.close()
        revision = snapshot.revision + len(records)
        end = ClosedEnd(last_entry_id, revision, snapshot.logged_ms, len(first) + len(second), last.hex())
        return _FirstLedger(LogPosition(handle.ledger_id, 0), after.hex(), end)

    def _entry(
        self, snapshot: SnapshotManifest, epoch: int, key_id: str, before: bytes, records: Sequence[Record]
    ) -> tuple[bytes, bytes]:
        """Return an entry right behind the snapshot, and the prefix hash after it."""
        log_id = bytes.fromhex(self._log_id)
        envelope = Envelope(
            log_id, epoch, snapshot.revision + 1, snapshot.revision, snapshot.logged_ms, len(records), before,
            bytes.fromhex(key_id),
        )  # fmt: skip
        payload = bytearray(encode_envelope(envelope, encode_records(records)))
        if key_id:
            assert self._target.keys is not None, "whose id is this else"
            key = self._target.keys.entry_key(envelope.key_id, log_id)
            assert key is not None, "its id came from the ring"
            after = key.finish(payload, 0)
            return bytes(payload), after
        return bytes(payload), entry_hash(bytes(payload))

    def _installed(self, snapshot: SnapshotManifest, first: _FirstLedger, epoch: int) -> SnapshotManifest:
        """Return the snapshot as the new log calls it."""
        return msgspec.structs.replace(
            snapshot,
            log_name=self._target.name,
            log_id=self._log_id,
            ledger_id=first.place.ledger_id,
            entry_id=first.place.entry_id,
            prefix_hash=first.prefix_hash,
            leader_epoch=epoch,
            written_by="rsm snapshot restore",
            files=(),
        )

    async def _forget(self, mark: RestoreMark, why: BaseException) -> None:
        """Delete the ledger of a log that does not come to be; what cannot be is swept later."""
        if not await is_withdrawn(mark, self._target.name, why):
            return
        await remove_from_lake(self._target.lake, self._log_id)
        with contextlib.suppress(LedgerError):
            if self._handle is not None:
                self._handle.abandon()
                with contextlib.suppress(NoSuchLedgerError):
                    await self._client.delete(self._handle.ledger_id)
            await mark.clear()


def _holding(target: StateRequest) -> tuple[list[SnapshotManifest], list[str]]:
    held = target.source.manifests()
    places = [one.place.rpartition("/")[2] for one in target.source.damaged()]
    # Old versions of a lake lose their files in time, and are then found damaged.
    return held, [] if target.is_open_place else sorted(places)


def _read_through(source: SnapshotStore, snapshot: SnapshotManifest) -> None:
    try:
        for _ in source.read(snapshot):
            pass
    except CorruptSnapshotError as error:
        raise CorruptBackupError(f"snapshot of revision {snapshot.revision}: {error}: cut or changed") from error


def _put(target: StateRequest, wanted: SnapshotManifest, snapshot: SnapshotManifest) -> None:
    if target.snapshots is not None:
        target.snapshots.write(wanted, target.source.read(snapshot))
    if target.lake is None:
        return
    # By way of a disk: one Delta table cannot be read while another one is written from it.
    with tempfile.TemporaryDirectory(prefix="rsm-begin-") as folder:
        store = LocalSnapshots(Path(folder), pace=lambda: no_pace)
        copied = store.write(wanted, target.source.read(snapshot))
        target.lake.write(wanted, store.read(copied))


def _lost(snapshot: SnapshotManifest, left: LeftEntries, *, is_chained: bool) -> tuple[str, ...]:
    revision = snapshot.revision
    lines = [f"all that was logged after revision {revision}, also what clients were told is done"]
    if is_chained:
        still = "the log itself still has it, and rsm log fork takes it along"
        lines = [f"all that was logged after revision {revision}: {still}"]
    elif left.last_revision > revision:
        lines.append(
            f"revisions {revision + 1} to {left.last_revision} can still be read, in {len(left.ledger_ids)} ledgers "
            "that say they are of the log and that no chain names; they are not taken over: rsm ledger read shows them"
        )
    elif left.ledger_ids:
        lines.append(f"{len(left.ledger_ids)} ledgers still say that they are of the log: nothing after it was found")
    else:
        lines.append("the metadata store knows no ledger of the log: what bookies have of it cannot be found")
    if left.error:
        lines.append(f"not everything could be looked at: {left.error}")
    lines.append(f"the history up to revision {revision}: past states, and proofs of single entries")
    lines.append("commands of clients that are sent once more: what was logged later is applied a second time")
    return tuple(lines)
