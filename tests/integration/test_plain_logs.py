"""Plain logs on real bookies and a real ZooKeeper: writers depose each other, readers see one log."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from ledger.errors import LedgerError
from rsm_spark.errors import LogError, MissingLogError, NoSuchLogError, NotLeaderError, RsmError
from rsm_spark.log.consumers import ConsumerTakenError
from rsm_spark.log.key_file import KeyFile
from rsm_spark.logs import LogEndedError, LogRecord, Logs, PlainLogError, ReaderLockError
from rsm_spark.map.client.client import MapClient
from rsm_spark.runtime.settings import ReplicaSettings
from tests.integration.test_backup import served
from tests.integration.test_log_fork import ForkCommand, new_key
from tests.integration.test_store_cluster import run_cli

pytestmark = pytest.mark.asyncio

_FIRST_RECORDS = ["machine_described", "leader_started", "resumed", "appended"]
_ROLLING = ReplicaSettings(roll_records=100, trim_s=0.2)


async def _all(logs: Logs, log: str, *start: Any, **how: Any) -> list[LogRecord]:
    async with await logs.reader(log, *start, follow=False, **how) as reader:
        return [record async for record in reader]


async def test_what_is_appended_is_read_in_order_over_rolls_and_writers(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(unique_name)
        reader = await logs.reader(unique_name)
        writer = await logs.open_writer(unique_name)
        before = datetime.fromtimestamp(time.time() - 1, UTC)  # Logged times are of a clock of their own.
        for number in range(50):  # In one turn of the loop each: entries of ten.
            for part in range(10):
                last = writer.append(b"%d" % (10 * number + part), key=b"k%d" % part, txid=number)
            await last
        other = await logs.open_writer(unique_name)
        with pytest.raises(NotLeaderError):
            await writer.append(b"too late")
        with pytest.raises(NotLeaderError):
            writer.append(b"much too late")
        assert other.last_txid == 49
        with pytest.raises(PlainLogError, match="transaction id 3"):
            other.append(b"older", txid=3)
        await other.append_many([b"500", b"501"], txid=49)
        assert await other.mark_end() > 0
        seen = [record async for record in reader]
        await reader.close()
        assert [record.payload for record in seen] == [b"%d" % number for number in range(502)]
        positions = [record.position for record in seen]
        assert positions == sorted(set(positions))
        await other.close()
        await writer.close()
        assert len((await logs.info(unique_name)).log_id) == 32
        assert (await logs.info(unique_name)).ledgers > 4
        assert await _all(logs, unique_name) == seen
        assert await _all(logs, unique_name, positions[333]) == seen[333:]
        assert await _all(logs, unique_name, txid=30) == seen[300:]
        assert await _all(logs, unique_name, since=before) == seen
        assert not await _all(logs, unique_name, "end")
        with pytest.raises(LogEndedError):
            await logs.open_writer(unique_name)


async def test_names_come_and_go(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri) as logs:
        names = logs.watch(f"{unique_name}-")
        one, two = f"{unique_name}-1", f"{unique_name}-2"
        await logs.create(one)
        assert await anext(names) == (one, True)
        with pytest.raises(LogError, match="there is one already"):
            await logs.create(one)
        await logs.create(one, exist_ok=True)
        await logs.rename(one, two)
        assert {await anext(names), await anext(names)} == {(one, False), (two, True)}
        assert await logs.list(unique_name) == [two]
        async with await logs.open_writer(two):
            with pytest.raises(LogError, match="still runs"):
                await logs.delete(two)
        await logs.delete(two)
        assert await anext(names) == (two, False)
        await names.aclose()
        with pytest.raises(NoSuchLogError, match="rsm log create"):
            await logs.open_writer(two)


async def test_the_log_of_a_machine_is_left_alone(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri = cluster.metadata_uri
    async with served(uri, unique_name, tmp_path), await Logs.connect(uri) as logs:
        async with await MapClient.connect(unique_name, uri) as client:
            await client.put(b"a", b"1")
            with pytest.raises(PlainLogError, match="of machine map"):
                await logs.open_writer(unique_name)
            await client.put(b"a", b"2")


async def test_a_subscription_goes_on_where_it_was_and_holds_the_log(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(unique_name)
        async with await logs.open_writer(unique_name) as writer:
            reader = await logs.reader(unique_name, subscription="billing")
            positions = [await writer.append(b"%d" % number) for number in range(1000)]
            with pytest.raises(ReaderLockError, match="billing"):
                await logs.reader(unique_name, subscription="billing")
            seen: list[LogRecord] = []
            while len(seen) < 500:
                seen += await reader.read(500 - len(seen), wait_s=5)
            await reader.processed()
            plan = await logs.truncate(unique_name, positions[-1])
            assert plan.blocked[0].reason == "unread"
            await reader.close()
            reader = await logs.reader(unique_name, subscription="billing")
            assert [record.payload for record in await reader.read(2, wait_s=5)] == [b"500", b"501"]
            beside = await logs.reader(unique_name, subscription="billing", lock_wait_s=None)
            await asyncio.sleep(1.1)  # A position is written at most once a second.
            with pytest.raises(ConsumerTakenError):
                await reader.processed(positions[900])
            await beside.read(1000, wait_s=5)
            await beside.processed(positions[-1])
            await beside.close()
            plan = await logs.truncate(unique_name, positions[-1])
            info = await logs.info(unique_name)
            assert 0 < positions[-1] - info.first_position < 500
            with pytest.raises(MissingLogError):
                await logs.reader(unique_name, 1)
            assert not await _all(logs, unique_name)
            with pytest.raises(ConsumerTakenError):
                await reader.close()


async def test_a_log_goes_by_size(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri, settings=_ROLLING) as logs:
        await logs.create(unique_name, retention_bytes=50_000)
        async with await logs.open_writer(unique_name) as writer:
            for _ in range(1000):
                await writer.append(bytes(500))
            async with asyncio.timeout(60):
                while (info := await logs.info(unique_name)).first_position < 500:
                    await asyncio.sleep(0.1)
        assert info.closed_bytes >= 50_000
        await logs.retain(unique_name, retention_s=0, retention_bytes=None)
        await logs.trim(unique_name)
        assert (await logs.info(unique_name)).first_position > 900
        assert len(await _all(logs, unique_name)) < 100


_APPENDS = """
import asyncio, sys
from rsm_spark.logs import Logs
async def main():
    async with await Logs.connect(sys.argv[1]) as logs:
        writer = await logs.open_writer(sys.argv[2])
        number = 0
        def said(done, number):
            print(number, done.result(), flush=True)
        while True:
            for _ in range(20):
                writer.append(b"%d" % number).add_done_callback(lambda done, n=number: said(done, n))
                number += 1
            await asyncio.sleep(0.002)
