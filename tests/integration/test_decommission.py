"""`rsm cluster` on real bookies: what it shows, and bookies that are taken out for good while somebody writes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import LedgerError
from ledger.wire import paths
from tests.integration.ledger_suite import on_cluster
from tests.integration.test_auto_recovery import auto_recovery, cluster_home, contents, until, write

_ENTRIES_A_LEDGER = 100


def rsm(cluster: DevCluster, *arguments: str) -> tuple[int, str, str]:
    """Run `rsm cluster …` and return its exit code, its output and its messages."""
    command = [sys.executable, "-m", "rsm_spark", "cluster", *arguments, "--metadata-uri", cluster.metadata_uri]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    return ended.returncode, ended.stdout, ended.stderr


def lines(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


def test_what_it_shows_of_a_cluster_that_loses_a_bookie(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=4)
    dead = cluster.bookies[3]

    async def fill(client: LedgerClient) -> None:
        writer = await client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x" * 100] * 40)
        await writer.close()

    async def is_gone(client: LedgerClient) -> None:
        async def look() -> bool:
            return dead not in await client.ledgers.writable_bookies()

        await until(look, "it is still registered")

    on_cluster(cluster.metadata_uri, fill)
    code, out, _ = rsm(cluster, "status", "--json")
    assert (code, json.loads(out)["is_whole"]) == (0, True)
    shown = lines(rsm(cluster, "bookies", "--json")[1])
    assert [one["bookie_id"] for one in shown] == sorted(cluster.bookies)
    assert all(one["state"] == "writable" and one["ledger_count"] == 1 for one in shown)
    assert all(0 < one["free_bytes"] < one["total_bytes"] for one in shown)
    code, _, said = rsm(cluster, "decommission", dead)
    assert code == 2
    assert "serves: stop it first" in said
    assert "all of 1 ledgers" in rsm(cluster, "under-replicated")[1]

    cluster.kill_bookie(3)
    on_cluster(cluster.metadata_uri, is_gone)
    code, out, _ = rsm(cluster, "status")
    assert code == 1
    assert "1 of 1 ledgers lack some (30 entries)" in out
    assert [one["state"] for one in lines(rsm(cluster, "bookies", "--json")[1])].count("missing") == 1
    (lacking,) = lines(rsm(cluster, "under-replicated", "--json")[1])
    assert (lacking["bookie_ids"], lacking["entry_count"], lacking["is_marked"]) == ([dead], 30, False)
    assert dead in rsm(cluster, "under-replicated")[1]
    served = {one["bookie_id"]: one["serves"] for one in lines(rsm(cluster, "cookies", "--json")[1])}
    assert served == {one: one != dead for one in cluster.bookies}
    assert f"{dead}: does not serve" in rsm(cluster, "cookies")[1]
    code, _, said = rsm(cluster, "decommission", dead, "--wait")
    assert code == 6
    assert "no other bookie takes entries: start one more" in " ".join(said.split())


def test_recover_marks_at_once_and_leaves_the_cookie(start_cluster: Callable[..., DevCluster], tmp_path: Path) -> None:
    cluster = start_cluster(bookie_count=4)

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        ledger_id = await write(client, 50)
        dead = (await client.metadata(ledger_id)).segments[0].bookies[0]
        await loop.run_in_executor(None, cluster.kill_bookie, cluster.bookies.index(dead))

        async def is_gone() -> bool:
            return dead not in await client.ledgers.writable_bookies()

        await until(is_gone, "it is still registered")
        code, out, said = await loop.run_in_executor(None, rsm, cluster, "recover", dead, "--wait", "--for", "0.2")
        assert code == 6, out
        assert "nobody copies what" in said
        assert f"1 ledgers still name bookie {dead}" in " ".join(said.split())
        with auto_recovery(cluster.metadata_uri, tmp_path / "log", "--lost-bookie-delay-s", "3600"):
            code, out, said = await loop.run_in_executor(None, rsm, cluster, "recover", dead, "--wait")
            assert code == 0, said
            assert out == f"no ledger names bookie {dead} any more\n"
        assert dead not in (await client.metadata(ledger_id, sync=True)).segments[0].bookies
        assert dead in await client.store.children(paths.cookie_path("/ledgers"))
        code, out, said = await loop.run_in_executor(None, rsm, cluster, "decommission", dead)
        assert (code, out) == (0, f"no ledger names bookie {dead} any more, and its cookie is deleted\n"), said
        assert dead not in await client.store.children(paths.cookie_path("/ledgers"))

    on_cluster(cluster.metadata_uri, scenario, timeout_s=200)


def test_a_bookie_is_emptied_while_it_serves_and_obeys_over_a_start(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=4)

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        ids = [await write(client, 50) for _ in range(4)]
        gone = (await client.metadata(ids[0])).segments[0].bookies[0]
        code, out, said = await loop.run_in_executor(None, rsm, cluster, "drain", gone)
        assert code == 0, said
        assert "takes no more entries" in out
        assert gone in await client.ledgers.read_only_bookies()
        number = cluster.bookies.index(gone)
        await loop.run_in_executor(None, cluster.stop_bookie, number)
        await loop.run_in_executor(None, cluster.start_bookie, number)
        assert gone in await client.ledgers.read_only_bookies()
        with auto_recovery(cluster.metadata_uri, tmp_path / "log", "--lost-bookie-delay-s", "3600"):
            code, out, said = await loop.run_in_executor(None, rsm, cluster, "drain", gone, "--wait", "--json")
        assert code == 0, said
        assert json.loads(out) == {"bookie_id": gone, "ledger_ids": [], "unread": [], "draining": True}
        states = {
            one["bookie_id"]: one
            for one in lines((await loop.run_in_executor(None, rsm, cluster, "bookies", "--json"))[1])
        }
        assert (states[gone]["state"], states[gone]["ledger_count"]) == ("draining", 0)
        code, out, said = await loop.run_in_executor(None, rsm, cluster, "drain", gone, "--undo")
        assert code == 0, said

        async def is_writable() -> bool:
            return gone in await client.ledgers.writable_bookies()

        await until(is_writable, "it takes no entries")
        await loop.run_in_executor(None, rsm, cluster, "drain", gone)
        await loop.run_in_executor(None, cluster.stop_bookie, number)
        code, out, said = await loop.run_in_executor(None, rsm, cluster, "decommission", gone)
        assert (code, out) == (0, f"no ledger names bookie {gone} any more, and its cookie is deleted\n"), said
        shutil.rmtree(cluster_home(cluster, number))
        for ledger_id in ids:
            assert await contents(client, ledger_id) == list(range(50))

    on_cluster(cluster.metadata_uri, scenario, timeout_s=200)


class _Load:
    """Writes one ledger after the other, and knows which entries were acknowledged."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        self.acknowledged: dict[int, int] = {}
        self.failed_count = 0

    async def run(self) -> None:
        while True:
            try:
                await self._one()
            except LedgerError:
                self.failed_count += 1
                await asyncio.sleep(0.1)

    async def _one(self) -> None:
        writer = await self._client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        for number in range(_ENTRIES_A_LEDGER):
            await writer.append(b"%06d" % number)
            self.acknowledged[writer.ledger_id] = number + 1
            await asyncio.sleep(0.005)
        await writer.close()


