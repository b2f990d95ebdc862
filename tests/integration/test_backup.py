"""Backups of logs that are served, and logs made of them: real ZooKeeper, bookies and replicas, commands as typed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.backed_up_log import BackupCommand, rows_of
from tests.integration.store_processes import StoreProcess

pytestmark = pytest.mark.asyncio

QUICK = ("--roll-records", "200", "--snapshot-s", "1", "--checkpoint-records", "50")


@asynccontextmanager
async def served(uri: str, log: str, folder: Path, *options: str) -> AsyncIterator[StoreProcess]:
    folder.mkdir(exist_ok=True)
    store = await asyncio.to_thread(StoreProcess, uri, log, folder, "a", *QUICK, *options)
    try:
        yield store
    finally:
        await asyncio.to_thread(store.stop)


class Load:
    """Puts and deletes for as long as it lasts; the state after each revision is known."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.number = 0
        self.changes: list[tuple[int, bytes, bytes | None]] = []

    async def run(self, log: str, uri: str, count: int) -> None:
        async with await MapClient.connect(log, uri) as client:
            for _ in range(count):
                key = b"k%d" % self._rng.randrange(200)
                if self._rng.random() < 0.2:
                    await client.delete(key)
                    continue
                self.number += 1
                value = b"v%d" % self.number
                self.changes.append((await client.put(key, value), key, value))


def state_at(records: list[dict], revision: int) -> dict[bytes, bytes]:  # type: ignore[type-arg]
    """Return the map at a revision, folded by hand from the records of the log."""
    rows: dict[bytes, bytes] = {}
    for record in records:
        if record["revision"] > revision:
            break
        fields = record["fields"]
        if record["type"] == "put":
            rows[fields["key"].encode()] = fields["value"].encode()
        elif record["type"] in {"deleted", "expired"}:
            rows.pop(fields["key"].encode(), None)
    return rows


async def check_restored(
    commands: BackupCommand,
    log: str,
    new: str,
    revision: int,
    records: list[dict],
    folder: Path,  # type: ignore[type-arg]
) -> None:
    """Restore at a revision, and compare records and served rows with the reference."""
    data = folder / f"{new}-data"
    said = await commands.restore(log, new, "--at-revision", str(revision), "--data-dir", str(data / "a"))
    assert said["revision"] <= revision
    restored = await commands.cat(new)
    expected = [record for record in records if record["revision"] <= said["revision"]]
    assert restored == expected, "every record is the same, its revision, time and epoch too"
    async with served(commands.metadata_uri, new, data):
        assert await rows_of(new, commands.metadata_uri) == state_at(records, said["revision"])
        async with await MapClient.connect(new, commands.metadata_uri) as client:
            assert await client.put(b"new", b"here") > said["revision"]


async def _back_up_under_load(commands: BackupCommand, log: str, folder: Path, rounds: int) -> list[dict]:  # type: ignore[type-arg]
    """Back up several times while the log is written; return its records."""
    load = Load(rounds)
    async with served(commands.metadata_uri, log, folder):
        for _ in range(rounds):
            writing = asyncio.create_task(load.run(log, commands.metadata_uri, 300))
            await commands.create(log)
            await writing
        await commands.create(log)
    last = await commands.create(log, "--no-snapshot")
    assert last["last_revision"] >= load.changes[-1][0]
    return await commands.cat(log)


