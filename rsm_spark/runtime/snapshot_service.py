"""All that a replica does for snapshots while it runs: takes its own, verifies another's, keeps the lake."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rsm_spark.core.commands import Answer, Report
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.lake_service import LakeService
from rsm_spark.runtime.snapshotting import Snapshotter
from rsm_spark.runtime.verifying import Verifier


class SnapshotService:
    """Snapshots of one replica, from its boot to its end.

    Args:
        context: Of the replica.
        report: Takes a report as the leader that this replica may be.

    Attributes:
        snapshotter: Takes the local ones.
        verifier: Reads others' back.
        lake_keeper: Writes and reads the lake's; None without a lake.

    """

    def __init__(self, context: ReplicaContext, report: Callable[[Report], Awaitable[Sequence[Answer]]]) -> None:
        self._context = context
        self._tasks: list[asyncio.Task[None]] = []
        self.snapshotter = Snapshotter(context)
        self.verifier = Verifier(context, report, self.snapshotter.protect, self.snapshotter.hold)
        self.lake_keeper = LakeService(context, context.lake, self.verifier) if context.lake is not None else None
        context.batch_ended = self.snapshotter.on_batch_end
        context.before_entry = self.snapshotter.before_entry
        context.protect_snapshots = self.snapshotter.protect

    def begin(self, revision: int) -> None:
        """Start.

        Args:
            revision: Of the snapshot that the replica booted from; 0 = of none.

        """
        self.snapshotter.revision = revision
        self.snapshotter.begin()
        if self._context.settings.verify_s <= 0:
            return
        loop = asyncio.get_running_loop()
        if self._context.peers is not None or self.lake_keeper is not None:
            self._tasks.append(loop.create_task(self.verifier.run()))
        if self.lake_keeper is not None:
            self._tasks.append(loop.create_task(self.lake_keeper.run()))

    def cease(self) -> None:
        """Look at nobody's snapshots any more."""
        for task in self._tasks:
            task.cancel()

    async def finish(self) -> None:
        """Conclude what is under way; take a last snapshot if the settings say so.

        Raises:
            SnapshotError: The last one could not be written.

        """
        await self.snapshotter.finish()
        context = self._context
        if context.settings.snapshot_at_stop and context.tip.revision > self.snapshotter.revision:
            await self.snapshotter.take()
