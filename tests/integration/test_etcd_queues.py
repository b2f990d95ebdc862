"""Locks and elections that etcd's API serves: one queue for all replicas, by the keys that clients' own ones have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from ledger.dev import DevCluster
from rsm_spark.map.etcd import etcd_pb2 as pb
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.store_processes import stores
from tests.integration.test_etcd_api import TOKENS, principals_of, start, until

pytestmark = pytest.mark.asyncio


async def test_a_lock_goes_from_one_replicas_client_to_anothers(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        addresses = [start(replicas, name) for name in "ab"]
        with EtcdCalls(addresses[0]) as one, EtcdCalls(addresses[1]) as other:
            await asyncio.to_thread(_lock_both, one, other)
            await asyncio.to_thread(_elect_both, one, other)


def _lock_both(one: EtcdCalls, other: EtcdCalls) -> None:
    lease = until(lambda: one.call("LeaseGrant", pb.LeaseGrantRequest(ttl=60))).id
    held = one.call("Lock", pb.LockRequest(name=b"l", lease=lease))
    assert held.key == b"l/%x" % lease
    assert one.call("Lock", pb.LockRequest(name=b"l", lease=lease)).key == held.key, "who has it has it"
    waiting = [other.begin("Lock", pb.LockRequest(name=b"l")) for _ in range(2)]
    until_count(one, b"l/", 3)
    assert not any(one.done() for one in waiting)
    waiting[1].cancel()
    until_count(one, b"l/", 2)
    one.call("LeaseRevoke", pb.LeaseRevokeRequest(id=lease))
    mine = waiting[0].result()
    assert [kv.key for kv in one.get(b"l/", b"l0").kvs] == [mine.key]
    assert other.call("Unlock", pb.UnlockRequest(key=mine.key)).header.revision > mine.header.revision
    assert one.get(b"l/", b"l0").count == 0
    lost = other.call("Lock", pb.LockRequest(name=b"l", lease=4711))
    assert lost == EtcdFailure("NOT_FOUND", "etcdserver: requested lease not found")


def until_count(calls: EtcdCalls, prefix: bytes, count: int) -> None:
    """Watch until so many keys are there."""
    end = prefix[:-1] + b"0"
    watch = calls.watch()
    found = calls.get(prefix, end)
    watch.create(prefix, end, start_revision=found.header.revision + 1)
    assert watch.receive().created
    while found.count != count:
        watch.receive()
        found = calls.get(prefix, end)
    watch.close()


def _elect_both(one: EtcdCalls, other: EtcdCalls) -> None:
    nobody = one.call("Leader", pb.LeaderRequest(name=b"e"))
    assert nobody == EtcdFailure("UNKNOWN", "election: no leader")
    first = one.call("Campaign", pb.CampaignRequest(name=b"e", value=b"first")).leader
    second = other.begin("Campaign", pb.CampaignRequest(name=b"e", value=b"second"))
    until_count(one, b"e/", 2)
    assert other.call("Leader", pb.LeaderRequest(name=b"e")).kv.value == b"first"
    said = other.call("Proclaim", pb.ProclaimRequest(leader=first, value=b"still"))
    assert one.call("Leader", pb.LeaderRequest(name=b"e")).kv.mod_revision == said.header.revision
    again = one.call("Campaign", pb.CampaignRequest(name=b"e", value=b"again", lease=first.lease)).leader
    assert (again, one.call("Leader", pb.LeaderRequest(name=b"e")).kv.value) == (first, b"again")
    assert not second.done()
    one.call("Resign", pb.ResignRequest(leader=first))
    leader = second.result().leader
    assert other.call("Leader", pb.LeaderRequest(name=b"e")).kv.key == leader.key
    late = one.call("Proclaim", pb.ProclaimRequest(leader=first, value=b"late"))
    assert late == EtcdFailure("UNKNOWN", "election: not leader")


async def test_a_principal_locks_under_its_own_prefix_alone(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        address = start(replicas, "a", *principals_of(tmp_path))
        await asyncio.to_thread(_rights, address)


def _rights(address: str) -> None:
    denied = EtcdFailure("PERMISSION_DENIED", "etcdserver: permission denied")
    with EtcdCalls(address, TOKENS["owner"]) as owner, EtcdCalls(address, TOKENS["reader"]) as reader:
        until(lambda: owner.put(b"own/a", b"1"))
        key = owner.call("Lock", pb.LockRequest(name=b"own/lock")).key
        leader = owner.call("Campaign", pb.CampaignRequest(name=b"own/e", value=b"x")).leader
        for name in (b"other", b"ow", b""):
            assert owner.call("Lock", pb.LockRequest(name=name)) == denied
            assert owner.call("Campaign", pb.CampaignRequest(name=name)) == denied
            assert owner.call("Leader", pb.LeaderRequest(name=name)) == denied
        assert owner.call("Unlock", pb.UnlockRequest(key=b"other/1")) == denied
        foreign = pb.LeaderKey(name=b"other", key=b"other/1", rev=1)
        assert owner.call("Resign", pb.ResignRequest(leader=foreign)) == denied
        assert reader.call("Leader", pb.LeaderRequest(name=b"own/e")).kv.key == leader.key
        for method, request in (
            ("Lock", pb.LockRequest(name=b"own/lock")),
            ("Unlock", pb.UnlockRequest(key=key)),
            ("Resign", pb.ResignRequest(leader=leader)),
        ):
            assert reader.call(method, request).code == "PERMISSION_DENIED"


async def test_a_watch_whose_client_asks_for_nothing_more_goes_on(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        address = start(replicas, "a")
        await asyncio.to_thread(_half_closed, address)


def _half_closed(address: str) -> None:
    with EtcdCalls(address) as calls, grpc.insecure_channel(address) as channel:
        first = until(lambda: calls.put(b"h", b"0")).header.revision
        watch = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )
        create = pb.WatchCreateRequest(key=b"h", start_revision=first + 1)
        told = watch(iter([pb.WatchRequest(create_request=create)]), timeout=60)
        assert next(told).created
        calls.put(b"h", b"1")
        assert next(told).events[0].kv.value == b"1"
        told.cancel()
