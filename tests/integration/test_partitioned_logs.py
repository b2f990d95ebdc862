"""Partitioned logs on real bookies and a real ZooKeeper: keys keep their order while the log grows."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.errors import LogError, MissingLogError, NoSuchLogError, NotLeaderError, PartitionedLogError
from rsm_spark.logs import (
    Logs,
    PartitionedLogReader,
    PartitionRecord,
    PlainLogError,
    ReaderLockError,
    partition_log,
    partition_of,
)
from rsm_spark.logs.blocking import BlockingLogs
from rsm_spark.runtime.settings import ReplicaSettings
from tests.integration.test_log_fork import ForkCommand

_ROLLING = ReplicaSettings(roll_records=50, trim_s=0.2)


async def _all(logs: Logs, log: str) -> list[PartitionRecord]:
    async with await logs.partitioned_reader(log, follow=False) as reader:
        return [record async for record in reader]


async def _read(reader: PartitionedLogReader, count: int) -> list[PartitionRecord]:
    found: list[PartitionRecord] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await reader.read(count - len(found), wait_s=5)
    return found


def _check_order(records: list[PartitionRecord]) -> None:
    """Check that the numbers of each key rise."""
    by_key: dict[bytes, list[int]] = {}
    for record in records:
        assert record.key is not None
        by_key.setdefault(record.key, []).append(int(record.payload))
    for numbers in by_key.values():
        assert numbers == sorted(set(numbers))


@pytest.mark.asyncio
async def test_keys_keep_their_order_while_the_log_grows(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(unique_name, partitions=2)
        follower = await logs.partitioned_reader(unique_name)
        writer = await logs.open_partitioned_writer(unique_name)
        growing: list[asyncio.Task[None]] = []
        for number in range(600):
            writer.append(b"%d" % number, key=b"k%d" % (number % 10))
            if number in (200, 400):  # By the writer itself, and by order of another program.
                grow = writer.grow(5) if number == 200 else logs.grow(unique_name, 7)
                growing.append(asyncio.create_task(grow))
            if number % 10 == 0:
                await asyncio.sleep(0.001)
        await asyncio.gather(*growing)
        last = await writer.append(b"600", key=b"k0")
        assert last.partition == partition_of(b"k0", 7)
        seen = await _read(follower, 601)
        await follower.close()
        await writer.close()
        again = await _all(logs, unique_name)
        for records in (seen, again):
            _check_order(records)
            assert sorted(int(record.payload) for record in records) == list(range(601))
        info = await logs.partitions(unique_name)
        assert [one.partition_count for one in info.generations] == [2, 5, 7]
        with pytest.raises(NotLeaderError):
            writer.append(b"too late")


@pytest.mark.asyncio
async def test_a_partitioned_log_is_one_name(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri) as logs:
        names = logs.watch(unique_name)
        await logs.create(unique_name, partitions=3)
        assert await anext(names) == (unique_name, True)
        await logs.create(unique_name, partitions=3, exist_ok=True)
        assert await logs.list(unique_name) == [unique_name]
        one = partition_log(unique_name, 1)
        for wish in (logs.create(unique_name), logs.create(unique_name, partitions=2), logs.create(one)):
            with pytest.raises(LogError):
                await wish
        for whole in (logs.open_writer(unique_name), logs.reader(unique_name), logs.rename(unique_name, "other")):
            with pytest.raises(PartitionedLogError, match=partition_log(unique_name, 0)):
                await whole
        with pytest.raises(PlainLogError, match="one writer writes all"):
            await logs.open_writer(one)
        for wish in (logs.rename(one, "other"), logs.delete(one)):
            with pytest.raises(LogError, match=f"partition of log {unique_name}"):
                await wish
        await logs.create(partition_log(unique_name, 3))  # A log of somebody else's, in the way.
        async with await logs.open_partitioned_writer(unique_name) as writer:
            await writer.append(b"1", key=b"a")
            with pytest.raises(LogError, match="another log has the name of a partition"):
                await writer.grow(4)
            await writer.append(b"2", key=b"a")
            for count in (0, 3, 257):
                with pytest.raises(LogError):
                    await writer.grow(count)
            with pytest.raises(LogError, match="writer still runs"):
                await logs.delete(unique_name)
        assert [record.payload for record in await _all(logs, unique_name)] == [b"1", b"2"]
        await logs.delete(partition_log(unique_name, 3))
        await logs.grow(unique_name, 4)  # No writer is there: the call does it.
        async with await logs.reader(partition_log(unique_name, partition_of(b"a", 3)), follow=False) as reader:
            assert [record.payload async for record in reader] == [b"1", b"2"]
        await logs.delete(unique_name)
        assert await logs.list(unique_name) == []
        with pytest.raises(NoSuchLogError):
            await logs.partitioned_reader(unique_name)
        await names.aclose()


@pytest.mark.asyncio
async def test_a_subscription_holds_what_is_added_too(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(unique_name, partitions=1, until_read=True)
        reader = await logs.partitioned_reader(unique_name, "end", subscription="billing")
        await reader.close()
        async with await logs.open_partitioned_writer(unique_name) as writer:
            for number in range(200):
                await writer.append(b"%d" % number, key=b"k%d" % (number % 7))
            await writer.grow(4)
            beside = await logs.partitioned_reader(unique_name, subscription="beside")
            for number in range(200, 800):
                await writer.append(b"%d" % number, key=b"k%d" % (number % 7))
            await _read(beside, 600)
            await beside.processed()
            await beside.close()
            for partition in range(4):
                last = (await logs.info(partition_log(unique_name, partition))).closed_position
                await logs.truncate(partition_log(unique_name, partition), last)
            reader = await logs.partitioned_reader(unique_name, "end", subscription="billing")
            with pytest.raises(ReaderLockError):
                await logs.partitioned_reader(unique_name, subscription="billing")
            seen = await _read(reader, 500)
            await reader.processed()
            await reader.close()
            reader = await logs.partitioned_reader(unique_name, subscription="billing")
            seen += await _read(reader, 300)
            await reader.close()
            _check_order(seen)
            assert sorted(int(record.payload) for record in seen) == list(range(800))
            chosen = await logs.partitioned_reader(unique_name, {0: 10**6}, partitions=[0, 2], follow=False)
            assert {record.partition async for record in chosen} == {2}
            await chosen.close()
            with pytest.raises(LogError, match="no 9"):
                await logs.partitioned_reader(unique_name, partitions=[9])
        with pytest.raises(MissingLogError):
            async with await logs.partitioned_reader(unique_name, {0: 1}) as late:
                await late.read()


@pytest.mark.asyncio
async def test_readers_that_share_a_subscription_keep_the_order_of_keys(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(unique_name, partitions=2)
        async with await logs.open_partitioned_writer(unique_name) as writer:
            for number in range(300):
                await writer.append(b"%d" % number, key=b"k%d" % (number % 7))
                if number in (99, 199):
                    await writer.grow(writer.partition_count + 1)

        async def share(*partitions: int) -> PartitionedLogReader:
            return await logs.partitioned_reader(unique_name, subscription="both", partitions=partitions, shared=True)

        with pytest.raises(LogError, match="needs one"):
            await logs.partitioned_reader(unique_name, partitions=[0], shared=True)
        new = await share(1, 2, 3)  # It comes first, and waits for a reader that nobody has seen yet.
        seen: list[PartitionRecord] = []
        early = await new.read(wait_s=2)
        while early:
            seen += early
            await new.processed()
            early = await new.read(wait_s=2)
        assert {record.partition for record in seen} == {1}, "what came behind the growth waits for partition 0"
        old = await share(0)
        async with asyncio.timeout(60):
            while len(seen) < 300:
                found = await old.read(7, wait_s=0.2)
                seen += found
                if found:
                    await old.processed(found[-1])
                seen += await new.read(7, wait_s=0.2)
                await new.processed()
        _check_order(seen)
        assert sorted(int(record.payload) for record in seen) == list(range(300))
        await old.close()
        await new.close()
        async with await share(0, 1) as again:
            assert await again.read(wait_s=1) == []


_GROWS = """
import asyncio, sys
from rsm_spark.logs import Logs
async def main():
    async with await Logs.connect(sys.argv[1]) as logs:
        writer = await logs.open_partitioned_writer(sys.argv[2])
        number = int(sys.argv[3])
        def said(done, number):
            print(number, *done.result(), flush=True)
        growing = None
        while True:
            for _ in range(20):
                place = writer.append(b"%d" % number, key=b"k%d" % (number % 7))
                place.add_done_callback(lambda done, n=number: said(done, n))
                number += 1
            if growing is None or growing.done():
                growing = asyncio.create_task(writer.grow(writer.partition_count + 1))
            await asyncio.sleep(0.002)
