"""etcd's API of replicas that are processes: any of them answers, a failover misses nothing, rights hold."""

# Longer than 400 lines: it is one API, whose tests share principals and the way to start a replica.

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.etcd import etcd_pb2 as pb
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.store_processes import Stores, stores

pytestmark = pytest.mark.asyncio

_WAIT_S = 60.0
_CANCEL_ROUNDS = 150
_EVERYTHING = {"key": b"\0", "range_end": b"\0"}


def start(replicas: Stores, name: str, *options: str) -> str:
    """Start a replica; return where etcd's clients find it."""
    return str(replicas.start(name, "--etcd-port", "0", *options).ready["etcd_address"])


def until(call: Callable[[], Any]) -> Any:
    """Call until it is answered: while a leader is elected nobody can."""
    deadline = time.monotonic() + _WAIT_S
    while isinstance(answer := call(), EtcdFailure):
        assert answer.code == "UNAVAILABLE", answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


async def test_any_replica_serves_what_any_other_has_written(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        addresses = [start(replicas, name) for name in "ab"]
        with EtcdCalls(addresses[0]) as one, EtcdCalls(addresses[1]) as other:
            await asyncio.to_thread(_serve_both, one, other, addresses)
            async with await MapClient.connect(unique_name, cluster.metadata_uri) as client:
                found = await client.get(b"t/1")
                assert found is not None
                (kv,) = one.get(b"t/1").kvs
                assert (kv.value, kv.mod_revision, kv.create_revision) == found[:3], "one map, whoever asks"
                revision = await client.put(b"t/1", b"by the map")
            (kv,) = other.get(b"t/1").kvs
            assert (kv.value, kv.mod_revision) == (b"by the map", revision)


def _serve_both(one: EtcdCalls, other: EtcdCalls, addresses: list[str]) -> None:
    first = until(lambda: other.put(b"a", b"1"))
    watches = [side.watch() for side in (one, other)]
    for watch in watches:
        watch.create(b"\0", b"\0", start_revision=first.header.revision + 1, prev_kv=True)
        assert watch.receive().created
    puts = [pb.RequestOp(request_put=pb.PutRequest(key=b"t/%d" % n, value=b"x")) for n in range(3)]
    done = other.call("Txn", pb.TxnRequest(success=[*puts, pb.RequestOp(request_range=pb.RangeRequest(key=b"t/1"))]))
    revision = done.header.revision
    assert done.responses[-1].response_range.kvs[0].mod_revision == revision
    shown = one.get(b"t/", b"t0", revision=revision)
    assert [(kv.mod_revision, kv.create_revision) for kv in shown.kvs] == [(revision, revision)] * 3
    assert one.get(b"t/", b"t0", revision=revision - 1).count == 0
    (part,) = one.stream(b"t/", b"t0", revision=revision)
    assert (list(part.kvs), part.count, part.header.revision >= revision) == (list(shown.kvs), 3, True)
    assert one.stream(b"t/", b"t0", sort_order=pb.RangeRequest.DESCEND).code == "UNIMPLEMENTED"
    assert one.stream(b"t/", b"t0", revision=1 << 40).code == "OUT_OF_RANGE"
    other.delete(b"a", prev_kv=True)
    for watch in watches:
        events = watch.events(4)
        assert [event.kv.mod_revision for event in events[:3]] == [revision] * 3
        assert (events[3].type, events[3].prev_kv.value) == (pb.Event.DELETE, b"1")
        watch.close()
    listed = one.call("MemberList", pb.MemberListRequest())
    assert sorted(url for member in listed.members for url in member.client_urls) == sorted(
        f"http://{address}" for address in addresses
    )
    hashes = [side.call("HashKV", pb.HashKVRequest(revision=revision)) for side in (one, other)]
    assert hashes[0].hash == hashes[1].hash
    assert [told.hash_revision for told in hashes] == [revision] * 2
    other.delete(b"t/0")
    assert one.get(b"t/0").count == 0
    assert one.call("HashKV", pb.HashKVRequest(revision=revision)).hash == hashes[0].hash, "as it was then"
    assert one.call("HashKV", pb.HashKVRequest()).hash != hashes[0].hash
    assert one.call("HashKV", pb.HashKVRequest(revision=1 << 40)).code == "OUT_OF_RANGE"
    for refused in (one.call("UserAdd", pb.AuthStatusRequest()), one.call("MemberAdd", pb.MemberListRequest())):
        assert refused.code == "UNIMPLEMENTED"
        assert "docs/etcd.md" in refused.text


async def test_a_replica_that_was_started_again_tells_watches_what_was_before(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        with EtcdCalls(start(replicas, "a")) as calls:

            def write() -> tuple[int, int]:
                first = until(lambda: calls.put(b"k", b"0")).header.revision
                lease = calls.call("LeaseGrant", pb.LeaseGrantRequest(ttl=900)).id
                calls.call("Put", pb.PutRequest(key=b"k", value=b"1", lease=lease))
                calls.put(b"other", b"x")
                calls.call("Put", pb.PutRequest(key=b"k", value=b"2", ignore_lease=True))
                calls.delete(b"k")
                return first, lease

            first, lease = await asyncio.to_thread(write)
        replicas.gone("a").kill()
        with EtcdCalls(start(replicas, "a")) as calls:

            def watch() -> list[tuple[bytes, int, bytes, int]]:
                until(lambda: calls.put(b"k", b"3"))
                watch = calls.watch()
                watch.create(b"k", start_revision=first, prev_kv=True)
                events = watch.events(5)
                watch.close()
                return [(one.kv.value, one.kv.lease, one.prev_kv.value, one.prev_kv.lease) for one in events]

            assert await asyncio.to_thread(watch) == [
                (b"0", 0, b"", 0),
                (b"1", lease, b"0", 0),
                (b"2", lease, b"1", lease),
                (b"", 0, b"2", lease),
                (b"3", 0, b"", 0),
            ]


async def test_a_failover_loses_nothing_and_a_watch_goes_on_elsewhere(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        addresses = {name: start(replicas, name) for name in "ab"}
        leader = await replicas.leader()
        survivor = "b" if leader.replica_id == "a" else "a"
        with EtcdCalls(addresses[leader.replica_id]) as led, EtcdCalls(addresses[survivor]) as left:

            def work() -> None:
                before = [until(lambda n=n: led.put(b"k", b"%d" % n)).header.revision for n in range(5)]
                watch = left.watch()
                watch.create(b"k", start_revision=before[0])
                assert [event.kv.mod_revision for event in watch.events(5)] == before
                leader.kill()
                after = [until(lambda n=n: left.put(b"k", b"%d" % n)).header.revision for n in range(5, 8)]
                told = watch.events(3)
                assert [event.kv.mod_revision for event in told] == after, "each once, and no other"
                (kv,) = left.get(b"k").kvs
                assert (kv.value, kv.version, kv.create_revision) == (b"7", 8, before[0])
                watch.close()
                again = left.watch()
                again.create(b"k", start_revision=before[0])
                assert [event.kv.mod_revision for event in again.events(8)] == before + after
                again.close()

            await asyncio.to_thread(work)
            replicas.gone(leader.replica_id)


_PRINCIPALS = """
[[principal]]
name = "replicas"
role = "replica"
tokens = ["{replica}"]

[[principal]]
name = "owner"
role = "client"
access = "write"
prefix = "own/"
tokens = ["{owner}"]

[[principal]]
name = "reader"
role = "client"
access = "read"
tokens = ["{reader}"]
"""
TOKENS = {name: f"{name}-token-0123456789abcdef" for name in ("replica", "owner", "reader")}


def principals_of(folder: Path) -> list[str]:
    """Return the options of a replica that knows the principals of `TOKENS`."""
    token, principals = folder / "token", folder / "principals.toml"
    token.write_text(TOKENS["replica"])
    hashed = {name: hashlib.sha256(shown.encode()).hexdigest() for name, shown in TOKENS.items()}
    principals.write_text(_PRINCIPALS.format(**hashed))
    for path in (token, principals):
        path.chmod(0o600)
    return ["--token-file", str(token), "--principals", str(principals)]


async def test_a_principal_reaches_its_own_keys_and_nothing_else(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        address = start(replicas, "a", *principals_of(tmp_path))
        await asyncio.to_thread(_rights, address)


def _rights(address: str) -> None:
    denied = EtcdFailure("PERMISSION_DENIED", "etcdserver: permission denied")
    with EtcdCalls(address) as stranger:
        assert stranger.get(b"own/a").code == "UNAUTHENTICATED"
        for name, password in (("owner", "wrong"), ("reader", TOKENS["owner"]), ("nobody", "")):
            failed = stranger.call("Authenticate", pb.AuthenticateRequest(name=name, password=password))
            assert failed.text == "etcdserver: authentication failed, invalid user ID or password"
        shown = stranger.call("Authenticate", pb.AuthenticateRequest(name="owner", password=TOKENS["owner"]))
    with EtcdCalls(address, shown.token) as owner, EtcdCalls(address, TOKENS["reader"]) as reader:
        assert until(lambda: owner.put(b"own/a", b"1")).header.revision > 0
        assert owner.put(b"other", b"1") == denied
        assert owner.get(b"own/", b"own0").count == 1
        for key, end in ((b"own/", b"\0"), (b"\0", b"\0"), (b"o", b"p"), (b"other", b"")):
            assert owner.get(key, end) == denied
            assert owner.stream(key, end) == denied
            assert owner.delete(key, end) == denied
        inside = pb.RequestOp(request_put=pb.PutRequest(key=b"own/b"))
        outside = pb.RequestOp(request_range=pb.RangeRequest(key=b"other"))
        compare = pb.Compare(key=b"other", target=pb.Compare.VERSION)
        assert owner.call("Txn", pb.TxnRequest(success=[inside, outside])) == denied
        assert owner.call("Txn", pb.TxnRequest(compare=[compare], success=[inside])) == denied
        assert owner.call("Txn", pb.TxnRequest(compare=[compare])) == denied, "what it only reads it must not read"
        nested = pb.RequestOp(request_txn=pb.TxnRequest(compare=[compare]))
        assert owner.call("Txn", pb.TxnRequest(success=[nested])) == denied
        assert owner.call("Txn", pb.TxnRequest(success=[inside])).succeeded
        assert owner.call("Compact", pb.CompactionRequest(revision=1)) == denied
        assert owner.call("LeaseLeases", pb.LeaseLeasesRequest()) == denied
        assert owner.call("HashKV", pb.HashKVRequest()) == denied
        assert reader.get(**_EVERYTHING).count == 2
        assert reader.put(b"own/a", b"2").code == "PERMISSION_DENIED"
        assert reader.call("Txn", pb.TxnRequest(success=[inside])) == denied
        watch = owner.watch()
        watch.create(b"\0", b"\0")
        refused = watch.receive()
        assert (refused.watch_id, refused.created, refused.canceled) == (-1, True, True)
        assert refused.cancel_reason == "etcdserver: permission denied"
        watch.create(b"own/", b"own0")
        assert watch.receive().created
        assert owner.put(b"own/c", b"3").header.revision > 0
        assert [event.kv.key for event in watch.events(1)] == [b"own/c"]
        watch.close()


async def test_a_stream_has_many_watches_that_come_and_go(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        address = start(replicas, "a")
        with EtcdCalls(address) as calls:
            await asyncio.to_thread(_watch_much, calls)


def _watch_much(calls: EtcdCalls) -> None:
    first = until(lambda: calls.put(b"w/0", b"0")).header.revision
    watch = calls.watch()
    for n in range(3):
        watch.create(b"w/%d" % n, start_revision=first)
    watch.create(b"w/", b"w0", watch_id=77, filters=[pb.WatchCreateRequest.NOPUT])
    watch.create(b"w/", b"w0", watch_id=77)
    watch.create(b"b", b"a")
    created: list[Any] = []
    told: list[int] = []
    while len(created) < 6 or not told:
        response = watch.receive()
        if response.events:
            told.append(response.watch_id)
        else:
            created.append((response.watch_id, response.canceled, response.cancel_reason))
    assert told == [0]
    assert created == [
        (0, False, ""),
        (1, False, ""),
        (2, False, ""),
        (77, False, ""),
        (-1, True, "mvcc: duplicate watch ID provided on the WatchStream"),
        (-1, True, "mvcc: watcher range is empty"),
    ]
    calls.put(b"w/1", b"1")
    response = watch.receive()
    assert (response.watch_id, response.events[0].kv.key) == (1, b"w/1")
    calls.delete(b"w/2")
    calls.delete(b"w/1")
    got = sorted((one.watch_id, one.events[0].type) for one in (watch.receive(), watch.receive()))
    assert got == [(1, pb.Event.DELETE), (77, pb.Event.DELETE)]
    watch.cancel(1)
    assert watch.receive().canceled
    last = calls.put(b"w/1", b"2").header.revision
    watch.ask_progress()
    progress = watch.receive()
    assert (progress.watch_id, len(progress.events)) == (-1, 0)
    assert progress.header.revision >= last
    large = [b"%d" % n + b"v" * 400_000 for n in range(4)]
    watch.create(b"l/", b"l0", fragment=True)
    number = watch.receive().watch_id
    puts = [pb.RequestOp(request_put=pb.PutRequest(key=b"l/%d" % n, value=value)) for n, value in enumerate(large)]
    done = calls.call("Txn", pb.TxnRequest(success=puts))
    pieces: list[Any] = []
    while not pieces or pieces[-1].fragment:
        pieces.append(watch.receive())
        assert pieces[-1].watch_id == number
    assert len(pieces) > 1
    events = [event for piece in pieces for event in piece.events]
    assert [event.kv.value for event in events] == large
    assert {event.kv.mod_revision for event in events} == {done.header.revision}
    assert calls.call("Compact", pb.CompactionRequest(revision=last)).header.revision > last
    watch.create(b"w/", b"w0", start_revision=first)
    assert watch.receive().created
    ended = watch.receive()
    assert (ended.canceled, ended.compact_revision) == (True, last)
    watch.close()


async def test_watches_that_are_cancelled_while_they_are_told_leave_their_stream_well(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    """Locks of etcd's own client do that at each turn: the key that one waits for is gone, and written again soon."""
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        addresses = [start(replicas, name) for name in "ab"]
        with EtcdCalls(addresses[0]) as one, EtcdCalls(addresses[1]) as other:
            await asyncio.to_thread(_watch_and_cancel, one, other)


def _watch_and_cancel(one: EtcdCalls, other: EtcdCalls) -> None:
    until(lambda: one.put(b"k", b""))
    is_over = threading.Event()

    def write(calls: EtcdCalls) -> None:
        while not is_over.is_set():
            calls.put(b"k", b"x" * 2_000)

    writers = [threading.Thread(target=write, args=(calls,)) for calls in (one, other, one)]
    watch = one.watch()
    try:
        for writer in writers:
            writer.start()
        for _ in range(_CANCEL_ROUNDS):
            for _ in range(4):
                watch.create(b"k")
            cancelled: set[int] = set()
            ended: set[int] = set()
            while len(ended) < 4:
                response = watch.receive()
                assert not isinstance(response, EtcdFailure), response
                if response.canceled:
                    ended.add(response.watch_id)
                elif response.events and response.watch_id not in cancelled:
                    cancelled.add(response.watch_id)
                    watch.cancel(response.watch_id)
            assert ended == cancelled
    finally:
        is_over.set()
        watch.close()
        for writer in writers:
            writer.join()


async def test_old_revisions_are_read_after_restarts_and_on_any_replica_until_they_are_compacted(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        with EtcdCalls(start(replicas, "a")) as calls:
            until(lambda: calls.put(b"p/00", b"old", lease=0))
            for number in range(1, 20):
                calls.put(b"p/%02d" % number, b"old")
            puts = [pb.RequestOp(request_put=pb.PutRequest(key=b"t/%d" % n, value=b"1")) for n in range(3)]
            together = calls.call("Txn", pb.TxnRequest(success=puts)).header.revision
            listed = calls.get(b"\0", b"\0")
            at = listed.header.revision
            calls.delete(b"p/05", b"p/15")
            calls.put(b"p/01", b"new")
        replicas.gone("a").kill()
        for (
            name
        ) in "ab":  # The first of them is the same one again, the other one has nothing but snapshots and the log.
            with EtcdCalls(start(replicas, name)) as calls:
                until(lambda calls=calls: calls.get(b"p/"))
                seen, start_key = [], b"\0"
                while True:
                    page = calls.get(start_key, b"\0", revision=at, limit=7)
                    seen += page.kvs
                    if not page.more:
                        break
                    start_key = page.kvs[-1].key + b"\0"
                assert seen == list(listed.kvs)
                assert page.header.revision > at
                assert calls.get(b"t/", b"t0", revision=together - 1).count == 0, "within a transaction nothing of it"
                assert calls.get(b"t/", b"t0", revision=together).count == 3
                # A watch from behind the list tells what has changed since.
                watch = calls.watch()
                watch.create(b"p/", b"p0", start_revision=at + 1)
                assert [one.type for one in watch.events(11)] == [pb.Event.DELETE] * 10 + [pb.Event.PUT]
                watch.close()
                assert calls.get(b"p/", revision=at + 10_000).code == "OUT_OF_RANGE"
        with EtcdCalls(start(replicas, "c")) as calls:
            until(lambda: calls.call("Compact", pb.CompactionRequest(revision=at + 1, physical=True)))
            assert calls.get(b"p/00", revision=at) == EtcdFailure(
                "OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted"
            )
            assert calls.get(b"p/00", revision=at + 1).count == 1
