"""Plain logs for programs without an event loop.

    from rsm_spark.logs.blocking import BlockingLogs

    with BlockingLogs.connect() as logs:
        logs.create("clicks")
        with logs.open_writer("clicks") as writer:
            appended = [writer.append(b"%d" % number) for number in range(100)]     # futures
            print(appended[-1].result())
        with logs.reader("clicks", follow=False) as reader:
            for record in reader:
                print(record.position, record.payload)

Same calls, same errors as `rsm_spark.logs.namespace.Logs`; any number of threads may use one object at once.

Written by tools/generate_blocking.py: `make blocking` writes it anew.
"""
# Longer than 400 lines: written by a program, and one client.

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Literal, Self

from ledger.loop_thread import settled
from rsm_spark.core.plain_log import LogRecord
from rsm_spark.core.producers import RecordSource
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.core.writer_marks import MarkedReply, WriterMark
from rsm_spark.log.member import Member
from rsm_spark.logs.blocking_base import (
    BlockingLogsBase,
    BlockingPartitionedReaderBase,
    BlockingPartitionedWriterBase,
    BlockingReaderBase,
    BlockingWriterBase,
)
from rsm_spark.logs.log_names import LogInfo, LogNameChange
from rsm_spark.logs.namespace import Logs
from rsm_spark.logs.partitioned_logs import PartitionedLogInfo
from rsm_spark.logs.partitioned_reader import PartitionRecord
from rsm_spark.logs.partitioned_writer import PartitionPosition
from rsm_spark.logs.writer_place import WriterPlace
from rsm_spark.runtime.settings import ReplicaSettings

__all__ = [
    "BlockingLogs",
    "BlockingPartitionedLogReader",
    "BlockingPartitionedLogWriter",
    "BlockingPlainLogReader",
    "BlockingPlainLogWriter",
]


class BlockingPlainLogWriter(BlockingWriterBase):
    """`PlainLogWriter` for code that blocks."""

    @property
    def log(self) -> str:
        """Name of the log."""
        return self.asynchronous.log

    @property
    def last_txid(self) -> int:
        """The last transaction id that was appended; 0 before the first."""
        return self.asynchronous.last_txid

    @property
    def last_position(self) -> int:
        """Position up to which the log is confirmed."""
        return self.asynchronous.last_position

    def append(self, payload: bytes, *, key: bytes | None = None, txid: int | None = None) -> Future[int]:
        """Append a record; the future gives its position once it is confirmed. See `PlainLogWriter.append`."""
        return settled(self.thread.ask(lambda: self.asynchronous.append(payload, key=key, txid=txid)))

    def append_many(
        self, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = None, txid: int | None = None
    ) -> Future[int]:
        """Append records that are in the log together, or not at all; the future gives the position of the last.

        See `PlainLogWriter.append_many`.
        """
        return settled(self.thread.ask(lambda: self.asynchronous.append_many(payloads, keys=keys, txid=txid)))

    def produce(
        self, source: RecordSource, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = None
    ) -> Future[list[int]]:
        """Append records of a producer, each once, however often they are sent; the future gives their positions.

        See `PlainLogWriter.produce`.
        """
        return settled(self.thread.ask(lambda: self.asynchronous.produce(source, payloads, keys=keys)))

    def sent_before(self, source: RecordSource, count: int) -> list[int]:
        """Return the positions of those of a producer's records, the first ones, that were sent before; append nothing.

        See `PlainLogWriter.sent_before`.
        """
        return self.thread.run(self.asynchronous.sent_before(source, count))

    def write_marked(
        self,
        mark: WriterMark,
        payloads: Sequence[bytes] = (),
        *,
        keys: Sequence[bytes | None] | None = None,
        txids: Sequence[int] | None = None,
        owner: str = "",
    ) -> MarkedReply:
        """Append rows of a writer's batch, once, however often they are sent; or begin, end or forget a batch.

        See `PlainLogWriter.write_marked`.
        """
        return self.thread.run(self.asynchronous.write_marked(mark, payloads, keys=keys, txids=txids, owner=owner))

    def drain(self) -> None:
        """Wait until little enough waits to go on appending. See `PlainLogWriter.drain`."""
        self.thread.run(self.asynchronous.drain())

    def flush(self) -> None:
        """Wait until all that was appended so far is confirmed. See `PlainLogWriter.flush`."""
        self.thread.run(self.asynchronous.flush())

    def mark_end(self) -> int:
        """Append the end mark and return its position: nothing follows, for ever; readers end there.

        See `PlainLogWriter.mark_end`.
        """
        return self.thread.run(self.asynchronous.mark_end())

    def trim(self) -> TrimPlan:
        """Trim what the log need not keep, now; return what went, and why the rest stays. See `PlainLogWriter.trim`."""
        return self.thread.run(self.asynchronous.trim())

    def close(self) -> None:
        """Wait until all that was appended has an outcome, and close the log's ledger. The log stays as it is.

        See `PlainLogWriter.close`.
        """
        self.thread.run(self.asynchronous.close())

    def abort(self) -> None:
        """Stop at once: what is on its way has an unknown outcome."""
        self.thread.run(self.asynchronous.abort())


