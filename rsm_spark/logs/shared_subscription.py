"""A subscription of a partitioned log that several readers share, each with partitions of its own.

The order of a key over a growth holds across the readers. What a partition has from behind a growth is handed out once
all that its keys may have had before, in whatever partition, was processed: by the same reader, or by the others as
their stored positions say. A reader stores its position at once when it passes the end of a generation.

1. The subscription stands in every partition before the first record is handed out, so that nobody takes a partition
   for one that is read by none because its reader comes late. An operator who removes it from a partition says that
   nobody waits for that one any more.
2. A stored position may be behind the work. It is never ahead of it, and only a registration moves it back.
3. A reader asks for positions only where the end of a generation lies ahead of them, and is told when they move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from rsm_spark.core.partition_layout import KeyOrder, PartitionLayout
from rsm_spark.log.consumers import LogConsumers

_AT_ONCE = 16
"""Questions to ZooKeeper on their way."""


class SharedSubscription:
    """View of what the other readers of a subscription have processed.

    Args:
        name: Of the subscription.
        consumers: (log id of a partition) -> its consumers.
        begin: (partition, layout): begins the subscription in a partition where it is not yet.

    Attributes:
        positions: By partition of other readers that is waited for, the position up to which it was processed.
        on_move: Called when that may have changed.

    """

    def __init__(
        self,
        name: str,
        consumers: Callable[[str], LogConsumers],
        begin: Callable[[int, PartitionLayout], Awaitable[None]],
    ) -> None:
        self.positions: dict[int, int] = {}
        self.on_move: Callable[[], None] = lambda: None
        self._name = name
        self._consumers = consumers
        self._begin = begin
        self._watched: set[int] = set()
        self._absent: set[int] = set()

    async def begin(self, layout: PartitionLayout, own: Collection[int]) -> None:
        """Begin the subscription in the partitions of other readers; see the module, 1.

        Raises:
            RsmError, LedgerError: It cannot be begun everywhere.

        """
        for partition in range(layout.partition_count):
            if partition not in own:
                await self._begin(partition, layout)

    def forget(self) -> None:
        """Ask for all positions again that are waited for: a watch may have been lost with its session."""
        self._watched.clear()
        self._absent.clear()

    async def look(self, layout: PartitionLayout, own: Collection[int]) -> None:
        """Learn the positions that this reader may have to wait for.

        Raises:
            CorruptLogError: A node does not say.
            MetadataError: ZooKeeper cannot be asked.

        """
        order = KeyOrder(layout)
        asked = [
            partition
            for partition in range(layout.partition_count)
            if partition not in own
            and partition not in self._watched
            and partition not in self._absent
            and order.is_behind(partition, self.positions.get(partition, -1))
        ]
        for first in range(0, len(asked), _AT_ONCE):
            await asyncio.gather(*(self._ask(one, layout.log_ids[one]) for one in asked[first : first + _AT_ONCE]))

    async def _ask(self, partition: int, log_id: str) -> None:
        self._watched.add(partition)
        try:
            position = await self._consumers(log_id).revision_of(self._name, watch=partial(self._moved, partition))
        except BaseException:
            self._watched.discard(partition)
            raise
        if position is None:
            self._watched.discard(partition)
            self._absent.add(partition)
            self.positions.pop(partition, None)
        else:
            self.positions[partition] = position

    def _moved(self, partition: int) -> None:
        self._watched.discard(partition)
        self.on_move()
