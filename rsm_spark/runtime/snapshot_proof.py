"""Proof of a snapshot: one from elsewhere is believed only if a log with a key says that it is right.

A manifest proves nothing: whoever writes a lake's folder, or answers as a replica, can change rows, and then the digest
and the count that the manifest names. But the leader logs a checkpoint right behind the entry at which it takes a
snapshot, and the entry with the checkpoint is sealed. So of a log with a key are read, from the place that the manifest
names: the entry that the snapshot ends with, and the one after it, which must be the checkpoint of these very rows.
Where both are from before the log had a key, the entries after them are read up to the first sealed one: it vouches, by
the hash, for all before it.

Snapshots that this replica wrote itself, or took in after such a proof, lie on its own disk and are not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from ledger.errors import LedgerError
from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import entry_hash
from rsm_spark.core.kernel_tables import peek_checkpoint
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import RsmError
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.snapshots.manifest import SnapshotManifest

_ENTRIES_MAX = 16
_PATIENCE_S = 30.0


async def unproven(context: ReplicaContext, chain: LogChain, manifest: SnapshotManifest) -> str:
    """Return why a snapshot from elsewhere is not to be believed; "" = the log says that it is right, or has no key.

    Args:
        context: Of the replica.
        chain: Of the log.
        manifest: Of the snapshot. That its rows are what it says is found where they are read.

    """
    settings = context.settings

    def _reader(position: LogPosition) -> LogReader:
        return LogReader(
            context.client,
            context.chains,
            password=settings.ledger_password,
            keys=settings.log_keys,
            position=position,
            poll_s=settings.poll_s,
            entries_max=_ENTRIES_MAX,
        )

    return await unproven_by(_reader, chain, manifest, settings.retry_s)


async def unproven_by(
    reader: Callable[[LogPosition], LogReader], chain: LogChain, manifest: SnapshotManifest, retry_s: float
) -> str:
    """Return why a snapshot is not to be believed, as `unproven`.

    Args:
        reader: Makes a reader of the log that begins behind a position.
        chain: Of the log.
        manifest: Of the snapshot.
        retry_s: Pause before the log is asked again.

    """
    if not chain.key_id:
        return ""
    if manifest.entry_id < 0:
        return "it names no entry of the log, which has a key: nothing says that it is right"
    due_s = asyncio.get_running_loop().time() + _PATIENCE_S
    while True:
        try:
            place = LogPosition(manifest.ledger_id, manifest.entry_id)
            return await _judge(reader(LogPosition(place.ledger_id, place.entry_id - 1)), place, chain, manifest)
        except LedgerError as error:
            if asyncio.get_running_loop().time() >= due_s:
                return f"the log cannot be asked whether it is right: {error}"
        except RsmError as error:
            return f"the log does not say that it is right: {error}"
        await asyncio.sleep(retry_s)


async def _judge(reader: LogReader, place: LogPosition, chain: LogChain, manifest: SnapshotManifest) -> str:
    entries = _read_on(reader)
    try:
        last = await anext(entries, None)
        if last is None:
            return "the log does not hold the entry that it ends with"
        wrong = _end(last, _present(place, reader.chain or chain), chain, manifest)
        if wrong:
            return wrong
        after = await anext(entries, None)
        wrong = "the log has no confirmed entry behind it yet" if after is None else _checkpoint(after, manifest)
        while not wrong and after is not None and not after.envelope.key_id:
            before = after
            after = await anext(entries, None)
            wrong = _link(before, after)
        return wrong
    finally:
        await entries.aclose()
        await reader.close()


async def _read_on(reader: LogReader) -> AsyncGenerator[LogEntry]:
    """Yield the committed entries from here on, as far as there are any at present."""
    while entries := await reader.read():
        for entry in entries:
            yield entry


def _present(place: LogPosition, chain: LogChain) -> LogPosition:
    return LogPosition(chain.moved.get(place.ledger_id, place.ledger_id), place.entry_id)


def _end(entry: LogEntry, place: LogPosition, chain: LogChain, manifest: SnapshotManifest) -> str:
    """Return in what the entry that a snapshot ends with is not what its manifest says, or ""."""
    envelope = entry.envelope
    found = (entry.position, _hash_after(entry).hex(), envelope.log_id.hex(), envelope.last_revision,
             envelope.leader_epoch, envelope.logged_ms, bool(envelope.key_id))  # fmt: skip
    log_id = chain.ancestry.at(envelope.first_revision).hex() if manifest.log_id == chain.log_id else manifest.log_id
    said = (place, manifest.prefix_hash, log_id, manifest.revision,
            manifest.leader_epoch, manifest.logged_ms, manifest.sealed)  # fmt: skip
    names = ("place", "prefix hash", "log", "revision", "epoch", "logged time", "seal")
    wrong = [name for name, is_, should in zip(names, said, found, strict=True) if is_ != should]
    return f"its manifest has another {' and '.join(wrong)} than the entry that it ends with" if wrong else ""


def _checkpoint(entry: LogEntry, manifest: SnapshotManifest) -> str:
    """Return why the entry behind a snapshot does not say that it is right, or ""."""
    if entry.envelope.prefix_hash.hex() != manifest.prefix_hash:
        return "the entry behind it does not continue it"
    checkpoint = peek_checkpoint(entry.payload)
    if checkpoint is None:
        return "the log has a key, and holds no checkpoint of its revision: nothing says that it is right"
    difference = checkpoint_difference(
        manifest, checkpoint.digest.hex(), checkpoint.row_count, checkpoint.prefix_hash.hex()
    )
    return f"it {difference}" if difference else ""


def _link(before: LogEntry, after: LogEntry | None) -> str:
    if after is None:
        return "the log has a key, and no sealed entry behind it yet: nothing says that it is right"
    if after.envelope.prefix_hash != _hash_after(before):
        return "the entries behind it do not continue each other"
    return ""


def _hash_after(entry: LogEntry) -> bytes:
    return entry.prefix_hash or entry_hash(entry.payload)


def checkpoint_difference(manifest: SnapshotManifest, digest: str, row_count: int, prefix_hash: str) -> str:
    """Return in what a manifest differs from a logged checkpoint of its revision, or ""."""
    for what, is_, should in (
        ("digest", manifest.digest, digest),
        ("row count", manifest.row_count, row_count),
        ("prefix hash", manifest.prefix_hash, prefix_hash),
    ):
        if is_ != should:
            return f"has the {what} {is_}, the checkpoint that the log holds for it says {should}"
    return ""