async def test_a_log_is_backed_up_while_it_is_written_and_restored_at_a_revision(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    records = await _back_up_under_load(commands, unique_name, tmp_path / "live", 2)
    proof = await commands.verify(unique_name)
    assert proof["ok"]
    assert proof["last_revision"] == records[-1]["revision"]
    again = await commands.create(unique_name, "--no-snapshot")
    assert (again["new_entries"], again["new_bytes"]) == (0, 0), "nothing is copied twice"
    rng = random.Random(5)
    for number in range(2):
        revision = rng.randrange(100, records[-1]["revision"])
        await check_restored(commands, unique_name, f"{unique_name}-{number}", revision, records, tmp_path)
    refusal = await commands.refused(
        "restore", unique_name, "--as", unique_name, "--metadata-uri", cluster.metadata_uri
    )
    assert "there is one already" in refusal
    info = await commands.done("log", "info", f"{unique_name}-0", "--metadata-uri", cluster.metadata_uri, "--json")
    assert [one["log"] for one in info["origins"]] == [unique_name]


async def test_only_what_is_new_is_copied_and_retention_keeps_what_is_named(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    load = Load(7)
    async with served(cluster.metadata_uri, unique_name, tmp_path / "live"):
        await load.run(unique_name, cluster.metadata_uri, 400)
        first = await commands.create(unique_name)
        files = {path: path.stat().st_mtime_ns for path in (tmp_path / "backups").rglob("*.entries")}
        await load.run(unique_name, cluster.metadata_uri, 20)
        second = await commands.create(unique_name, "--no-snapshot")
        assert second["first_revision"] == first["first_revision"] == 1
        assert 0 < second["new_bytes"] < first["new_bytes"] / 4
        assert {path: path.stat().st_mtime_ns for path in files} == files
        await load.run(unique_name, cluster.metadata_uri, 20)
        third = await commands.create(unique_name, "--keep", "1")
    assert third["removed"] == [second["backup"], first["backup"]]
    assert (await commands.verify(unique_name))["ok"]


async def test_a_sealed_log_needs_its_key_and_keeps_its_proofs(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    key = str(tmp_path / "log.key")
    await commands.done("log", "key", "new", "--file", key, "--json")
    load = Load(3)
    async with served(cluster.metadata_uri, unique_name, tmp_path / "live", "--log-key", key):
        await load.run(unique_name, cluster.metadata_uri, 300)
        await commands.create(unique_name)
        await load.run(unique_name, cluster.metadata_uri, 100)
        await commands.create(unique_name)
    public = tmp_path / "log.pub"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec '{sys.executable}' -m rsm_spark log key show-public --file '{key}' > '{public}'"
    )
    assert await process.wait() == 0
    proof = await commands.verify(unique_name, "--public-key", str(public), "--log-key", key)
    assert proof["signatures"] > 0
    assert proof["seals"] == "right"
    stored = b"".join(path.read_bytes() for path in (tmp_path / "backups").rglob("*.json"))
    assert b"secret" not in stored
    new = f"{unique_name}-new"
    where = ("--as", new, "--metadata-uri", cluster.metadata_uri)
    assert f"sealed with key {proof['key_ids'][0]}" in await commands.refused("restore", unique_name, *where)
    await commands.restore(unique_name, new, "--log-key", key, "--data-dir", str(tmp_path / "new" / "a"))
    async with served(cluster.metadata_uri, new, tmp_path / "new", "--log-key", key):
        await load.run(new, cluster.metadata_uri, 120)
        proven = await commands.done(
            "log", "verify", new, "--public-key", str(public), "--log-key", key,
            "--metadata-uri", cluster.metadata_uri, "--json",
        )  # fmt: skip
    assert proven["first_revision"] == 1
    assert proven["proven_revision"] > proof["last_revision"], "signed across the border"


async def test_a_log_comes_back_where_zookeeper_and_all_bookies_are_new(
    cluster: DevCluster, start_cluster: Callable[..., DevCluster], unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    records = await _back_up_under_load(commands, unique_name, tmp_path / "live", 1)
    elsewhere = BackupCommand(start_cluster(bookie_count=2).metadata_uri, tmp_path / "backups")
    await check_restored(elsewhere, unique_name, unique_name, records[-1]["revision"], records, tmp_path / "live")


async def test_a_log_whose_beginning_is_trimmed_is_restored_with_a_snapshot(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    at = ("--metadata-uri", cluster.metadata_uri)
    key = str(tmp_path / "log.key")
    await commands.done("log", "key", "new", "--file", key, "--json")
    load = Load(9)
    async with served(cluster.metadata_uri, unique_name, tmp_path / "live", "--retention-s", "0", "--log-key", key):
        trimmed: list[int] = []
        for _ in range(20):
            await load.run(unique_name, cluster.metadata_uri, 250)
            answer = await commands.done("log", "trim", unique_name, "--accept-unverified", *at, "--json")
            trimmed += answer["ledger_ids"]
            if len(trimmed) > 1:
                break
        assert trimmed, answer
        refusal = await commands.refused("create", unique_name, "--no-snapshot", *at)
        assert "no snapshot was found" in refusal
        await load.run(unique_name, cluster.metadata_uri, 150)
        made = await commands.create(unique_name)
        expected = await rows_of(unique_name, cluster.metadata_uri)
    made = await commands.create(unique_name, "--data-dir", str(tmp_path / "live" / "a"))
    assert made["first_revision"] > 1
    assert made["snapshots"]
    assert (await commands.verify(unique_name, "--log-key", key))["ok"]
    for number, option in enumerate(("--data-dir", "--lake")):
        new, folder = f"{unique_name}-{number}", tmp_path / f"new-{number}"
        where = ("--as", new, *at, "--log-key", key)
        assert "replicas need a snapshot" in await commands.refused("restore", unique_name, *where)
        place = folder / "a" if option == "--data-dir" else tmp_path / "lake"
        said = await commands.restore(unique_name, new, option, str(place), "--log-key", key)
        assert said["snapshot_revision"] in made["snapshots"]
        lake = ("--lake", str(place)) if option == "--lake" else ()
        async with served(cluster.metadata_uri, new, folder, "--log-key", key, *lake):
            assert await rows_of(new, cluster.metadata_uri) == expected
            await load.run(new, cluster.metadata_uri, 20)
            again = await commands.create(new, *(("--lake", str(place)) if lake else ()))
    proof = await commands.verify(new, "--log-key", key)
    assert proof["last_revision"] == again["last_revision"] > said["revision"], "a backup of a restored log"


async def test_a_changed_backup_makes_no_log_and_leaves_nothing(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    load = Load(11)
    async with served(cluster.metadata_uri, unique_name, tmp_path / "live"):
        await load.run(unique_name, cluster.metadata_uri, 300)
        await commands.create(unique_name)
        await load.run(unique_name, cluster.metadata_uri, 50)
        made = await commands.create(unique_name)
    assert made["snapshots"]
    at = ("--metadata-uri", cluster.metadata_uri)
    new, data = f"{unique_name}-new", tmp_path / "new" / "a"
    before = await ledgers(cluster.metadata_uri)
    last = max((tmp_path / "backups").rglob("*.entries"))
    (table,) = [
        path for path in (tmp_path / "backups").rglob("map.parquet") if f"{made['snapshots'][-1]:020d}" in str(path)
    ]
    for path in (last, table):
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        refusal = await commands.refused("restore", unique_name, "--as", new, "--data-dir", str(data), *at)
        assert "sha256" in refusal
        path.write_bytes(whole)
        assert await ledgers(cluster.metadata_uri) == before, "what was written is deleted"
        assert "there is no node" in (await commands.run("log", "info", new, *at, "--json"))[2]
    said = await commands.restore(unique_name, new, "--data-dir", str(data))
    assert said["revision"] == made["last_revision"], "the same folder serves the next attempt"
    refusal = await commands.refused("restore", unique_name, "--as", "x", "--data-dir", str(data), *at)
    assert "it is not empty" in refusal


async def ledgers(uri: str) -> set[int]:
    async with await LedgerClient.connect(uri) as client:
        return set(await client.list())


async def test_all_logs_are_backed_up_again_and_again(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    root = ("--rsm-root", f"/{unique_name}")
    load = Load(4)
    async with served(cluster.metadata_uri, unique_name, tmp_path / "live"):
        await load.run(unique_name, cluster.metadata_uri, 50)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rsm_spark", "backup", "create", unique_name, "no-such-log",
            "--every", "1s", "--keep", "2", "--json", "--metadata-uri",
            cluster.metadata_uri, "--place", str(tmp_path / "backups"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            lines = []
            for _ in range(4):
                lines.append(json.loads(await asyncio.wait_for(process.stdout.readline(), 60)))
                await load.run(unique_name, cluster.metadata_uri, 20)
            complaint = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        finally:
            process.kill()
            await process.communicate()
    assert "log no-such-log: no backup" in complaint, "told, and the others go on"
    ends = [line["last_revision"] for line in lines]
    assert ends == sorted(set(ends)), "each has what came meanwhile"
    assert any(line["removed"] for line in lines)
    assert (await commands.verify(unique_name))["ok"]
    code, found, _ = await commands.run(
        "backup", "create", "--all", *root, "--place", str(tmp_path / "none"), "--metadata-uri", cluster.metadata_uri
    )
    assert (code, found) == (0, []), "no logs there"


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_five_gigabytes_are_backed_up_while_they_are_written(
    start_cluster: Callable[..., DevCluster], unique_name: str, tmp_path: Path
) -> None:
    uri = start_cluster(bookie_count=2).metadata_uri
    commands = BackupCommand(uri, tmp_path / "backups")
    value = random.Random(1).randbytes(500_000)

    async def write(last: int) -> None:
        async with await MapClient.connect(unique_name, uri) as client:
            for first in range(0, last, 8):
                await asyncio.gather(
                    *(client.put(b"k%d" % (n % 64), b"%d" % n + value) for n in range(first, first + 8))
                )

    (tmp_path / "live").mkdir()
    store = await asyncio.to_thread(StoreProcess, uri, unique_name, tmp_path / "live", "a")
    try:
        await write(9_000)
        writing = asyncio.create_task(write(1_200))
        made = await commands.create(unique_name, "--no-snapshot")
        await writing
        last = await commands.create(unique_name, "--no-snapshot")
    finally:
        await asyncio.to_thread(store.stop)
    assert made["new_bytes"] > 4.5e9
    assert last["bytes"] > 5e9
    assert (await commands.verify(unique_name))["last_revision"] == last["last_revision"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_twenty_restores_at_random_revisions_equal_the_reference(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    records = await _back_up_under_load(commands, unique_name, tmp_path / "live", 5)
    rng = random.Random(20)
    for number in range(20):
        revision = rng.randrange(1 + records[0]["revision"] + 20, records[-1]["revision"] + 1)
        await check_restored(commands, unique_name, f"{unique_name}-{number}", revision, records, tmp_path)