@pytest.mark.slow
def test_each_of_five_bookies_is_taken_out_in_turn_while_somebody_writes(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=5)

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        load = _Load(client)
        writing = loop.create_task(load.run())
        for number, bookie_id in enumerate(cluster.bookies):
            before = len(load.acknowledged)

            async def has_written(before: int = before) -> bool:
                return len(load.acknowledged) >= before + 2

            await until(has_written, "nothing is written any more")
            await loop.run_in_executor(None, cluster.stop_bookie, number)
            code, out, said = await loop.run_in_executor(None, rsm, cluster, "decommission", bookie_id, "--wait")
            assert code == 0, said + (tmp_path / "log").read_text()
            assert "its cookie is deleted" in out
            shutil.rmtree(cluster_home(cluster, number))
            await loop.run_in_executor(None, cluster.start_bookie, number)  # Another machine that has its address.
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert len(load.acknowledged) >= 10
        for ledger_id, count in load.acknowledged.items():
            reader = await client.open(ledger_id)
            found = [entry.payload for entry in await reader.read(0, count - 1)]
            assert found == [b"%06d" % number for number in range(count)]

    options = ("--lost-bookie-delay-s", "3600", "--open-ledger-grace-s", "2")
    with auto_recovery(cluster.metadata_uri, tmp_path / "log", *options):
        on_cluster(cluster.metadata_uri, scenario, timeout_s=280)
