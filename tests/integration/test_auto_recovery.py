"""Auto-recovery as a process of its own, beside real bookies of which one is gone for good, or gets new disks."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.dev.ports import choose_port
from ledger.exit_codes import ExitCode
from ledger.storage.disk import RealDisk
from ledger.storage.limbo import load_limbo
from ledger.wire import paths
from tests.integration.ledger_suite import on_cluster

_LIMIT_S = 60.0


@contextmanager
def auto_recovery(uri: str, log: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run `rsm autorecovery run`, wait until it says that it runs, and end it with SIGTERM."""
    command = [sys.executable, "-m", "ledger.replication", "run", "--metadata-uri", uri, "--json", *options]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        notice = json.loads(process.stdout.readline())
        assert notice["ready"], log.read_text()
        yield process, notice
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + _LIMIT_S
    while not await condition():  # type: ignore[misc]
        assert asyncio.get_running_loop().time() < deadline, f"after {_LIMIT_S:.0f} s: {what}"
        await asyncio.sleep(0.2)


async def write(client: LedgerClient, count: int) -> int:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append_many([b"%06d" % i * 20 for i in range(count)])
    await writer.close()
    return writer.ledger_id


async def contents(client: LedgerClient, ledger_id: int) -> list[int]:
    reader = await client.open(ledger_id)
    return [int(entry.payload[:6]) for entry in await reader.read(0, reader.last_add_confirmed)]


def status(uri: str) -> dict:
    command = [sys.executable, "-m", "ledger.replication", "status", "--metadata-uri", uri, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_the_ledgers_of_a_bookie_that_is_gone_for_good_are_whole_again_without_it(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=4)

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        ids = [await write(client, 300) for _ in range(8)]
        dead = (await client.metadata(ids[0])).segments[0].bookies[1]
        await loop.run_in_executor(None, cluster.kill_bookie, cluster.bookies.index(dead))

        async def is_replaced() -> bool:
            named = [await client.metadata(i, sync=True) for i in ids]
            return not any(dead in segment.bookies for metadata in named for segment in metadata.segments)

        await until(is_replaced, (tmp_path / "log").read_text())

        async def is_told() -> bool:
            return not (await loop.run_in_executor(None, status, cluster.metadata_uri))["ledgers"]

        await until(is_told, "ledgers are still marked")
        assert (await loop.run_in_executor(None, status, cluster.metadata_uri))["auditor"]
        # What the spare holds alone must be enough: the two others die as well, one after the other.
        for ledger_id in ids[:1]:
            others = (await client.metadata(ledger_id, sync=True)).segments[0].bookies
            spare = others[1]
            for bookie_id in others:
                if bookie_id != spare:
                    await loop.run_in_executor(None, cluster.kill_bookie, cluster.bookies.index(bookie_id))
            assert await contents(client, ledger_id) == list(range(300))

    with auto_recovery(cluster.metadata_uri, tmp_path / "log", "--lost-bookie-delay-s", "1"):
        on_cluster(cluster.metadata_uri, scenario, timeout_s=200)


def test_a_bookie_that_comes_with_new_disks_fills_them_and_leaves_limbo_by_itself(
    start_cluster: Callable[..., DevCluster],
) -> None:
    cluster = start_cluster(bookie_count=3)

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        ids = [await write(client, 200) for _ in range(5)]
        number, bookie_id = 2, cluster.bookies[2]
        await loop.run_in_executor(None, cluster.stop_bookie, number)
        home = cluster_home(cluster, number)
        shutil.rmtree(home)
        await client.store.delete(paths.cookie_path("/ledgers", bookie_id))
        await loop.run_in_executor(None, cluster.start_bookie, number)
        folder = str(home / "ledgers" / "current")

        async def is_repaired() -> bool:
            return bool(load_limbo(RealDisk(), folder).fenced)

        await until(is_repaired, "still in limbo")
        command = [sys.executable, "-m", "ledger.bookie", "info", "--data-dir", str(home), "--json"]
        facts = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert facts["limbo"] == []
        assert facts["repair"]["entry_count"] == 5 * 200
        for other in (0, 1):
            await loop.run_in_executor(None, cluster.kill_bookie, other)
        assert [await contents(client, ledger_id) for ledger_id in ids] == [list(range(200))] * 5

    on_cluster(cluster.metadata_uri, scenario, timeout_s=200)


def cluster_home(cluster: DevCluster, number: int) -> Path:
    """Return the data directory of a bookie."""
    return cluster.data_dir / cluster.state.bookies[number].name


def test_a_bookie_recovers_the_cluster_too_unless_it_is_told_not_to(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=3)
    uri = cluster.metadata_uri
    subprocess.run([sys.executable, "-m", "ledger.replication", "set-delay", "1", "--metadata-uri", uri], check=True)

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        ledger_id = await write(client, 100)  # on the three that were there
        command = [sys.executable, "-m", "ledger.bookie", "run", "--metadata-uri", uri, "--json"]
        command += ["--port", str(choose_port(taken=())), "--data-dir", str(tmp_path / "b"), "--no-fsync"]
        with (tmp_path / "log").open("w") as errors:
            bookie = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert bookie.stdout is not None
            assert json.loads(await loop.run_in_executor(None, bookie.stdout.readline))["ready"]
            dead = (await client.metadata(ledger_id)).segments[0].bookies[1]
            await loop.run_in_executor(None, cluster.kill_bookie, cluster.bookies.index(dead))

            async def is_replaced() -> bool:
                metadata = await client.metadata(ledger_id, sync=True)
                return not any(dead in segment.bookies for segment in metadata.segments)

            await until(is_replaced, (tmp_path / "log").read_text())
            assert await contents(client, ledger_id) == list(range(100))
            bookie.send_signal(signal.SIGTERM)
            assert await loop.run_in_executor(None, bookie.wait, 30) == 0, (tmp_path / "log").read_text()
        finally:
            if bookie.poll() is None:
                bookie.kill()
                bookie.wait()
            if bookie.stdout is not None:
                bookie.stdout.close()

    on_cluster(uri, scenario, timeout_s=200)


def test_without_a_cluster_it_says_so_and_ends(zookeeper: str, unique_root: str) -> None:
    uri = f"zk+hierarchical://{zookeeper}{unique_root}"
    command = [sys.executable, "-m", "ledger.replication", "run", "--metadata-uri", uri]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert ended.returncode == ExitCode.NOT_FOUND
    assert "no BookKeeper cluster" in ended.stderr


@pytest.mark.parametrize("verb", ["disable", "enable"])
def test_it_is_switched_for_the_whole_cluster(cluster: DevCluster, verb: str) -> None:
    command = [sys.executable, "-m", "ledger.replication", verb, "--metadata-uri", cluster.metadata_uri]
    subprocess.run(command, check=True)
    assert status(cluster.metadata_uri)["enabled"] is (verb == "enable")