asyncio.run(main())
"""


async def test_all_that_was_acknowledged_by_a_killed_writer_is_there(cluster: DevCluster, unique_name: str) -> None:
    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(unique_name)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _APPENDS, cluster.metadata_uri, unique_name, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with await logs.reader(unique_name) as reader:
            acked = [await process.stdout.readline() for _ in range(500)]
            process.send_signal(signal.SIGKILL)
            acked += (await process.stdout.read()).splitlines()
            await process.wait()
            async with await logs.open_writer(unique_name) as writer:
                await writer.append(b"over")
                await writer.mark_end()
            seen = [(int(record.payload), record.position) async for record in reader if record.payload != b"over"]
        said = [tuple(map(int, line.split())) for line in acked if line.endswith(b"\n") or len(line.split()) == 2]
        assert said[:-1] == seen[: len(said) - 1]
        assert [number for number, _ in seen] == list(range(len(seen)))


async def test_a_log_with_a_key_is_sealed_and_read_with_it(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    _, key = await new_key(ForkCommand(uri, tmp_path), tmp_path)
    keyed = ReplicaSettings(log_keys=KeyFile.read(Path(key)))
    async with await Logs.connect(uri, settings=keyed) as logs, await Logs.connect(uri) as without:
        await logs.create(unique_name)
        async with await logs.open_writer(unique_name) as writer:
            await writer.append(b"sealed")
        async with await logs.open_writer(unique_name) as writer:
            await writer.append(b"again")
        assert [record.payload for record in await _all(logs, unique_name)] == [b"sealed", b"again"]
        assert (await logs.info(unique_name)).key_id
        with pytest.raises(RsmError, match="key"):
            await without.open_writer(unique_name)


async def test_commands_for_logs_take_a_plain_one(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log, fork = cluster.metadata_uri, unique_name, f"{unique_name}-fork"
    commands = ForkCommand(uri, tmp_path)
    async with await Logs.connect(uri, settings=_ROLLING) as logs:
        await logs.create(log)
        async with await logs.open_writer(log) as writer:
            for number in range(250):
                await writer.append(b"%d" % number, txid=number)
            await commands.fork(log, fork)  # Its writer closes a ledger for it.
            await writer.append(b"only here")
        async with await logs.open_writer(fork) as writer:
            assert writer.last_txid == 249
            await writer.append(b"only there")
        both = [[record.payload for record in await _all(logs, name)] for name in (log, fork)]
        assert both[0][:250] == both[1][:250] == [b"%d" % number for number in range(250)]
        assert both[0][250:] == [b"only here"]
        assert both[1][250:] == [b"only there"]
        code, printed, _ = await commands.run("log", "cat", fork, "--json", *commands.where[:2])
        assert (code, [row["type"] for row in printed][:4]) == (0, _FIRST_RECORDS)
        place = str(tmp_path / "backups")
        await commands.done("backup", "create", log, "--place", place, *commands.where)
        await commands.done("log", "delete", fork, "--yes", *commands.where)
        with pytest.raises((NoSuchLogError, LedgerError)):
            await _all(logs, fork)


async def test_status_and_doctor_tell_who_writes_a_plain_log_and_call_none_of_it_bad(
    cluster: DevCluster, unique_name: str
) -> None:
    def told() -> tuple[dict[str, Any], list[str]]:
        code, (status,) = run_cli(cluster.metadata_uri, "status", "--log", unique_name)
        assert code == 0
        findings = run_cli(cluster.metadata_uri, "doctor")[1]
        return status, [one["seen"] for one in findings if one["what"] == f"log {unique_name}"]

    async with await Logs.connect(cluster.metadata_uri) as logs:
        await logs.create(unique_name)
        async with await logs.open_writer(unique_name) as writer:
            await writer.append(b"one")
            status, seen = await asyncio.to_thread(told)
            (member,) = status["replicas"]
            assert (status["machine"], status["is_plain"]) == ("log", True)
            assert seen == [f"a plain log, written by {member['replica_id']}"]
        status, seen = await asyncio.to_thread(told)
        assert (status["replicas"], seen) == ([], ["a plain log that nobody writes now"])