class BlockingPlainLogReader(BlockingReaderBase):
    """`PlainLogReader` for code that blocks."""

    @property
    def position(self) -> int:
        """Position of the last record handed out, or the last one before the start. See `PlainLogReader.position`."""
        return self.asynchronous.position

    @property
    def read_through(self) -> int:
        """Position up to which all was handed out that this reader hands out: the log's own records have some too."""
        return self.asynchronous.read_through

    @property
    def epoch(self) -> int:
        """Epoch of the last entry that was read, handed out or not; each opening of a writer has a higher one."""
        return self.asynchronous.epoch

    @property
    def is_ended(self) -> bool:
        """True once the end mark was read and all before it was handed out."""
        return self.asynchronous.is_ended

    def read(self, records_max: int = 1000, *, wait_s: float = 0.0) -> list[LogRecord]:
        """Return the next records. See `PlainLogReader.read`."""
        return self.thread.run(self.asynchronous.read(records_max, wait_s=wait_s))

    def wait(self, timeout_s: float) -> None:
        """Wait until there may be more to read, or until the time has passed; what is read then, `read` says."""
        self.thread.run(self.asynchronous.wait(timeout_s))

    def processed(self, position: int | None = None) -> None:
        """Store how far this reader's work is done: there it goes on when it is opened again.

        See `PlainLogReader.processed`.
        """
        self.thread.run(self.asynchronous.processed(position))

    @property
    def stored(self) -> int:
        """Position up to which the subscription's work is stored as done."""
        return self.asynchronous.stored

    def store(self, position: int) -> None:
        """Store how far this reader's work is done, now; see `processed`."""
        self.thread.run(self.asynchronous.store(position))

    def close(self) -> None:
        """Let go of everything; what is processed is stored. See `PlainLogReader.close`."""
        self.thread.run(self.asynchronous.close())


class BlockingPartitionedLogWriter(BlockingPartitionedWriterBase):
    """`PartitionedLogWriter` for code that blocks."""

    @property
    def log(self) -> str:
        """Name of the log."""
        return self.asynchronous.log

    @property
    def partition_count(self) -> int:
        """Number of partitions that records go to now."""
        return self.asynchronous.partition_count

    @property
    def last_positions(self) -> tuple[int, ...]:
        """By partition, the position up to which it is confirmed."""
        return self.asynchronous.last_positions

    @property
    def last_txids(self) -> tuple[int, ...]:
        """By partition, the last transaction id that was appended."""
        return self.asynchronous.last_txids

    def append(self, payload: bytes, *, key: bytes | None = None, txid: int | None = None) -> Future[PartitionPosition]:
        """Append a record to the partition of its key; the future tells partition and position once it is confirmed.

        See `PartitionedLogWriter.append`.
        """
        return settled(self.thread.ask(lambda: self.asynchronous.append(payload, key=key, txid=txid)))

    def append_many(
        self, payloads: Sequence[bytes], *, key: bytes | None = None, txid: int | None = None
    ) -> Future[PartitionPosition]:
        """Append records of one key that are in the log together, or not at all; see `append`.

        See `PartitionedLogWriter.append_many`.
        """
        return settled(self.thread.ask(lambda: self.asynchronous.append_many(payloads, key=key, txid=txid)))

    def produce(
        self,
        source: RecordSource,
        payloads: Sequence[bytes],
        *,
        partition: int,
        partition_count: int,
        keys: Sequence[bytes | None] | None = None,
    ) -> list[int]:
        """Append records of a producer to a partition, each once, however often they are sent; return their positions.

        See `PartitionedLogWriter.produce`.
        """
        return self.thread.run(
            self.asynchronous.produce(source, payloads, partition=partition, partition_count=partition_count, keys=keys)
        )

    def write_marked(
        self,
        mark: WriterMark,
        payloads: Sequence[bytes] = (),
        *,
        keys: Sequence[bytes | None] | None = None,
        txids: Sequence[int] | None = None,
        owner: str = "",
    ) -> MarkedReply:
        """Append rows of a writer's batch to the partitions of their keys, once, however often they are sent.

        See `PartitionedLogWriter.write_marked`.
        """
        return self.thread.run(self.asynchronous.write_marked(mark, payloads, keys=keys, txids=txids, owner=owner))

    def drain(self) -> None:
        """Wait until little enough waits to go on appending. See `PartitionedLogWriter.drain`."""
        self.thread.run(self.asynchronous.drain())

    def flush(self) -> None:
        """Wait until all that was appended so far is confirmed. See `PartitionedLogWriter.flush`."""
        self.thread.run(self.asynchronous.flush())

    def grow(self, partitions: int) -> None:
        """Give the log more partitions. What is appended meanwhile waits. See `PartitionedLogWriter.grow`."""
        self.thread.run(self.asynchronous.grow(partitions))

    def mark_end(self) -> tuple[int, ...]:
        """Append the end mark to all partitions, behind all that was appended; return its position in each.

        See `PartitionedLogWriter.mark_end`.
        """
        return self.thread.run(self.asynchronous.mark_end())

    def close(self) -> None:
        """Wait until all that was appended has an outcome, and close the ledgers. The log stays as it is.

        See `PartitionedLogWriter.close`.
        """
        self.thread.run(self.asynchronous.close())

    def abort(self) -> None:
        """Stop at once: what is on its way has an unknown outcome."""
        self.thread.run(self.asynchronous.abort())


