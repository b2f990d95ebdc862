"""Writers of batches in a plain log on real bookies: once each, over writers of the log and trims."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from connectors.source.access import DriverAccess
from connectors.source.inputs import read_input
from connectors.source.logs_source import LogsSource
from connectors.source.options import parse_options
from connectors.source.plan import MicroBatchLimits
from ledger.dev import DevCluster
from rsm_spark.cli.log_requests import place_order
from rsm_spark.core.batch_pieces import PartitionedWriters
from rsm_spark.core.plain_log import PlainRecord
from rsm_spark.core.producers import RecordSource
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, MarkKind, WriterMark
from rsm_spark.errors import NotLeaderError, RsmError
from rsm_spark.log.admin_requests import ForgetWriterRequest, HandOverWriterRequest, Order, WritersRequest
from rsm_spark.logs import Logs, PartitionedLogWriter, PlainLogError, TransactionIdError, partition_of
from rsm_spark.runtime.settings import ReplicaSettings

pytestmark = pytest.mark.asyncio

_ROLLING = ReplicaSettings(roll_records=100, trim_s=3600.0)


def _chunk(part: int, number: int, *, batch: int = 0, run: str = "r1", checkpoint: str = "c") -> WriterMark:
    return WriterMark("job", MarkKind.CHUNK, checkpoint, run, batch, part, number)


def _end(*parts: tuple[int, int], batch: int = 0, run: str = "r1") -> WriterMark:
    return WriterMark("job", MarkKind.END, "c", run, batch, parts=parts)


async def _payloads(logs: Logs, log: str) -> list[bytes]:
    async with await logs.reader(log, follow=False) as reader:
        return [record.payload async for record in reader]


async def test_a_batch_is_in_the_log_once_whoever_writes_it_and_whatever_was_trimmed(
    cluster: DevCluster, unique_name: str
) -> None:
    log = unique_name
    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(log)
        async with await logs.open_writer(log) as plain:
            with pytest.raises(PlainLogError, match="it has no producers"):
                await plain.write_marked(_chunk(0, 0), [b"a"])
        before = await logs.open_writer(log, producers=True)
        await before.produce(RecordSource("p", "ann", 1), [b"p1"])
        first = [before.write_marked(_chunk(part, 0), [b"%d" % part, b"x"]) for part in (0, 1)]
        assert {one.status for one in await asyncio.gather(*first)} == {MarkedStatus.APPLIED}
        after = await logs.open_writer(log)
        with pytest.raises(NotLeaderError):
            await before.write_marked(_chunk(1, 1), [b"y"])
        assert (await after.write_marked(_chunk(0, 0, run="r2"), [b"0", b"x"])).status is MarkedStatus.DONE
        other = await after.write_marked(_chunk(1, 0, run="r2"), [b"1", b"other"])
        assert other.status is MarkedStatus.REFUSED
        assert "with other rows" in other.reason
        assert (await after.write_marked(_end((0, 1), (1, 2), run="r2"))).status is MarkedStatus.REFUSED
        assert (await after.write_marked(_end((0, 1), (1, 1), run="r2"))).status is MarkedStatus.APPLIED
        for _ in range(5):
            await after.append_many([b"z"] * 100)
        await logs.truncate(log, after.last_position - 1)
        assert (await logs.info(log)).first_position > 10
        async with await logs.open_writer(log) as last:
            for mark in (_chunk(0, 0, run="r3"), _end((0, 1), (1, 1), run="r3"), _chunk(7, 0, run="r3")):
                assert (await last.write_marked(mark, [b"n"] if mark.kind is MarkKind.CHUNK else [])).status is (
                    MarkedStatus.DONE
                )
            assert (await last.write_marked(_chunk(0, 0, batch=1, run="r2"), [b"n"])).status is MarkedStatus.APPLIED
            zombie = await last.write_marked(_chunk(0, 1, batch=1, run="r1"), [b"n"])
            assert "was taken over from" in zombie.reason
            assert "takeOver=c" in (await last.write_marked(_chunk(0, 0, checkpoint="d"), [b"n"])).reason
            await last.produce(RecordSource("p", "ann", 2), [b"p2"])
        assert (await _payloads(logs, log))[-2:] == [b"n", b"p2"]


async def test_operators_see_writers_forget_them_and_hand_them_over(cluster: DevCluster, unique_name: str) -> None:
    log = unique_name

    async def told(*command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rsm_spark", "log", "writer", *command, "--metadata-uri", cluster.metadata_uri,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        return output.decode()

    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(log)
        async with await logs.open_writer(log, producers=True) as writer:
            await writer.write_marked(_chunk(2, 0), [b"a", b"b"], owner="ann/o")
            assert "writer ann%2Fo/job: batch 0 has begun, not ended; checkpoint c" in await told("list", log)
            assert "part 2: 1 chunks, 2 rows" in await told("show", log, "ann%2Fo/job")
            await told("take-over", log, "ann%2Fo/job", "--checkpoint", "d")
            assert "checkpoint d" in await told("list", log)
            await told("forget", log, "ann%2Fo/job")
            assert "ann" not in await told("list", log)
            again = await writer.write_marked(_chunk(2, 0), [b"a", b"b"], owner="ann/o")
            assert again.status is MarkedStatus.APPLIED
        async with await logs.open_writer(log) as last:
            assert (await last.write_marked(_chunk(2, 0), [b"a", b"b"], owner="ann/o")).status is MarkedStatus.DONE


async def test_a_batch_of_a_partitioned_log_is_there_once_over_a_growth_and_another_writer(
    cluster: DevCluster, unique_name: str
) -> None:
    log = unique_name
    rows = [(b"k%d" % number, b"%d" % number) for number in range(40)]

    async def write(writer: PartitionedLogWriter, mark: WriterMark, payloads: Sequence[bytes] = ()) -> MarkedReply:
        keys = [key for key, payload in rows if payload in payloads]
        return await writer.write_marked(mark, payloads, keys=keys, owner="ann")

    async def order(log: str, order: Order) -> dict[str, Any]:
        return await place_order(log, order, 30.0, cluster.metadata_uri, "/rsm")

    def payloads(chunk: int) -> list[bytes]:
        return [payload for _, payload in rows[chunk * 10 : chunk * 10 + 10]]

    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(log, partitions=2)
        before = await logs.open_partitioned_writer(log, producers=True)
        sent = [write(before, _chunk(chunk, 0), payloads(chunk)) for chunk in range(3)]
        growing = asyncio.get_running_loop().create_task(before.grow(3))
        assert {one.status for one in await asyncio.gather(*sent)} == {MarkedStatus.APPLIED}
        await growing
        after = await logs.open_partitioned_writer(log, producers=True)
        with pytest.raises(NotLeaderError):
            await write(before, _chunk(3, 0), payloads(3))
        await after.grow(5)
        for chunk in range(4):
            found = await write(after, _chunk(chunk, 0, run="r2"), payloads(chunk))
            assert found.status is (MarkedStatus.DONE if chunk < 3 else MarkedStatus.APPLIED)
        other = await write(after, _chunk(0, 0, run="r2"), [*payloads(0)[:-1], b"39"])
        assert "with other rows" in other.reason
        named = [(chunk, 1) for chunk in range(4)]
        assert (await write(after, _end(*named[:3], run="r2"))).status is MarkedStatus.REFUSED
        told = await order(log, WritersRequest("ann/job"))
        assert [one["row_count"] for one in told["writer"]["parts"]] == [10, 10, 10, 10]
        assert (await write(after, _end(*named, run="r2"))).status is MarkedStatus.APPLIED
        assert (await write(after, _chunk(7, 0, run="r2"), payloads(0))).status is MarkedStatus.DONE
        given = await order(log, HandOverWriterRequest("ann/job", "d"))
        assert given["writer"]["is_ended"]
        await order(log, ForgetWriterRequest("ann/job"))
        assert (await order(log, WritersRequest()))["writers"] == []
        with pytest.raises(RsmError, match="knows writers"):
            await order(f"{log}.p0", WritersRequest())
        await after.close()
        async with await logs.partitioned_reader(log, follow=False) as reader:
            assert sorted([(record.key, record.payload) async for record in reader]) == sorted(rows)


async def test_partitions_show_a_batch_when_all_of_it_is_there_and_the_next_writer_tells_of_an_end_that_was_cut_off(
    cluster: DevCluster, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = unique_name
    rows = [(b"k%d" % number, b"%d" % number) for number in range(60)]
    keys, payloads = [key for key, _ in rows], [payload for _, payload in rows]

    async def chunk(writer: PartitionedLogWriter, number: int, run: str = "r1") -> MarkedStatus:
        some = slice(number * 20, number * 20 + 20)
        return (await writer.write_marked(_chunk(0, number, run=run), payloads[some], keys=keys[some])).status

    async def shown(**more: Any) -> list[tuple[int, bytes]]:
        async with await logs.partitioned_reader(log, follow=False, finished_batches=True, **more) as reader:
            return [(record.partition, record.payload) async for record in reader]

    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(log, partitions=3)
        before = await logs.open_partitioned_writer(log, producers=True)
        assert [await chunk(before, number) for number in range(2)] == [MarkedStatus.APPLIED] * 2
        loose = await before.append(b"loose", key=b"k0")
        await before.abort()  # Its driver dies with it.
        after = await logs.open_partitioned_writer(log, producers=True)
        assert await shown() == [(loose.partition, b"loose")]
        assert [await chunk(after, number, "r2") for number in range(3)] == [MarkedStatus.DONE] * 2 + [
            MarkedStatus.APPLIED
        ]
        with monkeypatch.context() as patch:  # It dies when the end stands at the writer's home.
            patch.setattr(PartitionedWriters, "_untold", lambda *_: {})
            assert (await after.write_marked(_end((0, 3), run="r2"))).status is MarkedStatus.APPLIED
        await after.close()
        home = {partition for partition, payload in await shown() if payload != b"loose"}
        assert len(home) == 1
        async with await logs.open_partitioned_writer(log, producers=True) as last:
            again = await last.write_marked(_end((0, 3), run="r2"))
            assert again.status is MarkedStatus.DONE
        found = await shown()
        assert sorted(found) == sorted([(loose.partition, b"loose"), *((partition_of(k, 3), p) for k, p in rows)])
        assert [payload for _, payload in await shown(partitions=[1])] == [
            p for k, p in rows if partition_of(k, 3) == 1
        ]
        finished: dict[str, Any] = {"subscription": "s", "follow": False, "finished_batches": True}
        async with await logs.partitioned_reader(log, **finished) as reader:
            seen = {(record.partition, record.payload) for record in await reader.read(3, wait_s=30)}
            await reader.processed()
        async with await logs.partitioned_reader(log, **finished) as reader:  # What it had in part comes again.
            seen |= {(record.partition, record.payload) async for record in reader}
        assert sorted(seen) == sorted(found)


async def test_rows_have_transaction_ids_of_their_own_which_never_fall(cluster: DevCluster, unique_name: str) -> None:
    log, rows = unique_name, [b"a", b"b", b"c"]
    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(log)
        async with await logs.open_writer(log, producers=True) as writer:
            await writer.append(b"first", txid=3)
            sent = await writer.write_marked(_chunk(0, 0), rows, txids=[3, 7, 7])
            assert sent.status is MarkedStatus.APPLIED
            await writer.append(b"above", txid=20)
            with pytest.raises(TransactionIdError, match="transaction id 19 of record 0 of this append: it must be 20"):
                await writer.write_marked(_chunk(0, 1), [b"d"], txids=[19])
        async with await logs.open_writer(log, producers=True) as after:
            # What is there is known though the log has gone on, and is told from other transaction ids.
            again = await after.write_marked(_chunk(0, 0, run="r2"), rows, txids=[3, 7, 7])
            assert again.status is MarkedStatus.DONE
            other = await after.write_marked(_chunk(0, 0, run="r2"), rows, txids=[3, 7, 8])
            assert "with other rows" in other.reason
            assert (await after.write_marked(_chunk(0, 1, run="r2"), [b"d"], txids=[20])).status is MarkedStatus.APPLIED
            assert (await after.write_marked(_end((0, 2), run="r2"))).status is MarkedStatus.APPLIED
            assert after.last_txid == 20
        async with await logs.reader(log, follow=False, txid=7) as reader:
            found = [(record.payload, record.txid) async for record in reader]
        assert found == [(b"b", 7), (b"c", 7), (b"above", 20), (b"d", 20)]
        await logs.create(f"{log}-parts", partitions=2)
        async with await logs.open_partitioned_writer(f"{log}-parts", producers=True) as parts:
            with pytest.raises(PlainLogError, match="rows of a batch are appended without them"):
                await parts.write_marked(_chunk(0, 0), rows, txids=[3, 7, 7])


async def _finished(logs: Logs, log: str, **more: Any) -> list[bytes]:
    async with await logs.reader(log, follow=False, finished_batches=True, **more) as reader:
        return [record.payload async for record in reader]


async def test_readers_of_finished_batches_get_whole_ones_at_their_ends_over_ledgers_and_restarts(
    cluster: DevCluster, unique_name: str
) -> None:
    log = unique_name
    rows = [[b"%d.%d.%d" % (part, chunk, row) for row in range(30)] for part in (0, 1) for chunk in range(3)]
    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(log)
        async with await logs.open_writer(log, producers=True) as writer:
            for number, some in enumerate(rows):
                await writer.write_marked(_chunk(number // 3, number % 3), some, owner="o")
                await writer.append(b"between %d" % number)
            between = [b"between %d" % number for number in range(6)]
            assert await _finished(logs, log) == between
            given_up = WriterMark("other", MarkKind.CHUNK, "c", "r", 0)
            await writer.write_marked(given_up, [b"never"], owner="o")
            assert (await writer.write_marked(_end((0, 3), (1, 3)), owner="o")).status is MarkedStatus.APPLIED
            end = writer.last_position - 1
            await writer.append(b"behind")
        whole = [row for some in rows for row in some]
        assert (await logs.info(log)).ledgers > 1
        assert await _finished(logs, log) == [*between, *whole, b"behind"]
        assert await _finished(logs, log, start=end) == [*whole, b"behind"]
        assert await _finished(logs, log, start=end + 1) == [b"behind"]
        seen: list[bytes] = []
        for taken in (4, 2 + 50, 180, 1):  # The second one ends inside the batch, which is handed out anew.
            async with await logs.reader(log, subscription="s", follow=False, finished_batches=True) as reader:
                some = [record.payload for record in await reader.read(taken)]
                while len(some) < taken:
                    some += [record.payload for record in await reader.read(taken - len(some))]
                await reader.processed()
                seen += some
        assert seen == [*between, *whole[:50], *whole, b"behind"]
        planned = await asyncio.to_thread(_planned_and_read, cluster.metadata_uri, log)
        assert planned == [*between, *whole, b"behind"]


def _planned_and_read(uri: str, log: str) -> list[bytes]:
    """Read the log as Spark's driver plans it and its tasks read it, micro-batch by micro-batch."""
    given = {"log": log, "metadataUri": uri, "startingOffsets": "earliest", "finishedBatches": "true"}
    options = parse_options({**given, "minPartitions": "2"}, is_stream=True)
    access = DriverAccess(options)
    found: list[bytes] = []
    try:
        source = LogsSource(options, access)
        at = source.bound(is_start=True)
        while (end := source.following(at, MicroBatchLimits(offsets_max=40), None)) != at:
            for batch in (batch for part in source.partitions(at, end) for batch in read_input(part)):
                kinds, rows = batch.column("type").to_pylist(), batch.column("row").to_pylist()
                found += [
                    msgspec.msgpack.decode(row)[2]
                    for kind, row in zip(kinds, rows, strict=True)
                    if kind == PlainRecord.APPENDED
                ]
            at = end
    finally:
        access.close()
    return found
