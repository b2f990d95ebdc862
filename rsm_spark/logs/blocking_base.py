"""The parts of the blocking client of plain logs that are written by hand; `rsm_spark.logs.blocking` has the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ledger.blocking_base import BlockingCalls, BlockingClient
from ledger.loop_thread import LoopThread, quickest_loop
from rsm_spark.core.plain_log import LogRecord
from rsm_spark.logs.namespace import Logs
from rsm_spark.logs.partitioned_reader import PartitionedLogReader, PartitionRecord
from rsm_spark.logs.partitioned_writer import PartitionedLogWriter
from rsm_spark.logs.record_reader import PlainLogReader
from rsm_spark.logs.record_writer import PlainLogWriter

_Writer = TypeVar("_Writer", PlainLogWriter, PartitionedLogWriter)
_Reader = TypeVar("_Reader", PlainLogReader, PartitionedLogReader)


class _AnyWriter(BlockingCalls[_Writer], Generic[_Writer]):
    """A blocking writer as a context manager."""

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error nothing is waited for that may never come."""
        self.thread.run(self.asynchronous.__aexit__(kind, error, trace))


class _AnyReader(BlockingCalls[_Reader], Generic[_Reader]):
    """A blocking reader as a context manager."""

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        self.thread.run(self.asynchronous.close())


class BlockingWriterBase(_AnyWriter[PlainLogWriter]):
    """A blocking writer as a context manager."""


class BlockingPartitionedWriterBase(_AnyWriter[PartitionedLogWriter]):
    """A blocking writer of a partitioned log as a context manager."""


class BlockingReaderBase(_AnyReader[PlainLogReader]):
    """A blocking reader as an iterator and a context manager."""

    def __iter__(self) -> Iterator[LogRecord]:
        """Yield the records, and wait for those to come."""
        return self.thread.iterate(_records(self.asynchronous))


class BlockingPartitionedReaderBase(_AnyReader[PartitionedLogReader]):
    """A blocking reader of a partitioned log as an iterator and a context manager."""

    def __iter__(self) -> Iterator[PartitionRecord]:
        """Yield the records, and wait for those to come."""
        return self.thread.iterate(_partition_records(self.asynchronous))


async def _records(reader: PlainLogReader) -> AsyncGenerator[LogRecord, None]:
    async for record in reader:
        yield record


async def _partition_records(reader: PartitionedLogReader) -> AsyncGenerator[PartitionRecord, None]:
    async for record in reader:
        yield record


class BlockingLogsBase(BlockingClient[Logs]):
    """Thread and connection of the blocking client of plain logs."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Logs]]) -> None:
        super().__init__(LoopThread("rsm-logs", new_loop=quickest_loop), make)
