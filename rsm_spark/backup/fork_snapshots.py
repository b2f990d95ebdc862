"""Gives a fork a snapshot of its origin, under the name and the place that it has in the fork."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from rsm_spark.backup.copied_ledgers import CopiedLedgers
from rsm_spark.backup.creating import SnapshotAccess
from rsm_spark.backup.manifest import BackupError
from rsm_spark.backup.put_snapshot import to_its_end
from rsm_spark.backup.restoring import RestoreRequest
from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.position import LogPosition
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore
from rsm_spark.snapshots.pace import no_pace

Proof = Callable[[LogChain, SnapshotManifest], Awaitable[str]]
"""Says why a snapshot of the origin is not to be believed; "" = it is right."""


class ForkRequest(RestoreRequest, frozen=True, kw_only=True):
    """Request to make a log of another one.

    Attributes:
        log: Name of the origin.
        is_independent: Copy all, share nothing.
        supply: Snapshots of the origin; None = none is taken.
        proof: Of those.

    """

    log: str
    is_independent: bool = False
    supply: SnapshotAccess | None = None
    proof: Proof | None = None


class ForkSnapshots:
    """Snapshots of an origin, for one fork.

    Args:
        target: What is to be made.
        log_id: Of the fork.

    """

    def __init__(self, target: ForkRequest, log_id: str) -> None:
        self._target = target
        self._log_id = log_id
        self._found: list[SnapshotManifest] = []

    async def look(self, chain: LogChain) -> set[str]:
        """Look which there are; return the prefix hashes of the entries that they end with."""
        if self._target.supply is not None:
            self._found = [one for one in await self._target.supply.manifests() if one.log_id == chain.log_id]
        return {one.prefix_hash for one in self._found}

    async def take(
        self, chain: LogChain, shared: Sequence[ChainLedger], copies: CopiedLedgers
    ) -> SnapshotManifest | None:
        """Put the newest snapshot that the fork reaches where its replicas find it; None = there is none.

        Args:
            chain: Of the origin.
            shared: Ledgers that the fork shares.
            copies: Ledgers that it has copied.

        Raises:
            BackupError: There is none, and the fork cannot be read without one.

        """
        target = self._target
        if target.supply is None or (target.snapshots is None and target.lake is None):
            return None
        seen: list[str] = []
        for snapshot in sorted(self._found, key=lambda one: -one.revision):
            place = self._place_of(snapshot, shared, copies)
            if place is None:
                continue
            reason = "" if target.proof is None else await target.proof(chain, snapshot)
            if reason:
                seen.append(f"snapshot of revision {snapshot.revision}: {reason}")
                continue
            await self._put_snapshot(snapshot, place)
            return snapshot
        if chain.is_whole:
            return None
        said = "; ".join(seen) or "no replica, folder or lake has one at or below its end"
        raise BackupError(f"log {target.log}: its beginning was trimmed, and no snapshot serves the fork: {said}")

    def _place_of(
        self, snapshot: SnapshotManifest, shared: Sequence[ChainLedger], copies: CopiedLedgers
    ) -> LogPosition | None:
        """Return where the fork has the entry that a snapshot ends with; None = it has not."""
        if snapshot.contradiction or snapshot.entry_id < 0:
            return None
        ends = [ledger.closed for ledger in (*shared, *copies.ledgers) if ledger.closed is not None]
        # Replicas ask the log whether one from the lake is right: the entry behind it says so.
        if self._target.lake is not None and snapshot.revision >= ends[-1].last_revision:
            return None
        for ledger in shared:
            if ledger.ledger_id == snapshot.ledger_id:
                is_reached = ledger.closed is not None and snapshot.entry_id <= ledger.closed.last_entry_id
                return LogPosition(snapshot.ledger_id, snapshot.entry_id) if is_reached else None
        return copies.places.get(snapshot.prefix_hash)

    async def _put_snapshot(self, snapshot: SnapshotManifest, place: LogPosition) -> None:
        target = self._target
        assert target.supply is not None, "asked by who looked for one"
        wanted = msgspec.structs.replace(
            snapshot,
            log_name=target.name,
            log_id=self._log_id,
            ledger_id=place.ledger_id,
            entry_id=place.entry_id,
            written_by="rsm log fork",
            files=(),
        )
        places: list[SnapshotStore] = [one for one in (target.snapshots, target.lake) if one is not None]
        with tempfile.TemporaryDirectory(prefix="rsm-fork-") as scratch:
            whole, folder = await target.supply.copy(snapshot, Path(scratch))
            store = LocalSnapshots(folder.parent, pace=lambda: no_pace)
            for one in places:
                await to_its_end(partial(_put, one, wanted, store, whole))


def _put(at: SnapshotStore, wanted: SnapshotManifest, store: LocalSnapshots, whole: SnapshotManifest) -> None:
    at.write(wanted, store.read(whole))
