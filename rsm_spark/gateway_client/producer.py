"""A producer of a log over gateways: each record is in the log once, whatever fails on the way.

Records go in batches, one behind the other. A batch whose answer is missing is *open*: it is sent again, with the same
sequence, before anything else is. In a partitioned log each batch goes to one partition; when the log has grown, all
open batches are sent once more by the former number, so that it is known which of their records are in the log, and the
others go by the new one, in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from rsm_spark.core.partition_layout import partition_of
from rsm_spark.core.producers import ForgottenSequenceError, PartitionsChangedError
from rsm_spark.errors import OutcomeUnknownError, RsmError
from rsm_spark.gateway_client.errors import GatewayUnavailableError
from rsm_spark.gateway_client.shapes import BATCH_MAX, AppendBody, RecordBody

_BATCH_BYTES = 3 * 1024 * 1024
_RECORD_BYTES = 64

SendBatch = Callable[[AppendBody], Awaitable[list[int]]]
CountPartitions = Callable[[], Awaitable[int | None]]


class AppendedPlace(NamedTuple):
    """Place of a record in the log.

    Attributes:
        position: Its revision in its log, or in its partition.
        partition: Of a partitioned log; None = it has none.

    """

    position: int
    partition: int | None = None


class _SentRecord:
    """A record on its way; it has a place once it is in the log."""

    def __init__(self, body: RecordBody) -> None:
        self.body = body
        self.size = len(body.payload or b"") + len(body.key or b"") + _RECORD_BYTES
        self.place: AppendedPlace | None = None


class _OpenBatch(NamedTuple):
    """Records that are sent together until they are answered."""

    partition: int | None
    partition_count: int | None
    sequence: int
    records: list[_SentRecord]


class GatewayProducer:
    """See the module. Made by `LogGatewayClient.producer`; any number of tasks may use it, one call goes after another.

    Args:
        producer: Its id, which nobody else uses.
        send: Sends a batch, and again until it is answered.
        count_partitions: Tells how many partitions the log has; None = it is a plain log.

    Attributes:
        producer: The same.

    """

    def __init__(self, producer: str, send: SendBatch, count_partitions: CountPartitions) -> None:
        self.producer = producer
        self._send = send
        self._count_partitions = count_partitions
        self._partition_count: int | None = None
        self._is_known = False
        self._next: dict[int | None, int] = {}
        self._turn = 0
        self._open: deque[_OpenBatch] = deque()
        self._refused: list[_SentRecord] = []
        self._lock = asyncio.Lock()

    async def append(self, payload: bytes, *, key: bytes | None = None) -> AppendedPlace:
        """Append a record; see `append_many`."""
        return (await self.append_many([payload], keys=[key]))[0]

    async def append_many(
        self, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = None
    ) -> list[AppendedPlace]:
        """Append records, in their order; return their places when they are in the log.

        Many records go in several batches (10,000 records or 3 MiB each, one partition each): when a call raises, some
        may be in the log.

        Raises:
            OutcomeUnknownError: The answer did not come in time. The next call of this producer, or `settle`, sends
                again what is open, and so each record is in the log once.
            GatewayUnavailableError: The same, and certainly nothing of the last batch is in the log yet.
            LogError: The gateway refuses the records: those without an answer are not in the log, and are forgotten.
            ValueError: There is not a key for each payload.

        """
        keys = [None] * len(payloads) if keys is None else keys
        sent = [_SentRecord(RecordBody(payload=payload, key=key)) for payload, key in zip(payloads, keys, strict=True)]
        async with self._lock:
            await self._settle()
            if not self._is_known:
                self._partition_count, self._is_known = await self._count_partitions(), True
            self._compose(sent)
            await self._settle()
        return [record.place for record in sent if record.place is not None]

    async def settle(self) -> None:
        """Send what is open until it is answered; see `append_many`."""
        async with self._lock:
            await self._settle()

    def _compose(self, records: Sequence[_SentRecord]) -> None:
        """Make batches of records, by partition."""
        count = self._partition_count
        by_partition: dict[int | None, list[_SentRecord]] = {}
        for record in records:
            partition = None
            if count is not None and record.body.key is not None:
                partition = partition_of(record.body.key, count)
            elif count is not None:
                partition, self._turn = self._turn % count, self._turn + 1
            by_partition.setdefault(partition, []).append(record)
        for partition, found in by_partition.items():
            batch: list[_SentRecord] = []
            size = 0
            for record in found:
                if batch and (len(batch) == BATCH_MAX or size + record.size > _BATCH_BYTES):
                    self._add(partition, batch)
                    batch, size = [], 0
                batch.append(record)
                size += record.size
            self._add(partition, batch)

    def _add(self, partition: int | None, records: list[_SentRecord]) -> None:
        sequence = self._next.get(partition, 1)
        self._next[partition] = sequence + len(records)
        self._open.append(_OpenBatch(partition, self._partition_count, sequence, records))

    async def _settle(self) -> None:
        """Send what is open, in order, until all is answered."""
        while self._open or self._refused:
            if not self._open:
                refused, self._refused = self._refused, []
                self._compose(refused)
            batch = self._open[0]
            body = AppendBody(
                self.producer, batch.sequence, [record.body for record in batch.records],
                batch.partition, batch.partition_count,
            )  # fmt: skip
            try:
                positions = await self._send(body)
            except PartitionsChangedError as changed:
                self._part(batch, changed)
            except (OutcomeUnknownError, GatewayUnavailableError):
                raise
            except RsmError as error:
                self._forget(is_in_log=isinstance(error, ForgottenSequenceError))
                raise
            else:
                self._open.popleft()
                _place(batch, positions)

    def _part(self, batch: _OpenBatch, changed: PartitionsChangedError) -> None:
        """Tell records that are in the log from those that go by another number of partitions."""
        self._open.popleft()
        _place(batch, changed.positions)
        self._give_back(batch, len(changed.positions))
        self._refused += batch.records[len(changed.positions) :]
        self._partition_count = changed.partition_count

    def _forget(self, *, is_in_log: bool) -> None:
        """Forget what is open: the first batch was refused, the others were never sent."""
        first = self._open.popleft()
        for batch in reversed(self._open):
            self._give_back(batch, 0)
        if not is_in_log:
            self._give_back(first, 0)
        self._open.clear()
        self._refused.clear()

    def _give_back(self, batch: _OpenBatch, placed: int) -> None:
        self._next[batch.partition] = min(self._next[batch.partition], batch.sequence + placed)


def _place(batch: _OpenBatch, positions: Sequence[int]) -> None:
    for record, position in zip(batch.records, positions, strict=False):
        record.place = AppendedPlace(position, batch.partition)
