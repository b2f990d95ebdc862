"""Partitioned logs: one name, many chains; records go to one of them by their key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from rsm_spark.core.partition_layout import LayoutGeneration, PartitionLayout, check_growth, partition_log
from rsm_spark.errors import LogError, NoLeaderError
from rsm_spark.log.admin_requests import AdminRequests, GrowRequest
from rsm_spark.log.consumers import LogConsumers
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.member import Member
from rsm_spark.logs.log_names import LogInfo, LogNames
from rsm_spark.logs.partitioned_reader import PartitionedLogReader
from rsm_spark.logs.partitioned_writer import PartitionedLogWriter
from rsm_spark.logs.record_reader import PlainLogReader, ReaderOptions
from rsm_spark.logs.record_writer import PlainLogWriter
from rsm_spark.logs.shared_subscription import SharedSubscription
from rsm_spark.logs.writer_place import WriterPlace

_ORDER_S = 30.0
_ORDER_TRIES = 6


class PartitionedLogInfo(NamedTuple):
    """Facts about a partitioned log that are known without reading it.

    Attributes:
        log: Its name.
        layout_id: Its uuid, 32 hex digits.
        is_open: A writer says that it is alive.
        generations: How many partitions it has had, and where each generation ended.
        partitions: What is known of each, in order.

    """

    log: str
    layout_id: str
    is_open: bool
    generations: tuple[LayoutGeneration, ...]
    partitions: tuple[LogInfo, ...]


class PartitionedLogs(LogNames):
    """Partitioned logs of one cluster; `Logs` is what programs use."""

    async def _open(
        self, log: str, log_id: str = "", *, is_upkeep: bool, has_producers: bool = False
    ) -> PlainLogWriter:
        raise NotImplementedError

    async def _reader(
        self, log: str, options: ReaderOptions, log_id: str = "", on_entry: Callable[[], None] | None = None
    ) -> PlainLogReader:
        raise NotImplementedError

    async def _begin_subscription(self, log: str, log_id: str, options: ReaderOptions) -> None:
        raise NotImplementedError

    async def partitions(self, log: str) -> PartitionedLogInfo:
        """Return what is known of a partitioned log without reading it.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            CorruptLogError: What stands for it in ZooKeeper cannot be right.
            MetadataError: ZooKeeper cannot be asked.

        """
        layout, _ = await self._layouts(log).read()
        names = [partition_log(log, partition) for partition in range(layout.partition_count)]
        return PartitionedLogInfo(
            log,
            layout.layout_id,
            await self._is_written(log),
            layout.generations,
            tuple([await self.info(name) for name in names]),
        )

    async def partition_count(self, log: str) -> int:
        """Return how many partitions a partitioned log has now.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            CorruptLogError: What stands for it in ZooKeeper cannot be right.
            MetadataError: ZooKeeper cannot be asked.

        """
        layout, _ = await self._layouts(log).read()
        return layout.partition_count

    async def open_partitioned_writer(
        self, log: str, *, producers: bool = False, place: WriterPlace | None = None
    ) -> PartitionedLogWriter:
        """Open the writer of all partitions of a log. The one before is fenced in each: it is over.

        Args:
            log: Its name.
            producers: It takes records of producers: see `PartitionedLogWriter.produce`. The partitions have format
                level 4 from now on.
            place: Where the process is reached over HTTP, told to whoever asks who writes the log.

        Raises:
            NoSuchLogError: There is no partitioned log of this name: `create(log, partitions=)` makes it.
            LogEndedError: A partition has an end mark.
            NotLeaderError, ChainConflictError: Another writer was opened meanwhile, or the log is being deleted.
            AdmissionError: This process lacks the log's key or password, or is too old for it.
            CorruptLogError: The end of a partition is damaged; or the layout cannot be right.
            MetadataError: ZooKeeper cannot be asked.

        """
        me = self._me()

        async def open_partition(name: str, log_id: str) -> PlainLogWriter:
            return await self._open(name, log_id, is_upkeep=False, has_producers=producers)

        return await PartitionedLogWriter(
            self._layouts(log),
            me.incarnation,
            open_partition,
            self._keeper(log, me, place),
            AdminRequests(self._client.store, log, self._root),
            retry_s=self.settings.retry_s,
        ).open()

    async def partitioned_writer(self, log: str) -> Member | None:
        """Return who writes a partitioned log; None = nobody that is alive.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            CorruptLogError: The layout cannot be right.
            MetadataError: ZooKeeper cannot be asked.

        """
        layout, _ = await self._layouts(log).read()
        members = await Discovery(self._client.store, log, self._root).members()
        return next((one for one in members if one.incarnation == layout.writer), None)

    async def grow(self, log: str, partitions: int) -> None:
        """Give a partitioned log more partitions: its writer does it, or this call if there is none.

        The writer goes on, and so do readers: records of one key stay in the order of their appends.

        Args:
            log: Its name.
            partitions: How many it is to have. If it has as many already, nothing is done.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            LogError: It cannot have so many, or fewer than it has; or the name of a new one is taken.
            NoLeaderError: The writer does not answer; it may do it later.
            NotLeaderError: A writer was opened meanwhile: try again.
            MetadataError: ZooKeeper cannot be asked; it may have grown.

        """
        layout, _ = await self._layouts(log).read()
        if layout.partition_count == partitions:
            return
        check_growth(log, layout, partitions)
        for left in range(_ORDER_TRIES - 1, -1, -1):
            if not await self._is_written(log):
                break
            try:
                desk = AdminRequests(self._client.store, log, self._root)
                answer = await desk.place(GrowRequest(partitions), timeout_s=_ORDER_S)
            except NoLeaderError:
                if not left:
                    raise
                continue
            if answer.refusal:
                raise LogError(f"log {log}: {answer.by} does not make it grow: {answer.refusal}")
            return
        async with await self.open_partitioned_writer(log) as writer:
            if writer.partition_count != partitions:
                await writer.grow(partitions)

    async def partitioned_reader(
        self,
        log: str,
        start: Literal["begin", "end"] | Mapping[int, int] = "begin",
        *,
        partitions: Collection[int] | None = None,
        txid: int | None = None,
        since: datetime | None = None,
        subscription: str | None = None,
        shared: bool = False,
        lock_wait_s: float | None = 0.0,
        follow: bool = True,
        finished_batches: bool = False,
    ) -> PartitionedLogReader:
        """Open a reader of a partitioned log. It hands out records of one key in the order of their appends.

        Args:
            log: Its name.
            start: Where the partitions begin; or behind what is confirmed now; or the first position by partition,
                where those that it does not name begin at their beginning. So do partitions that are added later.
            partitions: Read these alone; None = all, those that are added later too. The order of a key over a growth
                holds among what one reader reads, or what the readers of a shared subscription do.
            txid: Begin, in each partition, with the first record of this transaction id or a higher one instead.
            since: Begin with the first record that was logged then or later instead.
            subscription: Store the positions under this name, and hold the partitions from there on. If there is one of
                this name already, the reader goes on there, whatever `start` says.
            shared: Other readers of the subscription read the other partitions: what a partition has from behind a
                growth waits until they have processed what its keys may have had before. The subscription begins in
                all partitions at once.
            lock_wait_s: How long to wait, in each partition, for another reader of this subscription to go; None = it
                need not go.
            follow: Wait for what is appended later; False = end where the partitions are confirmed now.
            finished_batches: Hand out the rows that a partition has of a writer's batch (Spark's sink has such) when
                the batch has ended: all of them where the partition tells of the end, the first ones of a batch that
                began before the start too. Each partition does so by itself, when all rows are in all of them. Those of
                a batch that never ends are not handed out, and nobody waits for them. Of a batch in the middle of which
                the log grows, rows of one key may come in another order from before the growth and from behind it.

        Raises:
            NoSuchLogError: There is no partitioned log of this name.
            LogError: A partition was named that there is not; or what is shared has no subscription.
            MissingLogError: A partition was trimmed beyond its position.
            ReaderLockError: Another reader of the subscription did not go.
            ConsumerError: The subscription cannot be stored.
            CorruptLogError: The layout cannot be right.
            LedgerError, MetadataError: Bookies or ZooKeeper cannot be asked.

        """
        if shared and subscription is None:
            raise LogError(f"log {log}: a reader shares a subscription, so it needs one: subscription=")
        layouts = self._layouts(log)
        first, _ = await layouts.read()
        is_known = subscription is not None and await self._is_subscribed(first, subscription)

        def options(partition: int) -> ReaderOptions:
            begin: int | Literal["begin", "end"] = "begin"
            if partition < first.partition_count and not is_known:
                begin = start.get(partition, "begin") if isinstance(start, Mapping) else start
            return ReaderOptions(begin, txid, since, subscription, lock_wait_s, follow, finished_batches)

        async def open_reader(partition: int, layout: PartitionLayout, on_entry: Callable[[], None]) -> PlainLogReader:
            name = partition_log(log, partition)
            return await self._reader(name, options(partition), layout.log_ids[partition], on_entry)

        async def begin(partition: int, layout: PartitionLayout) -> None:
            await self._begin_subscription(partition_log(log, partition), layout.log_ids[partition], options(partition))

        others = None
        if shared and subscription is not None:
            store, root = self._client.store, self._root
            others = SharedSubscription(subscription, lambda log_id: LogConsumers(store, log_id, root), begin)
        return await PartitionedLogReader(
            layouts, open_reader, chosen=partitions, follow=follow, shared=others, retry_s=self.settings.retry_s
        ).open()

    async def _is_subscribed(self, layout: PartitionLayout, subscription: str) -> bool:
        """Return whether a subscription stands in some partition; in one that was added later it begins then."""
        for log_id in layout.log_ids:
            if any(
                one.name == subscription for one in await LogConsumers(self._client.store, log_id, self._root).present()
            ):
                return True
        return False
