"""Verified snapshots that are really there: asked right before ledgers are deleted because of them.

What the log says was true when somebody read the snapshot. Since then its replica may have stopped, its disk may have
gone, or the finding came so late that newer snapshots had pushed the snapshot out. So only those count whose place
says now that it has them, and that they stay: a replica protects what is verified until a newer one takes its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from ledger.errors import LedgerError
from rsm_spark.core.kernel_tables import VerifiedSnapshot
from rsm_spark.errors import RsmError
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.lake_service import LAKE_PLACE
from rsm_spark.runtime.snapshotting import OWN_PLACE_PREFIX, own_place
from rsm_spark.snapshots.manifest import SnapshotManifest

_LOGGER = logging.getLogger(__name__)


class HeldSnapshots:
    """Asks the places.

    Args:
        context: Of the leader.

    """

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context

    async def look(self, verified: Mapping[str, VerifiedSnapshot]) -> dict[str, int]:
        """Return, by place, the revision of each verified snapshot that is there and stays.

        Raises:
            MetadataError: Nobody knows which replicas are live.

        """
        places = sorted(verified)
        found = await asyncio.gather(*(self._holds(verified[place]) for place in places))
        return {place: verified[place].revision for place, is_held in zip(places, found, strict=True) if is_held}

    async def _holds(self, snapshot: VerifiedSnapshot) -> bool:
        context, place = self._context, snapshot.place
        try:
            if place == own_place(context.me.replica_id):
                context.protect_snapshots()
                return _names(await context.run_blocking(context.snapshots.protected_manifests), snapshot)
            if place == LAKE_PLACE:
                return context.lake is not None and _names(await context.run_blocking(context.lake.manifests), snapshot)
            return await self._peer_holds(place.removeprefix(OWN_PLACE_PREFIX), snapshot)
        except (LedgerError, RsmError) as error:
            _LOGGER.info("%s is not counted: %s", place, error, extra=context.log_extra)
            return False

    async def _peer_holds(self, replica_id: str, snapshot: VerifiedSnapshot) -> bool:
        context = self._context
        if context.peers is None:  # Nobody can be asked: that it lives has to do.
            return any(member.replica_id == replica_id for member in await context.discovery.members())
        there = await context.peers.list(replica_id)
        return snapshot.revision in there.protected and _names(there.manifests, snapshot)


def _names(manifests: list[SnapshotManifest] | tuple[SnapshotManifest, ...], snapshot: VerifiedSnapshot) -> bool:
    wanted = (snapshot.revision, snapshot.prefix_hash.hex())
    return any((manifest.revision, manifest.prefix_hash) == wanted for manifest in manifests)
