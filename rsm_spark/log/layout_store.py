"""The layout of a partitioned log in the metadata store: read after sync, written by whoever has claimed it.

A write whose reply was lost may still arrive. So it is sent again with the version that it was made for, until the node
tells that it is there or that somebody else has written.

* `LayoutConflictError`   a `ChainConflictError`: another writer has claimed the layout, or it is being deleted
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

import msgspec

from ledger.errors import (
    BadVersionError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.ports import MetadataStore, NodeChange, Watcher
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain, chain_path, encode_chain
from rsm_spark.core.partition_layout import (
    PartitionLayout,
    check_growth,
    decode_layout,
    encode_layout,
    layout_path,
    new_layout,
    partition_log,
)
from rsm_spark.errors import ChainConflictError, LogError, NoSuchLogError, NotLeaderError
from rsm_spark.log.consumers import ConsumerState, LogConsumers, consumers_path
from rsm_spark.log.deletion import ensure_node
from rsm_spark.log.log_policy import LogPolicy, encode_policy, policy_path, read_policy

_UNKNOWN = MetadataUnavailableError, MetadataSessionLostError
_TRIES = 10
_RETRY_S = 0.2
_HELD_MAX = 1_000
"""Subscriptions that one growth begins in new partitions: they travel in one request."""


class LayoutConflictError(ChainConflictError):
    """Another writer has claimed the layout, or it is being deleted."""


class LayoutStore:
    """Layout of one partitioned log.

    Args:
        store: Session with the metadata store.
        log: Name of the partitioned log.
        rsm_root: Where logs live.
        rng: For back-off, and for ids.

    """

    def __init__(self, store: MetadataStore, log: str, rsm_root: str = DEFAULT_RSM_ROOT, *, rng: random.Random) -> None:
        self.log = log
        self._store = store
        self._root = rsm_root
        self._path = layout_path(log, rsm_root)
        self._rng = rng

    async def read(self, *, watch: Watcher | None = None) -> tuple[PartitionLayout, int]:
        """Return the layout and its version, not older than this call.

        Args:
            watch: Called once when it may have changed.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            CorruptLogError: The node holds no layout.
            MetadataError: The metadata store cannot be asked.

        """
        await self._store.sync(self._path)
        try:
            value, version = await self._store.get(self._path, watch=watch)
        except NoNodeError:
            raise NoSuchLogError(
                f"log {self.log}: there is no partitioned log of this name: rsm log create {self.log} --partitions 4, "
                "or Logs.create, makes one"
            ) from None
        return decode_layout(value, log=self.log), version

    async def create(self, partition_count: int, policy: LogPolicy) -> None:
        """Make a log of so many partitions.

        Raises:
            NodeExistsError: The name is taken, or that of a partition is.
            MetadataError: The metadata store cannot be asked; the log may be there.

        """
        for parent in ("layouts", "logs", "policies"):
            await ensure_node(self._store, f"{self._root}/{parent}")
        log_ids = [self._id() for _ in range(partition_count)]
        layout = new_layout(self._id(), log_ids)
        absent = chain_path(self.log, self._root)
        changes = [NodeChange(absent, b"", None), NodeChange(absent)]
        changes.append(NodeChange(self._path, encode_layout(layout), None))
        for partition, log_id in enumerate(log_ids):
            changes += self._born(partition, log_id, policy)
        await self._store.change(changes)

    def _id(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    def _born(self, partition: int, log_id: str, policy: LogPolicy) -> list[NodeChange]:
        chain = encode_chain(LogChain(log_id))
        return [
            NodeChange(chain_path(partition_log(self.log, partition), self._root), chain, None),
            NodeChange(policy_path(log_id, self._root), encode_policy(policy), None),
        ]

    async def claim(self, incarnation: str) -> tuple[PartitionLayout, int]:
        """Claim the layout for a writer; return it, and the version that the claim has made.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            LayoutConflictError: It is being deleted, or others claimed it each time.
            CorruptLogError: The node holds no layout.
            MetadataError: The metadata store cannot be asked; it may be claimed.

        """
        for _ in range(_TRIES):
            layout, version = await self.read()
            self._refuse_deleting(layout)
            if layout.writer == incarnation:
                return layout, version
            with contextlib.suppress(BadVersionError, NoNodeError, MetadataUnavailableError):
                await self._store.set(self._path, encode_layout(layout.claimed(incarnation)), version)
        raise LayoutConflictError(f"log {self.log}: others claimed it {_TRIES} times meanwhile: try again")

    async def check_held(self, held: tuple[PartitionLayout, int]) -> None:
        """Check that nobody has written the layout since the caller claimed it, or made it grow.

        Raises:
            NotLeaderError: Somebody has.
            MetadataError: The metadata store cannot be asked.

        """
        path = self._path
        await self._store.sync(path)
        if await self._store.exists(path) != held[1]:
            raise NotLeaderError(f"log {self.log}: another writer was opened meanwhile, or the log is being deleted")

    def _refuse_deleting(self, layout: PartitionLayout) -> None:
        if layout.is_deleting:
            raise LayoutConflictError(f"log {self.log}: it is being deleted: rsm log delete {self.log} finishes that")

    async def grow(self, held: tuple[PartitionLayout, int], count: int, ends: Sequence[int]) -> PartitionLayout:
        """End the present generation, and begin one with more partitions; return the layout that is in force.

        Whoever calls has claimed the layout, and appends nothing meanwhile. What cannot be asked for a while is waited
        for.

        Args:
            held: The layout as its claim, or the growth before, has left it; and its version.
            count: Of partitions.
            ends: By present partition: all that was appended so far is at or below it.

        Raises:
            LogError: It cannot grow so; the name of a new partition is taken; or it has too many subscriptions.
            LayoutConflictError: Another writer has claimed the layout, or it is being deleted: it has not grown.
            NoSuchLogError: It was deleted.
            MetadataDeniedError: This log-in may not do it; it has not grown.

        """
        layout, version = held
        check_growth(self.log, layout, count)
        log_ids = [self._id() for _ in range(count - layout.partition_count)]
        grown = layout.grown(log_ids, ends)
        changes: list[NodeChange] = []
        while True:
            try:
                changes = changes or [
                    NodeChange(self._path, encode_layout(grown), version),
                    *await self._added(layout, log_ids),
                ]
                await self._store.change(changes)
            except _UNKNOWN:
                await asyncio.sleep(_RETRY_S * self._rng.uniform(0.5, 1.0))
            except (BadVersionError, NodeExistsError, NoNodeError):
                if await self._is_ours(grown, version):
                    return grown
                raise
            else:
                return grown

    async def _is_ours(self, grown: PartitionLayout, version: int) -> bool:
        """Return whether a growth is in force that was refused: its first try may have arrived.

        Raises:
            LayoutConflictError: Somebody else has written.
            LogError: The name of a new partition is taken.

        """
        while True:
            try:
                present, now = await self.read()
                break
            except _UNKNOWN:
                await asyncio.sleep(_RETRY_S * self._rng.uniform(0.5, 1.0))
        if present == grown:
            return True
        if now != version:
            raise LayoutConflictError(f"log {self.log}: another writer has claimed it: it has not grown")
        first = partition_log(self.log, present.partition_count)
        raise LogError(
            f"log {self.log}: it has not grown: another log has the name of a partition to come, {first} or a later "
            "one: rename that (rsm log rename)"
        )

    async def _added(self, layout: PartitionLayout, log_ids: Sequence[str]) -> list[NodeChange]:
        """Return the nodes of new partitions: they keep what the first one keeps, and hold it for the same readers."""
        policy, _ = await read_policy(self._store, layout.log_ids[0], self._root)
        policy = msgspec.structs.replace(policy, truncated=0)
        held: dict[str, ConsumerState] = {}
        for log_id in layout.log_ids:
            for one in await LogConsumers(self._store, log_id, self._root).present():
                held.setdefault(one.name, one.state)
        if len(held) * len(log_ids) > _HELD_MAX:
            raise LogError(
                f"log {self.log}: {len(held)} subscriptions would begin in {len(log_ids)} new partitions, over "
                f"{_HELD_MAX} at once: grow in smaller steps, or remove some (rsm log consumers)"
            )
        changes = []
        for partition, log_id in enumerate(log_ids, layout.partition_count):
            changes += self._born(partition, log_id, policy)
            path = consumers_path(log_id, self._root)
            if held:
                await ensure_node(self._store, path.rpartition("/")[0])
                changes.append(NodeChange(path, b"", None))
            for name, state in held.items():
                begun = msgspec.structs.replace(state, revision=0, holder="")
                changes.append(NodeChange(f"{path}/{name}", msgspec.json.encode(begun), None))
        return changes

    async def begin_deletion(self) -> PartitionLayout:
        """Note that the log is being deleted; whoever has claimed it cannot grow it any more.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            LayoutConflictError: Others wrote it each time.
            MetadataError: The metadata store cannot be asked; it may be noted.

        """
        for _ in range(_TRIES):
            layout, version = await self.read()
            if layout.is_deleting:
                return layout
            going = msgspec.structs.replace(layout, is_deleting=True)
            with contextlib.suppress(BadVersionError, NoNodeError):
                await self._store.set(self._path, encode_layout(going), version)
                return going
        raise LayoutConflictError(f"log {self.log}: others claimed it {_TRIES} times meanwhile: nothing was deleted")

    async def end_deletion(self) -> None:
        """Take the layout away: all partitions are gone."""
        with contextlib.suppress(NoNodeError):
            await self._store.delete(self._path)
