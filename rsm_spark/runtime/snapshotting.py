"""Local snapshots: of the state between two entries, written elsewhere, one at a time.

Others can verify a snapshot only where the log holds a checkpoint of the very same revision. So a leader that takes
one has the next entry begin with a checkpoint, and now and then logs one for the others; a follower whose snapshot is
due takes it at the next checkpoint. Replicas begin their periods by chance, and so do not take theirs together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from rsm_spark.core.digest import digest_bytes
from rsm_spark.core.kernel_tables import peek_checkpoint
from rsm_spark.core.machine import Row
from rsm_spark.errors import SnapshotError
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.snapshots.manifest import SnapshotManifest

OWN_PLACE_PREFIX = "replica:"
"""Prefix of the places that are replicas' disks."""

_LOGGER = logging.getLogger(__name__)
_ALARM = "snapshot"
_CHECKPOINTS_PER_PERIOD = 4
_QUIET_RECORDS = 64
"""So few new records are what snapshots and their verification log themselves, or little more."""
_QUIET_PERIODS = 8
"""A quiet log is snapshotted that much more rarely, but it is: else its last ledgers could never be trimmed."""


def own_place(replica_id: str) -> str:
    """Return what a replica's disk is called in reports and in `state.verified`."""
    return f"{OWN_PLACE_PREFIX}{replica_id}"


class Snapshotter:
    """Takes local snapshots by time and by log bytes.

    Args:
        context: Of the replica.

    Attributes:
        revision: Of the newest snapshot written or booted from.
        taken_ms: Wall clock of the newest one taken; 0 = none.
        failure: Why the last one could not be written; "" = it could.

    """

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._due_at = 0.0
        self._due_bytes = 0
        self._checkpoint_at = 0.0
        self._wanted = False
        self._held = 0
        self.revision = 0
        self.taken_ms = 0
        self.failure = ""

    def begin(self) -> None:
        """Start the periods; the first one ends early, by chance: replicas do not take theirs together."""
        self._plan(self._context.rng.uniform(0.5, 1.0))

    def _plan(self, share: float = 1.0) -> None:
        settings = self._context.settings
        self._due_at = asyncio.get_running_loop().time() + settings.snapshot_s * share
        self._due_bytes = self._context.log_bytes + int(settings.snapshot_bytes * share)

    def want(self) -> None:
        """Take one as soon as it can be verified."""
        self._wanted = True

    def on_batch_end(self) -> None:
        """On a leader: take one if it is due. On a follower, only if no checkpoint came for a whole period."""
        context = self._context
        now = asyncio.get_running_loop().time()
        if context.role is ReplicaRole.LEADER:
            if self._is_due(now):
                context.want_checkpoint()
                self._take()
            elif now >= self._checkpoint_at and context.settings.snapshot_s > 0:
                self._checkpoint_at = now + context.settings.snapshot_s / _CHECKPOINTS_PER_PERIOD
                if context.tip.revision > context.state.checkpoint_revision:
                    context.want_checkpoint()
        elif self._is_late(now) and self._is_due(now):
            self._take()

    def before_entry(self, entry: LogEntry) -> None:
        """On a follower: take one if it is due and this entry begins with a checkpoint of the present state."""
        context = self._context
        if context.position is None or not self._is_due(asyncio.get_running_loop().time()):
            return
        checkpoint = peek_checkpoint(entry.payload)
        if checkpoint is None or (checkpoint.revision, checkpoint.prefix_hash) != (
            context.state.revision,
            context.state.prefix_hash,
        ):
            return
        # A state that differs is no snapshot's: the entry will stop the replica.
        if checkpoint.digest == digest_bytes(context.state.digest):
            self._take()

    def _is_due(self, now: float) -> bool:
        context, settings = self._context, self._context.settings
        if self._task is not None or context.tip.revision == self.revision or not context.state_is_confirmed:
            return False
        if context.position is None:
            return False
        is_quiet = context.tip.revision - self.revision <= _QUIET_RECORDS
        due_at = self._due_at + (settings.snapshot_s * (_QUIET_PERIODS - 1) if is_quiet else 0.0)
        by_time = settings.snapshot_s > 0 and now >= due_at
        by_bytes = settings.snapshot_bytes > 0 and context.log_bytes >= self._due_bytes
        return self._wanted or by_time or by_bytes

    def _is_late(self, now: float) -> bool:
        """Return whether a follower has waited for a checkpoint in vain: better one that nobody verifies than none."""
        settings = self._context.settings
        is_late_by_bytes = self._context.log_bytes >= self._due_bytes + settings.snapshot_bytes
        is_late_by_time = now >= self._due_at + settings.snapshot_s
        return (settings.snapshot_bytes > 0 and is_late_by_bytes) or (settings.snapshot_s > 0 and is_late_by_time)

    def _take(self) -> None:
        self._wanted = False
        self._plan()
        # Manifest and rows are taken here and now: the next entry changes the state.
        work = self._write(self._manifest(), self._context.state.rows())
        self._task = asyncio.get_running_loop().create_task(work)

    async def take(self) -> SnapshotManifest | None:
        """Take one now and wait for it; None if the state is not at a batch end, or there is nothing new.

        Raises:
            SnapshotError: It could not be written.

        """
        await self.finish()
        context = self._context
        if not context.state_is_confirmed or context.position is None:
            return None
        context.want_checkpoint()
        return await self._keep(self._manifest(), context.state.rows())

    async def finish(self) -> None:
        """Wait for the one under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def hold(self, revision: int) -> None:
        """Note that the snapshot that the log calls verified here is there; it stays until a newer one takes its place.

        A finding may come after its snapshot has gone: then the one that was verified before must not go as well.
        """
        self._held = revision
        self.protect()

    def protect(self) -> None:
        """Have the store keep what is verified of this replica's snapshots, whatever newer ones come."""
        context = self._context
        if not context.state_is_confirmed:
            return  # What is verified by an unconfirmed record may never have been.
        verified = context.state.verified.get(own_place(context.me.replica_id))
        context.snapshots.protect(frozenset({self._held} if verified is None else {self._held, verified.revision}))

    async def _write(self, manifest: SnapshotManifest, rows: Iterator[Row]) -> None:
        try:
            await self._keep(manifest, rows)
        except SnapshotError:
            _LOGGER.exception("no snapshot was taken", extra=self._context.log_extra)
        finally:
            self._task = None

    async def _keep(self, manifest: SnapshotManifest, rows: Iterator[Row]) -> SnapshotManifest:
        store = self._context.snapshots
        self.protect()
        try:
            written: SnapshotManifest = await self._context.run_blocking(lambda: store.write(manifest, rows))
        except SnapshotError as error:
            self.failure = str(error)
            self._context.alarms[_ALARM] = f"no snapshot can be written: {error}"
            raise
        self.taken_ms = manifest.created_ms
        self.failure = ""
        self._context.alarms.pop(_ALARM, None)
        self.revision = max(self.revision, written.revision)
        return written

    def _manifest(self) -> SnapshotManifest:
        context = self._context
        state, position = context.state, context.position
        assert position is not None
        return SnapshotManifest(
            log_name=context.log,
            log_id=context.log_id,
            revision=state.revision,
            ledger_id=position.ledger_id,
            entry_id=position.entry_id,
            prefix_hash=state.prefix_hash.hex(),
            digest=f"{state.digest:032x}",
            row_count=state.row_count,
            leader_epoch=state.leader_epoch,
            logged_ms=state.logged_ms,
            created_ms=context.clock_ms(),
            machine=state.description or context.machine.description,
            written_by=context.me.replica_id,
            sealed=state.is_sealed,
        )
