"""Watches from inside, while replicas run: their core's invariants, and what the log chain says, write by write.

* `validate`         the invariants of leadership hold after every event
* `single-writer`    epochs rise with every claim, each is one leadership's; nobody else writes the chain
* `closed-is-final`  all ledgers of the chain but the last are closed, with the end of their own metadata, for good
* `no-gap`           ledgers join at the end and leave at the front, their revisions follow one another
* `acked-is-durable` what is trimmed is held by two disks, one of them the lake if there is one; a ledger is deleted
                     when the chain names it as being deleted, or never has named it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ledger.testing.metadata import SimMetadata
from ledger.testing.metadata_tree import TreeWrite
from rsm_spark.core.chain import ChainLedger, LogChain, chain_path, decode_chain
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.runtime.lake_service import LAKE_PLACE
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from rsm_spark.testing.ledger_world import LedgerWorld
from rsm_spark.testing.snapshots import MemorySnapshots

__all__ = ["ChainWatch", "witnessed"]

_WOUNDED_S = 15.0
"""Time within which a leader learns that a verified snapshot is gone."""


class ChainWatch:
    """Judges every version of the log chain.

    Args:
        cluster: The replicas; their ghosts are told of what is broken.
        metadata: The store.
        world: The twin of the ledger, if there is one.

    Attributes:
        chain: As committed.
        version: Of the chain.
        trimmed_count: Ledgers that have left it.
        listeners: Called with each version and its bytes.

    """

    def __init__(self, cluster: ReplicaCluster, metadata: SimMetadata, world: LedgerWorld | None) -> None:
        self.chain: LogChain | None = None
        self.version = -1
        self.listeners: list[Callable[[bytes, int], None]] = []
        self._cluster = cluster
        self._ghosts = cluster.ghosts
        self.trimmed_count = 0
        self._world = world
        self._path = chain_path(LOG)
        metadata.on_change.append(self._on_change)
        if world is not None:
            world.listeners.append(self._on_ledger)

    def _on_change(self, change: TreeWrite) -> None:
        if change.path != self._path:
            return
        fail = self._ghosts.fail
        if change.node is None:
            fail("acked-is-durable", "the log chain is deleted")
        assert change.node is not None
        before, after = self.chain, decode_chain(change.node.value, log_name=LOG)
        if before is not None:
            if (after.leader_epoch, after.leader) != (before.leader_epoch, before.leader) and (
                after.leader_epoch <= before.leader_epoch or after.ledgers != before.ledgers
            ):
                fail("single-writer", f"{after.leader} writes epoch {after.leader_epoch} over {before.leader_epoch}")
            self._compare(before, after)
        self._judge_ends(after)
        self.chain, self.version = after, change.node.version
        for listener in self.listeners:
            listener(change.node.value, change.node.version)

    def _compare(self, before: LogChain, after: LogChain) -> None:
        fail = self._ghosts.fail
        known = [ledger.ledger_id for ledger in before.ledgers]
        kept = [ledger.ledger_id for ledger in after.ledgers if ledger.ledger_id in known]
        if known[len(known) - len(kept) :] != kept or (known and not kept):
            fail("no-gap", f"the chain goes from {known} to {[x.ledger_id for x in after.ledgers]}")
        lost = set(known) - set(kept) - set(after.deleting)
        if lost:
            fail("acked-is-durable", f"ledgers {sorted(lost)} leave the chain and are not named as being deleted")
        self._judge_trim(before.ledgers[: len(known) - len(kept)])
        ends = {ledger.ledger_id: ledger.closed for ledger in before.ledgers if ledger.closed is not None}
        for ledger in after.ledgers:
            if ledger.closed != ends.get(ledger.ledger_id, ledger.closed):
                fail("closed-is-final", f"ledger {ledger.ledger_id} ends elsewhere in a later chain")

    def _judge_trim(self, going: tuple[ChainLedger, ...]) -> None:
        """What goes is proven to be held by two disks, and it is, unless one was lost just now."""
        if not going:
            return
        self.trimmed_count += len(going)
        cluster, closed = self._cluster, going[-1].closed
        assert closed is not None
        domains = {domain for domain, revision in self._ghosts.verified.values() if revision > closed.last_revision}
        if len(domains) < 2:
            what = f"ledgers up to revision {closed.last_revision} are trimmed, verified beyond are {sorted(domains)}"
            self._ghosts.fail("acked-is-durable", what)
        copies = sum(store.holds_beyond(closed.last_revision) for store in self._stores())
        is_wounded = cluster.simulation.loop.time() - cluster.damaged_s < _WOUNDED_S
        if copies < (1 if is_wounded else 2):
            what = f"ledgers up to revision {closed.last_revision} are trimmed, {copies} disks hold what they said"
            self._ghosts.fail("acked-is-durable", what)
        # What the log calls verified may be gone where its owner has not withdrawn it yet: such a place must not count.
        proven = {
            domain
            for place, (domain, revision) in self._ghosts.verified.items()
            if revision > closed.last_revision and revision in self._held(place)
        }
        if len(proven) < (1 if is_wounded else 2):
            held = {place: self._held(place) for place in self._ghosts.verified}
            what = f"ledgers up to revision {closed.last_revision} are trimmed, verified are {self._ghosts.verified}"
            self._ghosts.fail("acked-is-durable", f"{what}, on the disks are {held}")
        if cluster.lake is not None and not (LAKE_PLACE in proven and cluster.lake.holds_beyond(closed.last_revision)):
            what = f"ledgers up to revision {closed.last_revision} are trimmed, verified are {self._ghosts.verified}"
            self._ghosts.fail("acked-is-durable", f"{what}, the lake holds {self._held(LAKE_PLACE)}")

    def _stores(self) -> list[MemorySnapshots]:
        lake = self._cluster.lake
        return [*self._cluster.snapshots.values(), *([lake] if lake is not None else [])]

    def _held(self, place: str) -> list[int]:
        lake, stores = self._cluster.lake, self._cluster.snapshots
        store = lake if lake is not None and place == LAKE_PLACE else stores[place.removeprefix("replica:")]
        return [manifest.revision for manifest in store.manifests()]

    def _judge_ends(self, chain: LogChain) -> None:
        fail, last = self._ghosts.fail, None
        for ledger in chain.ledgers:
            if last is not None and last.closed is None:
                fail("closed-is-final", f"ledger {last.ledger_id} has a successor and no end")
            elif (
                last is not None and last.closed is not None and ledger.first_revision != last.closed.last_revision + 1
            ):
                fail("no-gap", f"ledger {ledger.ledger_id} begins with revision {ledger.first_revision}")
            last = ledger
            if self._world is None:
                continue
            twin = self._world.ledgers.get(ledger.ledger_id)
            if twin is None:
                fail("acked-is-durable", f"the chain names ledger {ledger.ledger_id}, which does not exist")
            elif ledger.closed is not None and (
                not twin.is_closed or twin.metadata.last_entry_id != ledger.closed.last_entry_id
            ):
                fail("closed-is-final", f"ledger {ledger.ledger_id}: {ledger.closed} is not its end")

    def _on_ledger(self, name: str, ledger_id: int, _number: int) -> None:
        if name == "delete" and self.chain is not None:
            if ledger_id in [ledger.ledger_id for ledger in self.chain.ledgers]:
                self._ghosts.fail("acked-is-durable", f"ledger {ledger_id} is deleted, the chain names it")


@contextmanager
def witnessed() -> Iterator[None]:
    """Check inside the block that leadership is sound after every event."""
    handle = LeaderProtocol.handle

    def validated(self: LeaderProtocol, event: Any) -> Any:
        effects = handle(self, event)
        self.validate()
        return effects

    with patch.object(LeaderProtocol, "handle", validated):
        yield
