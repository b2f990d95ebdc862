"""Logs of a cluster, for programs that append and read records themselves: no state machine, no server.

    from rsm_spark.logs import Logs

    async with await Logs.connect() as logs:
        await logs.create("clicks", retention_s=7 * 86_400)
        async with await logs.open_writer("clicks") as writer:      # fences the writer before
            position = await writer.append(b"page=/", key=b"ann", txid=7)
        async with await logs.reader("clicks", start="begin") as reader:
            async for record in reader:                             # confirmed records, and those to come
                print(record.position, record.txid, record.payload)

A log has one writer at a time: opening one deposes the one before, whose appends then fail with `NotLeaderError`. It
has any number of readers. What a reader has seen is in the log for ever, until it is trimmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Literal, Self

import msgspec

from ledger.client.client import LedgerClient
from ledger.decoding import convert
from rsm_spark.client.consumers import ClientConsumers
from rsm_spark.core.admission import password_mark
from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.plain_log import PlainLogError, first_txid
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.errors import LogError, MissingLogError, NoLeaderError
from rsm_spark.log.admin_requests import AdminRequests, TrimRequest
from rsm_spark.log.consumers import LogConsumers, trimmed_revision
from rsm_spark.log.log_policy import LogPolicy, change_policy, read_policy
from rsm_spark.log.partition_names import whole_of
from rsm_spark.log.reader_lock import ReaderLock
from rsm_spark.logs.context import LogContext
from rsm_spark.logs.partitioned_logs import PartitionedLogs
from rsm_spark.logs.record_reader import PlainLogReader, ReaderOptions, ReaderStart, ReaderSubscription
from rsm_spark.logs.record_writer import PlainLogWriter
from rsm_spark.logs.seeking import StartPlace, find_place
from rsm_spark.logs.writer_place import WriterPlace
from rsm_spark.logs.writing import WriterDriver
from rsm_spark.runtime.settings import ReplicaSettings

_ORDER_S = 5.0
_ORDER_TRIES = 6


class Logs(PartitionedLogs):
    """The plain logs of one cluster; see the module. Use it on one event loop; `async with` closes it."""

    @classmethod
    async def connect(
        cls, metadata_uri: str | None = None, *, settings: ReplicaSettings | None = None, name: str | None = None
    ) -> Self:
        """Return the logs of a cluster.

        Args:
            metadata_uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
            settings: See the class.
            name: See the class.

        Raises:
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        return cls(await LedgerClient.connect(metadata_uri), settings, name=name)

    async def close(self) -> None:
        """Disconnect. Writers and readers are closed before, by whoever opened them."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        """Return the object."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        await self.close()

    # ---- appending

    async def open_writer(
        self, log: str, *, producers: bool = False, place: WriterPlace | None = None
    ) -> PlainLogWriter:
        """Open the writer of a log. The one before is fenced: what it appends from now on is refused.

        Args:
            log: Its name.
            producers: It takes records of producers: see `PlainLogWriter.produce`. The log has format level 4 from now
                on, which versions of before do not write.
            place: Where others reach this writer, if they do.

        Raises:
            NoSuchLogError: There is no log of this name: `create` makes it.
            PartitionedLogError: It is partitioned: see `open_partitioned_writer`.
            LogEndedError: It has its end mark.
            PlainLogError: It is the log of a state machine; or a partition, which the writer of the whole writes.
            NotLeaderError: Another writer was opened meanwhile.
            AdmissionError: This process lacks the log's key or password, or is too old for it.
            CorruptLogError: The end of the log is damaged, or is not the log's.
            MetadataError: ZooKeeper cannot be asked.

        """
        context, _ = await self._context(log)
        whole = await whole_of(self._client.store, log, context.log_id, self._root)
        if whole is not None:
            raise PlainLogError(
                f"log {log}: it is a partition of log {whole}, and one writer writes all of them: "
                f"Logs.open_partitioned_writer, or rsm log append {whole}"
            )
        return await self._open(log, is_upkeep=False, has_producers=producers, place=place)

    async def _open(
        self,
        log: str,
        log_id: str = "",
        *,
        is_upkeep: bool,
        has_producers: bool = False,
        place: WriterPlace | None = None,
    ) -> PlainLogWriter:
        context, _ = await self._context(log, log_id)
        password = self.settings.ledger_password
        if password:
            mark = await asyncio.to_thread(password_mark, password, context.log_id)
        else:
            mark = password_mark(password, context.log_id)
        driver = WriterDriver(context, mark, is_upkeep=is_upkeep, has_producers=has_producers)
        return await PlainLogWriter(context, driver, self._keeper(log, context.me, place)).open()

    async def truncate(self, log: str, position: int) -> TrimPlan:
        """Let go of all records up to a position.

        Readers that begin at the beginning begin behind it from now on. Whole ledgers go at once, but for what a
        subscription holds; what is left of the others goes when their last record may.

        Returns:
            What went, and why the rest stays.

        Raises:
            NoSuchLogError: There is no log of this name.
            NoLeaderError: The writer does not answer; it trims when it looks next.
            MetadataError: ZooKeeper cannot be asked; the truncation may stand.

        """
        context, _ = await self._context(log)

        def further(policy: LogPolicy) -> LogPolicy:
            return msgspec.structs.replace(policy, truncated=max(policy.truncated, position))

        await change_policy(self._client.store, context.log_id, self._root, further)
        return await self.trim(log)

    async def trim(self, log: str) -> TrimPlan:
        """Trim what the log need not keep, now: its writer does, or this call if there is none.

        Returns:
            What went, and why the rest stays.

        Raises:
            NoSuchLogError: There is no log of this name.
            NoLeaderError: The writer does not answer.
            MetadataError: ZooKeeper cannot be asked.

        """
        for left in range(_ORDER_TRIES - 1, -1, -1):
            if not await self._is_written(log):
                break
            try:
                return await self._order_trim(log)
            except NoLeaderError:
                if not left:
                    raise
        writer = await self._open(log, is_upkeep=True)
        try:
            return await writer.trim()
        finally:
            await writer.close()

    async def _order_trim(self, log: str) -> TrimPlan:
        """Have the writer trim; one that has just gone does not answer."""
        desk = AdminRequests(self._client.store, log, self._root)
        answer = await desk.place(TrimRequest(), timeout_s=_ORDER_S)
        if answer.refusal:
            raise LogError(f"log {log}: {answer.by} does not trim it: {answer.refusal}")
        plan = {name: value for name, value in answer.outcome.items() if name != "dry_run"}
        return convert(plan, TrimPlan)

    # ---- reading

    async def reader(
        self,
        log: str,
        start: int | Literal["begin", "end"] = "begin",
        *,
        txid: int | None = None,
        since: datetime | None = None,
        subscription: str | None = None,
        lock_wait_s: float | None = 0.0,
        follow: bool = True,
        finished_batches: bool = False,
    ) -> PlainLogReader:
        """Open a reader of a log; `partitioned_reader` reads a partitioned one.

        Args:
            log: Its name.
            start: The first position; or where the log begins; or behind what is confirmed now.
            txid: Begin with the first record of this transaction id or a higher one instead.
            since: Begin with the first record that was logged then or later instead.
            subscription: Store the position under this name, and hold the log from there on. If there is one of this
                name already, the reader goes on there, whatever `start` says.
            lock_wait_s: How long to wait for another reader of this subscription to go; None = it need not go: both
                read, and the position is that of the one that was opened last.
            follow: Wait for what is appended later; False = end where the log is confirmed now.
            finished_batches: Hand out the rows of a writer's batch (Spark's sink has such) when the batch has ended:
                all of them where its end stands, the first ones of a batch that began before the start too. Those of a
                batch that never ends are not handed out, and nobody waits for them.

        Raises:
            NoSuchLogError: There is no log of this name; `PartitionedLogError` if it is partitioned.
            MissingLogError: The log was trimmed beyond the position.
            ReaderLockError: Another reader of the subscription did not go.
            ConsumerError: The subscription cannot be stored.
            LedgerError, MetadataError: Bookies or ZooKeeper cannot be asked.

        """
        options = ReaderOptions(start, txid, since, subscription, lock_wait_s, follow, finished_batches)
        return await self._reader(log, options)

    async def _reader(
        self, log: str, options: ReaderOptions, log_id: str = "", on_entry: Callable[[], None] | None = None
    ) -> PlainLogReader:
        start, txid, since, subscription, lock_wait_s, follow, finished = options
        context, chain = await self._context(log, log_id)
        if subscription is None:
            begin = await self._start(context, chain, start, txid, since)
            return PlainLogReader(
                context, begin, follow=follow, subscription=None, on_entry=on_entry, finished_batches=finished
            )
        lock = None
        if lock_wait_s is not None:
            lock = ReaderLock(self._client.store, context.log_id, subscription, self._root)
            await lock.acquire(lock_wait_s)
        try:
            consumers = ClientConsumers(self._client.store, log, self._root, kind="reader")
            stored = await consumers.begin(subscription, None)
            if stored is None:
                begin = await self._hold(context, consumers, subscription, (start, txid, since))
            else:
                begin = await self._start(context, chain, stored + 1, None, None)
            stored_in = ReaderSubscription(subscription, consumers, lock)
            return PlainLogReader(
                context, begin, follow=follow, subscription=stored_in, on_entry=on_entry, finished_batches=finished
            )
        except BaseException:
            if lock is not None:
                await lock.release()
            raise

    async def _hold(
        self,
        context: LogContext,
        consumers: ClientConsumers,
        subscription: str,
        wanted: tuple[int | Literal["begin", "end"], int | None, datetime | None],
    ) -> ReaderStart:
        """Find where a new subscription begins, and hold the log from there on."""
        while True:
            chain, _ = await context.chains.read()
            begin = await self._start(context, chain, *wanted)
            await consumers.begin(subscription, begin.place.revision)
            chain, _ = await context.chains.read()
            if trimmed_revision(chain) <= begin.place.revision:  # Else it went while this was looked for.
                return begin

    async def _begin_subscription(self, log: str, log_id: str, options: ReaderOptions) -> None:
        """Begin a subscription whose reader comes later, unless it has begun."""
        start, txid, since, subscription, *_ = options
        assert subscription is not None
        consumers = LogConsumers(self._client.store, log_id, self._root)
        if any(one.name == subscription for one in await consumers.present()):
            return
        context, chain = await self._context(log, log_id)
        begin = await self._start(context, chain, start, txid, since)
        await consumers.begin(log, subscription, begin.place.revision, what="a shared subscription")

    async def _start(
        self,
        context: LogContext,
        chain: LogChain,
        start: int | Literal["begin", "end"],
        txid: int | None,
        since: datetime | None,
    ) -> ReaderStart:
        """Find where a reader begins.

        Raises:
            MissingLogError: The log was trimmed beyond the position.
            LedgerError, MetadataError: Bookies or ZooKeeper cannot be asked.

        """
        gone = trimmed_revision(chain)
        policy, _ = await read_policy(self._client.store, context.log_id, self._root)
        first = max(gone, policy.truncated) + 1
        if txid is not None:
            wanted = txid
            place = await find_place(context, chain, lambda payload: first_txid(payload) < wanted)
            return ReaderStart(place, position=first, txid=wanted)
        if since is not None:
            since_ms = int(since.timestamp() * 1000)
            place = await find_place(context, chain, lambda payload: decode_envelope(payload).logged_ms < since_ms)
            return ReaderStart(place, position=first, since_ms=since_ms)
        if start == "end":
            place = await find_place(context, chain, lambda _payload: True)
            return ReaderStart(place, position=place.last_revision + 1)
        position = first if start == "begin" else start
        if position <= gone and start != "begin":
            raise MissingLogError(
                f"log {context.log}: positions {position} to {gone} have left the log, which begins with {gone + 1} "
                'now: begin there, or with start="begin"',
                first_revision=position,
                last_revision=gone,
            )
        if position == 1:  # Where nothing has to be looked for.
            return ReaderStart(StartPlace(None, 0, 0), position=1)
        place = await find_place(context, chain, lambda payload: decode_envelope(payload).first_revision <= position)
        return ReaderStart(place, position=position)