asyncio.run(main())
"""


@pytest.mark.asyncio
async def test_a_writer_that_is_killed_while_it_grows_leaves_one_log(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(unique_name, partitions=1)
        acked: dict[int, tuple[int, int]] = {}
        first = 0
        for lines in (100, 251, 402):  # Wherever the growths of each are then.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _GROWS, cluster.metadata_uri, unique_name, str(first),
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            assert process.stdout is not None
            said = [await process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            said += (await process.stdout.read()).splitlines(keepends=True)
            await process.wait()
            for line in said:
                if line.endswith(b"\n"):
                    number, partition, position = map(int, line.split())
                    acked[number] = partition, position
            first = 100_000 + max(acked)
        async with await logs.open_partitioned_writer(unique_name) as writer:
            await writer.append(b"%d" % (first + 1), key=b"k0")
            assert writer.partition_count > 1
        records = await _all(logs, unique_name)
        _check_order(records)
        places = {int(record.payload): (record.partition, record.position) for record in records}
        assert len(places) == len(records)
        assert acked.items() <= places.items()


@pytest.mark.asyncio
async def test_commands_take_the_whole_or_say_what_takes_it(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = ForkCommand(cluster.metadata_uri, tmp_path)
    log, where = unique_name, commands.where
    await commands.done("log", "create", log, "--partitions", "2", *where)
    for number in range(3):
        await commands.done("log", "append", log, str(number), "--key", "a", *where)
    await commands.done("log", "grow", log, "--partitions", "3", *where)
    code, placed, _ = await commands.run("log", "append", log, "3", "4", "--key", "a", *where)
    assert (code, {row["partition"] for row in placed}) == (0, {partition_of(b"a", 3)})
    code, rows, _ = await commands.run("log", "tail", log, "--from", "begin", "--no-follow", *where)
    assert (code, [row["payload"] for row in rows]) == (0, ["0", "1", "2", "3", "4"])
    code, listed, _ = await commands.run("log", "list", "--prefix", log, *where)
    assert (code, [row["log"] for row in listed]) == (0, [log])
    code, (shown,), _ = await commands.run("log", "info", log, *where)
    assert (code, [one["partition_count"] for one in shown["generations"]]) == (0, [2, 3])
    assert [one["log"] for one in shown["partitions"]] == [partition_log(log, number) for number in range(3)]
    place = str(tmp_path / "backups")
    for refused, said in (
        (("log", "rename", log, "other"), "it is partitioned"),
        (("log", "rename", partition_log(log, 1), "other"), f"partition of log {log}"),
        (("log", "delete", partition_log(log, 1), "--yes"), f"partition of log {log}"),
        (("log", "truncate", log, "3"), "it is partitioned"),
        (("log", "append", log, "5", "--end"), "has no end mark"),
        (("log", "tail", log, "--from", "3"), "positions of its own"),
        (("backup", "create", log, "--place", place), "it is partitioned"),
    ):
        code, _, errors = await commands.run(*refused, *where)
        assert code != 0, refused
        assert said in errors, errors
    await commands.done("log", "delete", log, "--yes", *where)
    code, listed, _ = await commands.run("log", "list", "--prefix", log, *where)
    assert (code, listed) == (0, [])


def test_the_blocking_twin_does_the_same(cluster: DevCluster, unique_name: str) -> None:
    with BlockingLogs.connect(cluster.metadata_uri) as logs:
        logs.create(unique_name, partitions=2)
        with logs.open_partitioned_writer(unique_name) as writer:
            places = [writer.append(b"%d" % number, key=b"k%d" % (number % 5)) for number in range(50)]
            writer.grow(3)
            places.append(writer.append(b"50", key=b"k0"))
            assert places[-1].result().partition == partition_of(b"k0", 3)
        with logs.partitioned_reader(unique_name, follow=False) as reader:
            records = list(reader)
        _check_order(records)
        assert len(records) == 51
        assert len(logs.partitions(unique_name).partitions) == 3
        logs.delete(unique_name)
