"""Snapshots in the lake, as a matter of course: one replica writes them, another reads them back.

A follower writes, so that the leader has its time for clients; a leader that is alone does it itself. What is written
is the newest whole local snapshot, read from its files: no further look at the live state. Who writes and who verifies
follows from the members and from the manifest, so that replicas need not agree on it first: two that write at once
write the same, or one after the other.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from ledger.errors import LedgerError
from rsm_spark.core.commands import ReportWithdrawn
from rsm_spark.errors import ConnectionLostError, CorruptSnapshotError, RsmError
from rsm_spark.log.member import Member
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.table_service import TableService
from rsm_spark.runtime.verifying import Verifier, finding
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

LAKE_PLACE = "lake"
"""The lake in reports and in `state.verified`; its failure domain too."""

_LOGGER = logging.getLogger(__name__)
_LOOKS_PER_PERIOD = 20
_ALARM = "lake keeping"


class LakeService:
    """Writes and verifies the lake's snapshots, as far as it is this replica's turn.

    Args:
        context: Of the replica.
        lake: The lake's snapshots of this log.
        verifier: Compares, reports, alarms.

    Attributes:
        revision: Newest one known in the lake.

    """

    def __init__(self, context: ReplicaContext, lake: SnapshotStore, verifier: Verifier) -> None:
        self._context = context
        self._lake = lake
        self._verifier = verifier
        self._tables = TableService(context, lake) if context.settings.lake_tables else None
        self._write_at = 0.0
        self._scrub_at = 0.0
        self.revision = 0

    async def run(self) -> None:
        """Keep the lake, until cancelled."""
        context, settings = self._context, self._context.settings
        now = asyncio.get_running_loop().time()
        self._write_at = now + settings.lake_s * context.rng.uniform(0.25, 0.5)
        self._scrub_at = now + settings.scrub_s * context.rng.uniform(0.5, 1.0)
        while True:
            # An object store is asked a few times a period, not every few seconds.
            pause_s = max(settings.verify_s, settings.lake_s / _LOOKS_PER_PERIOD)
            await asyncio.sleep(pause_s * context.rng.uniform(0.75, 1.25))
            await self.round()

    async def round(self) -> None:
        """Do once what is due; what fails is logged, and tried again in the next round."""
        try:
            members = sorted(await self._context.discovery.members(), key=lambda one: one.replica_id)
            mine = await self._present()
            self.revision = max((one.revision for one in mine), default=0)
            if self._writes(members):
                await self._write(mine)
                if self._tables is not None:
                    await self._tables.follow(self.revision)
            await self._verify(members, mine)
        except (ConnectionLostError, LedgerError) as error:
            _LOGGER.info("the lake waits: %s", error, extra=self._context.log_extra)
        except RsmError as error:
            self._verifier.alarm(_ALARM, str(error))
            return
        except Exception as error:
            # Whatever a disk or the lake's library raises: it must not end the keeping, and not silently.
            self._verifier.alarm(_ALARM, f"{type(error).__name__}: {error}")
            _LOGGER.exception("the lake could not be kept", extra=self._context.log_extra)
            return
        self._context.alarms.pop(_ALARM, None)

    async def _present(self) -> list[SnapshotManifest]:
        """Return what the lake has of this log."""
        manifests: list[SnapshotManifest] = await self._context.run_blocking(self._lake.manifests)
        return [one for one in manifests if one.log_id == self._context.log_id]

    def _writes(self, members: list[Member]) -> bool:
        """Return whether this replica is the one to write: the first that does not lead, else the leader."""
        me = self._context.me.replica_id
        leader = self._context.leader.replica_id if self._context.leader is not None else ""
        followers = [one.replica_id for one in members if one.replica_id != leader]
        return me == (followers[0] if followers else leader)

    async def _write(self, present: list[SnapshotManifest]) -> None:
        context, loop = self._context, asyncio.get_running_loop()
        if loop.time() < self._write_at:
            return
        local: list[SnapshotManifest] = await context.run_blocking(context.snapshots.manifests)
        newest = next((one for one in local if one.log_id == context.log_id), None)
        if newest is None or newest.revision <= max((one.revision for one in present), default=0):
            return
        verified = context.state.verified.get(LAKE_PLACE)
        protected = frozenset() if verified is None else frozenset({verified.revision})
        source, me = newest, context.me.replica_id

        def _copy() -> SnapshotManifest:
            self._lake.protect(protected)
            return self._lake.write(copied_by(source, me), context.snapshots.read(source))

        await context.run_blocking(_copy)
        self._write_at = loop.time() + context.settings.lake_s
        self.revision = newest.revision
        _LOGGER.info("wrote snapshot of revision %d to the lake", newest.revision, extra=context.log_extra)

    async def _verify(self, members: list[Member], present: list[SnapshotManifest]) -> None:
        context, verifier = self._context, self._verifier
        me = context.me.replica_id
        await self._check_verified(present)
        manifest = verifier.choose(LAKE_PLACE, present)
        if manifest is None:
            return
        # The last one: the first ones write.
        readers = [one.replica_id for one in members if one.replica_id != manifest.written_by]
        if not readers or readers[-1] != me:
            return
        try:
            verifier.compare(LAKE_PLACE, manifest)
            if not await verifier.is_proven(LAKE_PLACE, manifest):
                return
            await self._read_back(manifest)
        except CorruptSnapshotError as error:
            verifier.reject(LAKE_PLACE, manifest, error)
            return
        await verifier.tell(finding(manifest, LAKE_PLACE, LAKE_PLACE, me))

    async def _check_verified(self, present: list[SnapshotManifest]) -> None:
        """Withdraw what is verified in the lake if it is gone or, read again now and then, damaged."""
        context, loop = self._context, asyncio.get_running_loop()
        verified = context.state.verified.get(LAKE_PLACE)
        if verified is None or not context.state_is_confirmed:
            return
        known = (verified.revision, verified.prefix_hash.hex())
        manifest = next((one for one in present if (one.revision, one.prefix_hash) == known), None)
        reason = f"the verified snapshot of revision {verified.revision} is gone or damaged"
        if manifest is None:  # It may have come, and been verified, since they were listed: tables take minutes.
            manifest = next((one for one in await self._present() if (one.revision, one.prefix_hash) == known), None)
            if manifest is not None or context.state.verified.get(LAKE_PLACE) != verified:
                return
        else:
            if loop.time() < self._scrub_at:
                return
            self._scrub_at = loop.time() + context.settings.scrub_s
            try:
                await self._read_back(manifest)
            except CorruptSnapshotError as error:
                reason = f"the verified snapshot of revision {verified.revision} is damaged: {error}"
            else:
                return
        self._verifier.alarm(LAKE_PLACE, reason)
        await self._verifier.tell(ReportWithdrawn(LAKE_PLACE, context.me.replica_id, reason))

    async def _read_back(self, manifest: SnapshotManifest) -> None:
        """Read every row.

        Raises:
            CorruptSnapshotError: They are not what the manifest says.

        """
        lake = self._lake

        def _read() -> None:
            for _ in lake.read(manifest):
                pass

        await self._context.run_blocking(_read)


def copied_by(manifest: SnapshotManifest, replica_id: str) -> SnapshotManifest:
    """Return the manifest of a copy that this replica writes elsewhere."""
    return msgspec.structs.replace(manifest, files=(), written_by=replica_id)
