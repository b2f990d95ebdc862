"""Local snapshots: taken at batch ends, written elsewhere, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from rsm_spark.core.machine import Row
from rsm_spark.errors import SnapshotError
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.snapshots.manifest import SnapshotManifest

__all__ = ["Snapshotter"]

_logger = logging.getLogger(__name__)


class Snapshotter:
    """Takes local snapshots by time and by log bytes.

    Args:
        context: Of the replica.

    Attributes:
        revision: Of the newest snapshot written or booted from.

    """

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._due_at = 0.0
        self._due_bytes = 0
        self._wanted = False
        self.revision = 0

    def begin(self) -> None:
        """Start the periods; the first one ends early, by chance: replicas do not take theirs together."""
        self._plan(self._context.rng.uniform(0.5, 1.0))

    def _plan(self, share: float = 1.0) -> None:
        settings = self._context.settings
        self._due_at = asyncio.get_running_loop().time() + settings.snapshot_s * share
        self._due_bytes = self._context.log_bytes + int(settings.snapshot_bytes * share)

    def want(self) -> None:
        """Take one at the next batch end."""
        self._wanted = True

    def on_batch_end(self) -> None:
        """Take one if it is due and the state is confirmed."""
        context, settings = self._context, self._context.settings
        if self._task is not None or context.tip.revision == self.revision or not context.state_is_confirmed:
            return
        by_time = settings.snapshot_s > 0 and asyncio.get_running_loop().time() >= self._due_at
        by_bytes = settings.snapshot_bytes > 0 and context.log_bytes >= self._due_bytes
        if self._wanted or by_time or by_bytes:
            self._wanted = False
            self._plan()
            # Manifest and rows are taken here and now: the next batch changes the state.
            work = self._write(self._manifest(), context.state.rows())
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
        return await self._keep(self._manifest(), context.state.rows())

    async def finish(self) -> None:
        """Wait for the one under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _write(self, manifest: SnapshotManifest, rows: Iterator[Row]) -> None:
        try:
            await self._keep(manifest, rows)
        except SnapshotError:
            _logger.exception("no snapshot was taken", extra=self._context.log_extra)
        finally:
            self._task = None

    async def _keep(self, manifest: SnapshotManifest, rows: Iterator[Row]) -> SnapshotManifest:
        store = self._context.snapshots
        written: SnapshotManifest = await self._context.run_blocking(lambda: store.write(manifest, rows))
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
        )
