"""Producers of a plain log on real bookies: once each, over writers, trims, forks and a raised format."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.core.plain_log import LogEndedError
from rsm_spark.core.producers import PartitionsChangedError, ProducerError, RecordSource, UnknownProducerError
from rsm_spark.core.records import PRODUCERS_LEVEL
from rsm_spark.errors import NotLeaderError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.logs import Logs, PartitionedLogWriter, PlainLogError, partition_of
from rsm_spark.runtime.settings import ReplicaSettings
from tests.integration.test_log_fork import ForkCommand

pytestmark = pytest.mark.asyncio

_ROLLING = ReplicaSettings(roll_records=100, trim_s=3600.0)


async def _payloads(logs: Logs, log: str) -> list[bytes]:
    async with await logs.reader(log, follow=False) as reader:
        return [record.payload async for record in reader]


async def test_what_is_sent_again_has_its_position_whoever_writes_and_whatever_was_trimmed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, fork = cluster.metadata_uri, unique_name, f"{unique_name}-fork"
    async with await Logs.connect(uri, settings=_ROLLING) as logs:
        await logs.create(log)
        async with await logs.open_writer(log) as plain:
            await plain.append(b"before")
            with pytest.raises(PlainLogError, match="it has no producers"):
                plain.produce(RecordSource("p", "ann", 1), [b"p1"])
        before = await logs.open_writer(log, producers=True)
        chain, _ = await ChainStore(logs._client.store, log).read()
        assert chain.format_level == PRODUCERS_LEVEL
        sent = [before.produce(RecordSource("p", "ann", n), [b"p%d" % n]) for n in range(1, 9)]
        positions = [await one for one in sent]
        await ForkCommand(uri, tmp_path).fork(log, fork)  # Nothing has left the log so far.
        async with await logs.open_writer(fork) as forked:
            assert await forked.produce(RecordSource("p", "ann", 8), [b"p8"]) == positions[-1]
            await forked.produce(RecordSource("p", "ann", 9), [b"p9"])
        assert await _payloads(logs, fork) == [b"before", *(b"p%d" % n for n in range(1, 10))]
        for _ in range(10):
            await before.append_many([b"x"] * 100)
        await logs.truncate(log, before.last_position - 1)
        assert (await logs.info(log)).first_position > positions[-1][0], "the ledgers that hold the records are gone"
        async with await logs.open_writer(log) as after:
            with pytest.raises(NotLeaderError):
                await before.produce(RecordSource("p", "ann", 9), [b"p9"])
            again = [await after.produce(RecordSource("p", "ann", n), [b"p%d" % n]) for n in range(1, 9)]
            assert again == positions
            with pytest.raises(UnknownProducerError):
                await after.produce(RecordSource("q", "ann", 2), [b"q2"])
            await after.produce(RecordSource("p", "ann", 9), [b"p9"])
        assert (await _payloads(logs, log)).count(b"p9") == 1
        await before.abort()


async def test_records_of_a_partitioned_log_are_there_once_over_growths_and_writers(
    cluster: DevCluster, unique_name: str
) -> None:
    log, keys = unique_name, [b"k0", b"k1", b"k2", b"k3"]
    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(log, partitions=2)
        places = [partition_of(key, 2) for key in keys]
        first = await logs.open_partitioned_writer(log, producers=True)

        async def send(writer: PartitionedLogWriter, number: int, count: int) -> list[int]:
            """Send the record of a key, by a number of partitions; each key is a producer."""
            source, key = RecordSource(f"p{number}", "ann", 1), keys[number]
            partition = partition_of(key, count)
            return await writer.produce(
                source, [b"%d" % number], partition=partition, partition_count=count, keys=[key]
            )

        said = [await send(first, number, 2) for number in range(3)]
        source = RecordSource("q", "ann", 1)
        with pytest.raises(ProducerError, match=rf"goes to partition {places[0]} of 2"):
            await first.produce(source, [b"x"], partition=1 - places[0], partition_count=2, keys=keys[:1])
        sending = [asyncio.create_task(send(first, number, 2)) for number in range(3)]
        await asyncio.gather(first.grow(3), *sending)
        assert [task.result() for task in sending] == said, "what waits for a growth is what was sent before"
        assert await send(first, 0, 2) == said[0]
        with pytest.raises(PartitionsChangedError) as changed:
            await send(first, 3, 2)
        assert (changed.value.partition_count, changed.value.positions) == (3, [])
        async with await logs.open_partitioned_writer(log, producers=True) as second:
            with pytest.raises(NotLeaderError):
                await send(first, 3, 3)
            await send(second, 3, 3)
            assert await send(second, 1, 2) == said[1]
            with pytest.raises(PartitionsChangedError, match="it has 3 partitions"):
                await send(second, 3, 7)
        await first.abort()
        async with await logs.partitioned_reader(log, follow=False) as reader:
            assert sorted([record.payload async for record in reader]) == [b"0", b"1", b"2", b"3"]


async def test_the_end_of_a_partitioned_log_that_was_cut_off_is_completed(
    cluster: DevCluster, unique_name: str
) -> None:
    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(unique_name, partitions=3)
        reader = await logs.partitioned_reader(unique_name)
        writer = await logs.open_partitioned_writer(unique_name)
        await writer.append(b"last", key=b"k")
        await writer._parts[1].mark_end()  # And no further.
        await writer.abort()
        with pytest.raises(LogEndedError):
            await logs.open_partitioned_writer(unique_name)
        assert [record.payload async for record in reader] == [b"last"], "it ends, although it follows the log"
        assert reader.is_ended
        await reader.close()
        with pytest.raises(LogEndedError):
            await logs.open_partitioned_writer(unique_name)
        await logs.create(f"{unique_name}-whole", partitions=2)
        async with await logs.open_partitioned_writer(f"{unique_name}-whole") as whole:
            await whole.append(b"only", key=b"k")
            assert len(await whole.mark_end()) == 2
            with pytest.raises(LogEndedError):
                whole.append(b"more", key=b"k")
        async with await logs.partitioned_reader(f"{unique_name}-whole") as ended:
            assert [record.payload async for record in ended] == [b"only"]