class BlockingPartitionedLogReader(BlockingPartitionedReaderBase):
    """`PartitionedLogReader` for code that blocks."""

    @property
    def log(self) -> str:
        """Name of the log."""
        return self.asynchronous.log

    @property
    def positions(self) -> dict[int, int]:
        """By partition that is read, the position up to which all was handed out."""
        return self.asynchronous.positions

    @property
    def is_ended(self) -> bool:
        """True once all was handed out and nothing is waited for: one that follows the log waits for its end mark."""
        return self.asynchronous.is_ended

    @property
    def has_ended(self) -> bool:
        """True once all partitions were read to their end marks and all before those was handed out."""
        return self.asynchronous.has_ended

    def read(self, records_max: int = 1000, *, wait_s: float = 1.0) -> list[PartitionRecord]:
        """Return the next records. See `PartitionedLogReader.read`."""
        return self.thread.run(self.asynchronous.read(records_max, wait_s=wait_s))

    def wait(self, timeout_s: float) -> None:
        """Wait until there may be more to read, or until the time has passed; what is read then, `read` says."""
        self.thread.run(self.asynchronous.wait(timeout_s))

    def processed(self, record: PartitionRecord | None = None) -> None:
        """Store how far the work is done: there this reader goes on when it is opened again.

        See `PartitionedLogReader.processed`.
        """
        self.thread.run(self.asynchronous.processed(record))

    def close(self) -> None:
        """Let go of everything; what is processed is stored. See `PartitionedLogReader.close`."""
        self.thread.run(self.asynchronous.close())


