"""Who asks for old values of everything, from before what a replica remembers: others are served, and get theirs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.transport.security import Security
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.store_processes import stores
from tests.integration.test_etcd_api import TOKENS, principals_of, start, until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1800)]

_CALLS, _UNITS = 10, 60
_THREADS = 3
_VALUE = 1_000_000
_PUTS = 44
"""More old rows than the map remembers for its own watches; etcd's API remembers 64 MiB."""
_GROWTH_MIB_MAX = 600
"""Rows of pasts lie in files; old rows of four watches, entries that are read and messages under way do not."""


def _by_etcd(address: str, _uri: str, _log: str, _token: Path, work: Work) -> None:
    """Open many watches of the whole history with previous values, and read little of it."""
    with EtcdCalls(address, TOKENS["owner"]) as calls:
        watch = calls.watch()
        for _ in range(40):
            watch.create(b"own/", b"own0", start_revision=1, prev_kv=True)
        with contextlib.suppress(Exception):
            for _ in range(44):
                if isinstance(watch.receive(5), EtcdFailure):
                    break
                work.add()
        watch.close()
    work.add()


def _by_old_reads(address: str, _uri: str, _log: str, _token: Path, work: Work) -> None:
    """Ask for everything at one old revision after the other, many at a time, each a file of its own to fill."""
    with EtcdCalls(address, TOKENS["owner"]) as calls:
        created = min(kv.create_revision for kv in calls.get(b"own/", b"own0", keys_only=True).kvs)
        asked = [
            pb.RangeRequest(key=b"own/", range_end=b"own0", keys_only=True, limit=1, revision=created + 8 + n)
            for n in range(24)
        ]
        waiting = [calls.begin("Range", request) for request in asked]
        for one in waiting:
            with contextlib.suppress(grpc.RpcError):
                one.result()
                work.add()


def _by_the_map(_address: str, uri: str, log: str, token: Path, work: Work) -> None:
    """Begin watches with old values again and again, each of all there is."""

    async def watch() -> None:
        async with await MapClient.connect(log, uri, security=Security(token_file=str(token))) as client:

            async def one() -> None:
                seen = 0
                async with contextlib.aclosing(client.watch(prefix=b"own/", from_revision=1, old_values=True)) as told:
                    async for _ in told:
                        work.add()
                        seen += 1
                        if seen == 3:
                            return

            with contextlib.suppress(Exception):
                async with asyncio.timeout(10):
                    await asyncio.gather(*(one() for _ in range(12)))

    asyncio.run(watch())
    work.add()


@contextlib.contextmanager
def _attacking(attack: Callable[..., None], *arguments: Any) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            attack(*arguments)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(120)


@pytest.mark.parametrize(
    ("attack", "units", "puts"),
    [(_by_etcd, _UNITS, _PUTS), (_by_the_map, _UNITS, _PUTS), (_by_old_reads, 6, 110)],
    ids=["etcd", "map", "old reads"],
)
async def test_others_are_served_beside_who_asks_for_old_values_of_everything(
    attack: Callable[..., None], units: int, puts: int, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, options, token = cluster.metadata_uri, principals_of(tmp_path), tmp_path / "owner-token"
    token.touch(mode=0o600)
    token.write_text(TOKENS["owner"])
    with stores(uri, unique_name, tmp_path) as replicas:
        with EtcdCalls(start(replicas, "a", *options), TOKENS["replica"]) as calls:

            def fill() -> int:
                first = int(until(lambda: calls.put(b"victim", b"first")).header.revision)
                calls.put(b"victim", b"second")
                for number in range(puts):
                    until(lambda n=number: calls.put(b"own/%d" % (n % 8), b"%d" % (n % 10) * _VALUE))
                return first

            first = await asyncio.to_thread(fill)
        replicas.gone("a").stop()
        address = start(replicas, "a", *options)
        with EtcdCalls(address, TOKENS["replica"]) as calls:
            live = calls.watch()
            live.create(b"victim/now")

            def ask() -> None:
                answer = until(lambda: calls.put(b"victim/now", b"v"))
                assert not isinstance(answer, EtcdFailure), answer
                (kv,) = calls.get(b"victim/now").kvs
                assert kv.value == b"v"
                (event,) = live.events(1)
                assert event.kv.mod_revision == answer.header.revision

            def watch() -> list[bytes]:
                watch = calls.watch()
                watch.create(b"victim", start_revision=first, prev_kv=True)
                events = watch.events(2)
                watch.close()
                return [event.prev_kv.value for event in events]

            pid = replicas.alive["a"].process.pid
            work, victim = Work(), Victim(lambda: asyncio.to_thread(ask), servers=[pid])
            quiet = await victim.run(_CALLS)
            before = resident_mib(pid)
            with _attacking(attack, address, uri, unique_name, token, work):
                attacked = await victim.run(_CALLS, beside=work, units=units)
                assert await asyncio.to_thread(watch) == [b"", b"first"], "the victim gets its own old values meanwhile"
                grown = resident_mib(pid) - before
            live.close()
            print(f"grown by {grown:.0f} MiB")
            attacked.assert_goes_on_like(quiet, units_per_call=300, longest=1_200, cpu=5_000.0)
            assert grown < _GROWTH_MIB_MAX
            assert replicas.alive["a"].process.poll() is None
        folder = tmp_path / "a" / "past"
        assert not folder.exists() or list(folder.iterdir()) == [], "no file stays behind"
