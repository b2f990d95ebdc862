"""Chooses the snapshot that a log begins with, and refuses places whose snapshots contradict each other."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rsm_spark.backup.manifest import BackupError, CorruptBackupError
from rsm_spark.backup.restoring import RestoreRequest
from rsm_spark.snapshots.checks import snapshot_name
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

_HEX = re.compile(r"([0-9a-f]{32} ){2}[0-9a-f]{64}")
_NUMBER_MAX = 1 << 62


class StateRequest(RestoreRequest, frozen=True, kw_only=True):
    """Request to begin a log with a snapshot.

    Attributes:
        log: Name of the log that it is of.
        source: Where snapshots of that log lie.
        shown: That place, for people.
        is_open_place: Others than a replica of the log may write there.
        log_id: Of the log that it is of; "" = there is only one.
        at_least: Revision that the snapshot must reach.
        is_unproven_accepted: Begin although no entry says that the state is right.

    """

    log: str
    source: SnapshotStore
    shown: str
    is_open_place: bool
    log_id: str = ""
    at_least: int = 0
    is_unproven_accepted: bool = False


def choose_state(target: StateRequest, held: Sequence[SnapshotManifest], damaged: Sequence[str]) -> SnapshotManifest:
    """Return the snapshot to begin with: the newest of the log, or that of the revision that was asked for.

    Args:
        target: What is asked for.
        held: Whole ones.
        damaged: Names of others, in a folder: they sort as those of whole ones do.

    Raises:
        BackupError: There is none.
        CorruptBackupError: A newer one is damaged; or they contradict each other.

    """
    usable = [one for one in held if one.log_name == target.log and not one.contradiction]
    for one in usable:
        _check_form(one, target.shown)
    ids = sorted({one.log_id for one in usable})
    if len(ids) > 1 and not target.log_id:
        raise CorruptBackupError(
            f"{target.shown}: it holds snapshots of {len(ids)} logs that were named {target.log}: {', '.join(ids)}: an "
            "older log in the place of a newer? Say which one by --log-id"
        )
    usable = sorted((one for one in usable if target.log_id in {"", one.log_id}), key=lambda one: one.revision)
    for before, after in itertools.pairwise(usable):
        is_same = before.revision == after.revision and before.prefix_hash == after.prefix_hash
        is_older = (after.leader_epoch, after.logged_ms) < (before.leader_epoch, before.logged_ms)
        if not is_same and (before.revision == after.revision or is_older or after.logged_ms < before.logged_ms):
            raise CorruptBackupError(
                f"{target.shown}: its snapshots of revisions {before.revision} and {after.revision} are not of one "
                "history: some of them were swapped or changed"
            )
    there = ", ".join(str(one.revision) for one in usable) or "none"
    chosen = next((one for one in reversed(usable) if target.revision in {None, one.revision}), None)
    if chosen is None:
        wanted = "" if target.revision is None else f" of revision {target.revision}"
        others = sorted({one.log_name for one in held} - {target.log})
        raise BackupError(
            f"{target.shown}: there is no whole snapshot{wanted} of log {target.log}. There are: {there}"
            f"{''.join(f'; of log {one}' for one in others)}{''.join(f'; damaged: {one}' for one in damaged)}"
        )
    newer = [one for one in damaged if one > snapshot_name(chosen)]
    if newer and target.revision is None:
        raise CorruptBackupError(
            f"{target.shown}: a newer snapshot is damaged: {newer[-1]}. The newest whole one is of revision "
            f"{chosen.revision}: to begin with that, say --revision {chosen.revision}"
        )
    if chosen.revision < target.at_least:
        raise BackupError(
            f"{target.shown}: the snapshot ends with revision {chosen.revision}, asked for was at least "
            f"{target.at_least}: an older state in the place of a newer? There are: {there}"
        )
    return chosen


def _check_form(one: SnapshotManifest, shown: str) -> None:
    numbers = (one.revision, one.leader_epoch, one.logged_ms, one.row_count)
    is_sound = _HEX.fullmatch(f"{one.log_id} {one.digest} {one.prefix_hash}") and one.revision > 0
    if not is_sound or not all(0 <= number < _NUMBER_MAX for number in numbers):
        raise CorruptBackupError(f"{shown}: the manifest of a snapshot holds what no replica writes: changed")