class BlockingLogs(BlockingLogsBase):
    """`Logs` for code that blocks."""

    @classmethod
    def connect(
        cls, metadata_uri: str | None = None, *, settings: ReplicaSettings | None = None, name: str | None = None
    ) -> Self:
        """Return the logs of a cluster. See `Logs.connect`."""
        return cls(lambda: Logs.connect(metadata_uri, settings=settings, name=name))

    def open_writer(
        self, log: str, *, producers: bool = False, place: WriterPlace | None = None
    ) -> BlockingPlainLogWriter:
        """Open the writer of a log. The one before is fenced: what it appends from now on is refused.

        See `Logs.open_writer`.
        """
        return BlockingPlainLogWriter(
            self.thread, self.thread.run(self.asynchronous.open_writer(log, producers=producers, place=place))
        )

    def truncate(self, log: str, position: int) -> TrimPlan:
        """Let go of all records up to a position. See `Logs.truncate`."""
        return self.thread.run(self.asynchronous.truncate(log, position))

    def trim(self, log: str) -> TrimPlan:
        """Trim what the log need not keep, now: its writer does, or this call if there is none. See `Logs.trim`."""
        return self.thread.run(self.asynchronous.trim(log))

    def reader(
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
    ) -> BlockingPlainLogReader:
        """Open a reader of a log; `partitioned_reader` reads a partitioned one. See `Logs.reader`."""
        return BlockingPlainLogReader(
            self.thread,
            self.thread.run(
                self.asynchronous.reader(
                    log,
                    start,
                    txid=txid,
                    since=since,
                    subscription=subscription,
                    lock_wait_s=lock_wait_s,
                    follow=follow,
                    finished_batches=finished_batches,
                )
            ),
        )

    def partitions(self, log: str) -> PartitionedLogInfo:
        """Return what is known of a partitioned log without reading it. See `Logs.partitions`."""
        return self.thread.run(self.asynchronous.partitions(log))

    def partition_count(self, log: str) -> int:
        """Return how many partitions a partitioned log has now. See `Logs.partition_count`."""
        return self.thread.run(self.asynchronous.partition_count(log))

    def open_partitioned_writer(
        self, log: str, *, producers: bool = False, place: WriterPlace | None = None
    ) -> BlockingPartitionedLogWriter:
        """Open the writer of all partitions of a log. The one before is fenced in each: it is over.

        See `Logs.open_partitioned_writer`.
        """
        return BlockingPartitionedLogWriter(
            self.thread,
            self.thread.run(self.asynchronous.open_partitioned_writer(log, producers=producers, place=place)),
        )

    def partitioned_writer(self, log: str) -> Member | None:
        """Return who writes a partitioned log; None = nobody that is alive. See `Logs.partitioned_writer`."""
        return self.thread.run(self.asynchronous.partitioned_writer(log))

    def grow(self, log: str, partitions: int) -> None:
        """Give a partitioned log more partitions: its writer does it, or this call if there is none.

        See `Logs.grow`.
        """
        self.thread.run(self.asynchronous.grow(log, partitions))

    def partitioned_reader(
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
    ) -> BlockingPartitionedLogReader:
        """Open a reader of a partitioned log. It hands out records of one key in the order of their appends.

        See `Logs.partitioned_reader`.
        """
        return BlockingPartitionedLogReader(
            self.thread,
            self.thread.run(
                self.asynchronous.partitioned_reader(
                    log,
                    start,
                    partitions=partitions,
                    txid=txid,
                    since=since,
                    subscription=subscription,
                    shared=shared,
                    lock_wait_s=lock_wait_s,
                    follow=follow,
                    finished_batches=finished_batches,
                )
            ),
        )

    def create(
        self,
        log: str,
        *,
        retention_s: float | None = None,
        retention_bytes: int | None = None,
        until_read: bool = False,
        partitions: int | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a log. See `Logs.create`."""
        self.thread.run(
            self.asynchronous.create(
                log,
                retention_s=retention_s,
                retention_bytes=retention_bytes,
                until_read=until_read,
                partitions=partitions,
                exist_ok=exist_ok,
            )
        )

    def delete(self, log: str) -> None:
        """Delete a log with all that it holds, at once; a deletion that was cut off is finished. See `Logs.delete`."""
        self.thread.run(self.asynchronous.delete(log))

    def rename(self, log: str, new_name: str) -> None:
        """Give a log another name. Who asks for the former name hears the new one. A partitioned log keeps its name.

        See `Logs.rename`.
        """
        self.thread.run(self.asynchronous.rename(log, new_name))

    def list(self, prefix: str = "") -> list[str]:
        """Return the names of all logs that begin so, sorted; those of state machines too. See `Logs.list`."""
        return self.thread.run(self.asynchronous.list(prefix))

    def watch(self, prefix: str = "") -> Iterator[LogNameChange]:
        """Yield which names that begin so are there, then each one that comes or goes. See `Logs.watch`."""
        return self.thread.iterate(self.asynchronous.watch(prefix))

    def is_partitioned(self, log: str) -> bool:
        """Return whether a name is that of a partitioned log. See `Logs.is_partitioned`."""
        return self.thread.run(self.asynchronous.is_partitioned(log))

    def info(self, log: str) -> LogInfo:
        """Return what is known of a log without reading it; of a partitioned one `partitions` tells.

        See `Logs.info`.
        """
        return self.thread.run(self.asynchronous.info(log))

    def retain(
        self, log: str, *, retention_s: float | None, retention_bytes: int | None, until_read: bool = False
    ) -> None:
        """Change what a log keeps; see `create`. Of a partitioned log, what each of its partitions keeps.

        See `Logs.retain`.
        """
        self.thread.run(
            self.asynchronous.retain(
                log, retention_s=retention_s, retention_bytes=retention_bytes, until_read=until_read
            )
        )
