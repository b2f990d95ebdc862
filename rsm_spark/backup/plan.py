"""Decides what a backup copies, what a restore takes, what retention lets go: from manifests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rsm_spark.backup.manifest import (
    BackupError,
    BackupLedger,
    BackupManifest,
    BackupSegment,
    segment_path,
    snapshot_path,
)
from rsm_spark.core.chain import LogChain
from rsm_spark.core.position import LogPosition
from rsm_spark.snapshots.manifest import SnapshotManifest


class BackupPlan(msgspec.Struct, frozen=True):
    """Place from which a backup goes on.

    Attributes:
        segments: Of the backup before, taken over as they are.
        snapshots: Likewise.
        ledgers: Of the segments taken over, and of the chain.
        position: Last entry that is there already; None = none of this history: begin with the oldest of the log.
        revision: Last revision that is there already.
        prefix_hash: Hash after it, hex; "" = take what the first entry says.

    """

    segments: tuple[BackupSegment, ...]
    snapshots: tuple[SnapshotManifest, ...]
    ledgers: tuple[BackupLedger, ...]
    position: LogPosition | None
    revision: int
    prefix_hash: str


class RestorePlan(msgspec.Struct, frozen=True):
    """Part of a backup that a log is made of.

    Attributes:
        segments: To read, oldest first; the last one perhaps not to its end.
        snapshots: Those that the log still reaches, newest first.
        is_whole: The segments begin with the first record.

    """

    segments: tuple[BackupSegment, ...]
    snapshots: tuple[SnapshotManifest, ...]
    is_whole: bool


def plan_backup(chain: LogChain, before: BackupManifest | None, sizes: Mapping[str, int]) -> BackupPlan:
    """Decide what of an earlier backup stays, and where the copying goes on.

    Args:
        chain: Of the log, as it is now.
        before: The newest backup of this log; None = there is none.
        sizes: Of the files that are there, by path below the log's folder.

    """
    ledgers = tuple(BackupLedger(one.ledger_id, one.leader_epoch, one.key_id) for one in chain.ledgers)
    kept: list[BackupSegment] = []
    for segment in before.segments if before is not None else ():
        if sizes.get(segment_path(segment)) != segment.bytes:
            break  # What comes after a lost file is of no use without it.
        kept.append(segment)
    if before is None or not kept or not chain.has(kept[-1].ledger_id):
        first = chain.ledgers[0].first_revision if chain.ledgers else 1
        return BackupPlan((), (), ledgers, None, first - 1, "")
    last = kept[-1]
    known = {one.ledger_id: one for one in (*before.ledgers, *ledgers)}
    snapshots = tuple(
        one
        for one in before.snapshots
        if is_reached(one, last) and all(sizes.get(snapshot_path(one, file.name)) == file.bytes for file in one.files)
    )
    return BackupPlan(
        tuple(kept),
        snapshots,
        tuple(known[ledger_id] for ledger_id in sorted(known)),
        LogPosition(last.ledger_id, last.entry_id),
        last.last_revision,
        last.after,
    )


def is_reached(snapshot: SnapshotManifest, last: BackupSegment) -> bool:
    """Return whether the entry that a snapshot ends with is among those up to a segment's end.

    An entry without records has the revision of the one before it: those at the very end are not copied.
    """
    return snapshot.revision < last.last_revision or snapshot.prefix_hash == last.after


def is_believed(*, has_key: bool, is_named: bool, is_named_in_log: bool, is_for_lake: bool) -> bool:
    """Return whether a restore may use a snapshot whose hash is right.

    Args:
        has_key: The log has one. Without it anybody could have written all of the backup.
        is_named: A checkpoint of the backup names the digest of its rows: in a log with a key, a sealed one.
        is_named_in_log: So does one that the new log holds.
        is_for_lake: Replicas take it from the lake, and ask the log whether it is right; of their own folder they do
            not ask.

    """
    return not has_key or (is_named and (is_named_in_log or not is_for_lake))


def plan_restore(manifest: BackupManifest, revision: int | None, time_ms: int | None) -> RestorePlan:
    """Decide which files a restore reads.

    Args:
        manifest: Of the backup.
        revision: Last one wanted; None = all that is there.
        time_ms: Logged time, ms since 1970; what was logged later is left out. None = all.

    Raises:
        BackupError: The backup does not hold that.

    """
    place = f"backup {manifest.folder}/backups/{manifest.name}"
    if not manifest.segments:
        raise BackupError(f"{place}: the log was empty: there is nothing to restore. Begin a new log")
    if revision is not None and not manifest.first_revision <= revision <= manifest.last_revision:
        raise BackupError(
            f"{place}: it holds revisions {manifest.first_revision} to {manifest.last_revision}, asked for was "
            f"{revision}: rsm backup list shows which backup holds it"
        )
    wanted: list[BackupSegment] = []
    for segment in manifest.segments:
        if revision is not None and segment.first_revision > revision:
            break
        wanted.append(segment)
        if time_ms is not None and segment.last_ms > time_ms:
            break
    last = min(wanted[-1].last_revision, revision or wanted[-1].last_revision)
    usable = sorted((one for one in manifest.snapshots if one.revision <= last), key=lambda one: -one.revision)
    return RestorePlan(tuple(wanted), tuple(usable), manifest.first_revision == 1)


def kept_snapshots(snapshots: Sequence[SnapshotManifest], keep: int) -> tuple[SnapshotManifest, ...]:
    """Return the snapshots that the next backup names: the newest ones, and the oldest, from which all is reached."""
    ordered = sorted(snapshots, key=lambda one: one.revision)
    newest = ordered[-max(keep, 1) :]
    return tuple(newest if not ordered or ordered[0] in newest else [ordered[0], *newest])


def expired(manifests: Sequence[BackupManifest], keep: int) -> list[BackupManifest]:
    """Return the backups of a log beyond the newest `keep`."""
    newest = sorted(manifests, key=lambda one: (one.made_ms, one.last_revision), reverse=True)
    return newest[max(keep, 1) :]


def unused_files(gone: Sequence[BackupManifest], kept: Sequence[BackupManifest]) -> list[str]:
    """Return the files that only backups name that are let go."""
    still = {path for manifest in kept for path in manifest.files}
    return sorted({path for manifest in gone for path in manifest.files} - still)
