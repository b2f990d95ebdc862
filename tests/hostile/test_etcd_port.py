"""Callers of etcd's API that ask for very much: others are served beside them, and the process keeps its size."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledger.dev import DevCluster
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd.watch_service import WATCHES_MAX
from tests.hostile.http2_floods import FLOODS
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.store_processes import Stores, stores
from tests.integration.test_etcd_api import TOKENS, principals_of, start, until

pytestmark = pytest.mark.asyncio

_CALLS, _UNITS = 10, 400
_THREADS = 4
_UNITS_A_CALL = 2_400
"""Each of the victim's two requests waits behind those of the attackers that came before it, 400 at a time; three times
as many is what its place in the queue may be off."""
_LARGE_VALUES, _LARGE_BYTES = 100, 600_000
_GROWTH_MIB_MAX = {"large puts": 800, "watches": 500, "unread": 400}
"""Old rows, the last entries of the log and messages under way, all at their bounds; what one address does not read is
128 MiB at most. Elsewhere 200: what was seen is 500, 200 and 200 MiB for these three, below 70 for the others."""


@asynccontextmanager
async def served(cluster: DevCluster, log: str, folder: Path) -> AsyncIterator[tuple[Stores, str]]:
    """A replica with principals: an owner of few keys attacks, a reader of all is beside it."""
    with stores(cluster.metadata_uri, log, folder) as replicas:
        yield replicas, start(replicas, "a", *principals_of(folder))


def _asks(method: str, request: Any) -> Callable[[str, Work], None]:
    """Ask the same without end, many calls at once."""

    def attack(address: str, work: Work) -> None:
        channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        kind = type(request)
        call: Any = channel.unary_unary(f"/etcdserverpb.KV/{method}", request_serializer=kind.SerializeToString)
        sent = [call.future(request, timeout=30, metadata=(("token", TOKENS["owner"]),)) for _ in range(100)]
        for one in sent:
            with contextlib.suppress(grpc.RpcError):
                one.result()
            work.add()
        channel.close()

    return attack


def _watches(address: str, work: Work) -> None:
    """Open watches of the whole history without end, and read nothing."""
    with EtcdCalls(address, TOKENS["owner"]) as calls:
        watch = calls.watch()
        for _ in range(2 * WATCHES_MAX // 4):
            watch.create(b"own/", b"own0", start_revision=1, prev_kv=True)
        last: Any = None
        with contextlib.suppress(Exception):
            while not isinstance(last := watch.receive(2), EtcdFailure):
                work.add()
                if last.canceled:
                    assert last.cancel_reason == "etcdserver: too many requests"
                    break
        watch.close()
    work.add()


def _locks(address: str, work: Work) -> None:
    """Wait for one lock as often as one may, and leave."""
    with EtcdCalls(address, TOKENS["owner"]) as calls:
        waiting = [calls.begin("Lock", pb.LockRequest(name=b"own/lock")) for _ in range(300)]
        with contextlib.suppress(grpc.RpcError):
            waiting[0].result()
        calls.put(b"own/lock/a", b"")
        for one in waiting:
            one.cancel()
            work.add()


def _garbage(address: str, work: Work) -> None:
    """Send messages that are none."""
    channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    for service, method in (("KV", "Range"), ("KV", "Txn"), ("Lease", "LeaseGrant"), ("Auth", "Authenticate")):
        call: Any = channel.unary_unary(f"/etcdserverpb.{service}/{method}")
        for text in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a" * 200_000):
            with contextlib.suppress(grpc.RpcError):
                call(text, timeout=30, metadata=(("token", TOKENS["owner"]),))
            work.add()
    channel.close()


def _nested() -> pb.TxnRequest:
    """A transaction in a transaction in a transaction, as deep as a message goes."""
    request = pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"own/deep"))])
    for _ in range(45):
        request = pb.TxnRequest(success=[pb.RequestOp(request_txn=request)])
    return request


_ATTACKS: dict[str, Callable[[str, Work], None]] = {
    "puts": _asks("Put", pb.PutRequest(key=b"own/a", value=b"v" * 100)),
    "large puts": _asks("Put", pb.PutRequest(key=b"own/large", value=b"v" * 500_000)),
    "ranges": _asks("Range", pb.RangeRequest(key=b"own/", range_end=b"own0")),
    "nested": _asks("Txn", _nested()),
    "watches": _watches,
    "locks": _locks,
    "garbage": _garbage,
} | {name: functools.partial(flood, token=TOKENS["owner"]) for name, flood in FLOODS.items()}


@contextlib.contextmanager
def attacking(attack: Callable[[str, Work], None], address: str, work: Work) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            attack(address, work)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.parametrize("name", _ATTACKS)
async def test_others_are_served_beside_who_asks_for_very_much(
    name: str, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with served(cluster, unique_name, tmp_path) as (replicas, address):
        with EtcdCalls(address, TOKENS["replica"]) as calls:

            def fill() -> None:
                for n in range(200):
                    until(lambda n=n: calls.put(b"own/%03d" % n, b"v" * 1_000))

            await asyncio.to_thread(fill)

            def ask() -> None:
                answer = calls.put(b"victim", b"v")
                assert not isinstance(answer, EtcdFailure), answer
                (kv,) = calls.get(b"victim").kvs
                assert kv.value == b"v"

            pid = replicas.alive["a"].process.pid
            work, victim = Work(), Victim(lambda: asyncio.to_thread(ask), servers=[pid])
            quiet = await victim.run(_CALLS)
            before = resident_mib(pid)
            with attacking(_ATTACKS[name], address, work):
                attacked = await victim.run(_CALLS, beside=work, units=_UNITS)
                grown = resident_mib(pid) - before
            print(f"{name}: grown by {grown:.0f} MiB")
            attacked.assert_goes_on_like(quiet, units_per_call=_UNITS_A_CALL, longest=4 * _UNITS_A_CALL, cpu=2_000.0)
            assert grown < _GROWTH_MIB_MAX.get(name, 200)
            assert replicas.alive["a"].process.poll() is None


async def test_large_ranges_that_nobody_reads_hold_little(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with served(cluster, unique_name, tmp_path) as (replicas, address):
        with EtcdCalls(address, TOKENS["replica"]) as calls:

            def fill() -> None:
                for n in range(_LARGE_VALUES):
                    until(lambda n=n: calls.put(b"own/%03d" % n, b"%03d" % n * (_LARGE_BYTES // 3)))

            await asyncio.to_thread(fill)

            def ask() -> None:
                parts = calls.stream(b"own/", b"own/010")
                assert not isinstance(parts, EtcdFailure), parts
                told = [kv.value for part in parts for kv in part.kvs]
                assert told == [b"%03d" % n * (_LARGE_BYTES // 3) for n in range(10)]

            pid = replicas.alive["a"].process.pid
            work, victim = Work(), Victim(lambda: asyncio.to_thread(ask), servers=[pid])
            quiet = await victim.run(_CALLS)
            before = resident_mib(pid)
            with attacking(_ATTACKS["unread streams"], address, work):
                attacked = await victim.run(_CALLS, beside=work, units=_UNITS)
                grown = resident_mib(pid) - before
            print(f"large ranges: grown by {grown:.0f} MiB")
            attacked.assert_goes_on_like(
                quiet, units_per_call=10 * _UNITS_A_CALL, longest=40 * _UNITS_A_CALL, cpu=2_000.0
            )
            assert grown < _GROWTH_MIB_MAX["unread"]
            assert replicas.alive["a"].process.poll() is None
