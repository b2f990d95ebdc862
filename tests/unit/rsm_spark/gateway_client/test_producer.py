"""Producers over gateways: each record is in the log once, whatever is lost on the way, and over growths."""

from __future__ import annotations

import asyncio
import random

import pytest

from rsm_spark.core.partition_layout import partition_of
from rsm_spark.core.plain_log import RecordTooLargeError
from rsm_spark.core.producers import PartitionsChangedError, ProducerGapError
from rsm_spark.errors import OutcomeUnknownError
from rsm_spark.gateway_client.producer import AppendedPlace, GatewayProducer
from rsm_spark.gateway_client.shapes import BATCH_MAX, AppendBody


class _TwinLog:
    """A log that knows one producer, as `rsm_spark.core.producers` says; it loses requests and answers."""

    def __init__(self, seed: int, partition_count: int | None, *, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.loss = loss
        self.partition_count = partition_count
        self.partitions: dict[int | None, list[tuple[bytes | None, bytes]]] = {}
        self.asked: list[AppendBody] = []
        # Payloads in the order of their appends, over all partitions.
        self.history: list[bytes] = []

    async def send(self, body: AppendBody) -> list[int]:
        self.asked.append(body)
        await asyncio.sleep(0)
        if self.rng.random() < self.loss:
            raise OutcomeUnknownError("the request was lost")
        try:
            return self._append(body)
        finally:
            if self.rng.random() < self.loss:
                raise OutcomeUnknownError("the answer was lost")

    def _append(self, body: AppendBody) -> list[int]:
        rows = self.partitions.setdefault(body.partition, [])
        have = [len(rows) - body.sequence + 1, 0][len(rows) < body.sequence - 1]
        if body.sequence > len(rows) + 1:
            raise ProducerGapError("gap", len(rows) + 1)
        have = min(have, len(body.records))
        positions = [body.sequence + number for number in range(len(body.records))]
        if body.partitions != self.partition_count:
            assert self.partition_count is not None
            if have < len(body.records):
                raise PartitionsChangedError("grown", self.partition_count, positions[:have])
            return positions
        for record in body.records[have:]:
            assert record.payload is not None
            rows.append((record.key, record.payload))
            self.history.append(record.payload)
        return positions

    async def count(self) -> int | None:
        return self.partition_count

    def producer(self) -> GatewayProducer:
        return GatewayProducer("p", self.send, self.count)


async def _until_appended(
    producer: GatewayProducer, payloads: list[bytes], keys: list[bytes | None]
) -> list[AppendedPlace]:
    try:
        return await producer.append_many(payloads, keys=keys)
    except OutcomeUnknownError:
        while True:
            try:
                await producer.settle()
            except OutcomeUnknownError:
                continue
            return []


@pytest.mark.parametrize("seed", range(60))
def test_each_record_is_there_once_and_keys_keep_their_order_over_losses_and_growths(seed: int) -> None:
    async def run() -> None:
        rng = random.Random(seed)
        log = _TwinLog(seed, rng.choice([None, 1, 2, 5]), loss=rng.choice([0.0, 0.2, 0.5]))
        producer = log.producer()
        sent: list[tuple[bytes, bytes]] = []
        for _ in range(12):
            number = rng.randint(1, 6)
            batch = [(b"k%d" % rng.randint(0, 4), b"%d" % (len(sent) + n)) for n in range(number)]
            sent += batch
            places = await _until_appended(producer, [one[1] for one in batch], [one[0] for one in batch])
            for (key, payload), place in zip(batch, places, strict=False):
                assert log.partitions[place.partition][place.position - 1] == (key, payload)
            if log.partition_count is not None and rng.random() < 0.3:
                log.partition_count += rng.randint(1, 3)
        assert sorted(log.history) == sorted(payload for _, payload in sent)
        for key in {key for key, _ in sent}:
            mine = {payload for one, payload in sent if one == key}
            assert [one for one in log.history if one in mine] == [payload for one, payload in sent if one == key]

    asyncio.run(run())


def test_what_is_open_is_sent_again_before_anything_else() -> None:
    async def run() -> None:
        log = _TwinLog(1, None)
        producer = log.producer()
        log.loss = 1.0
        with pytest.raises(OutcomeUnknownError):
            await producer.append(b"a")
        log.loss = 0.0
        assert await producer.append(b"b") == AppendedPlace(2)
        assert [body.sequence for body in log.asked] == [1, 1, 2]
        assert log.history == [b"a", b"b"]

    asyncio.run(run())


def test_what_was_refused_is_forgotten_and_the_next_record_has_its_sequence() -> None:
    async def run() -> None:
        log = _TwinLog(1, 2)
        producer = log.producer()
        await producer.append(b"a", key=b"k")
        refuse = log.send

        async def too_large(_body: AppendBody) -> list[int]:
            raise RecordTooLargeError("x")

        producer._send = too_large
        with pytest.raises(RecordTooLargeError):
            await producer.append_many([b"b", b"c", b"d"], keys=[b"k", b"other", b"k"])
        producer._send = refuse
        assert await producer.append(b"e", key=b"k") == AppendedPlace(2, partition_of(b"k", 2))
        assert log.history == [b"a", b"e"]

    asyncio.run(run())


def test_batches_are_cut_by_number_and_size_and_keyless_records_go_in_turn() -> None:
    async def run() -> None:
        log = _TwinLog(1, None)
        await log.producer().append_many([b"x"] * (BATCH_MAX + 1))
        assert [len(body.records) for body in log.asked] == [BATCH_MAX, 1]
        log.asked.clear()
        await _TwinLog.producer(large := _TwinLog(1, None)).append_many([b"x" * 2_000_000] * 3)
        assert [len(body.records) for body in large.asked] == [1, 1, 1]
        parted = _TwinLog(1, 3)
        places = await parted.producer().append_many([b"x"] * 6)
        assert [place.partition for place in places] == [0, 1, 2, 0, 1, 2]

    asyncio.run(run())
