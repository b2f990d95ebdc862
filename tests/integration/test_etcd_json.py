"""etcd's API as JSON: the same map, the same answers, the same rights."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from tests.integration.etcd_calls import EtcdCalls
from tests.integration.etcd_json_calls import EtcdJsonCalls, JsonAnswer, b64, raw
from tests.integration.store_processes import stores
from tests.integration.test_etcd_api import TOKENS, principals_of, until

pytestmark = pytest.mark.asyncio

_JSON = ("--etcd-port", "0", "--etcd-json-port", "0")


def until_served(calls: EtcdJsonCalls) -> None:
    """Ask until there is a leader."""
    deadline = time.monotonic() + 60.0
    while calls.get("/health").document["health"] != "true":
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_json_is_answered_as_messages_are(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        ready = replicas.start("a", *_JSON).ready
        with EtcdCalls(ready["etcd_address"]) as calls, EtcdJsonCalls(ready["etcd_json_address"]) as texts:
            await asyncio.to_thread(until_served, texts)
            await asyncio.to_thread(_keys, calls, texts)
            await asyncio.to_thread(_leases, texts)
            await asyncio.to_thread(_streams, calls, texts, ready["etcd_json_address"])
            await asyncio.to_thread(_refusals, texts)
            lines = texts.lines("watch", {"create_request": {"key": b64(b"k")}})
            assert (await asyncio.to_thread(next, lines))["result"]["created"]
            assert await asyncio.to_thread(replicas.gone("a").stop) == 0
            (ended,) = await asyncio.to_thread(list, lines)
            assert ended["error"] == {"code": 14, "message": "etcdserver: server stopped"}


def _keys(calls: EtcdCalls, texts: EtcdJsonCalls) -> None:
    until(lambda: calls.put(b"j/a", b"1"))
    put = texts.put(b"j/b", b"\0\xff", prev_kv=True)
    assert put.status == 200
    (kv,) = calls.get(b"j/b").kvs
    assert (kv.value, str(kv.mod_revision)) == (b"\0\xff", put.document["header"]["revision"])
    told = texts.range(b"j/", b"j0", limit=1).document
    assert (told["count"], told["more"], [raw(kv["key"]) for kv in told["kvs"]]) == ("2", True, [b"j/a"])
    compare = {"target": "VALUE", "key": b64(b"j/a"), "value": b64(b"1")}
    put_c = {"requestPut": {"key": b64(b"j/c"), "value": b64(b"3")}}
    done = texts.post("kv/txn", {"compare": [compare], "success": [put_c], "failure": []}).document
    assert done["succeeded"]
    assert calls.get(b"j/c").kvs[0].value == b"3"
    gone = texts.post("kv/deleterange", {"key": b64(b"j/"), "range_end": b64(b"j0"), "prev_kv": True}).document
    assert (gone["deleted"], len(gone["prev_kvs"])) == ("3", 3)
    large = texts.put(b"j/large", b"v" * 1_000_000)
    assert large.status == 200
    assert raw(texts.range(b"j/large").document["kvs"][0]["value"]) == b"v" * 1_000_000
    compacted = texts.post("kv/compaction", {"revision": large.document["header"]["revision"]})
    assert compacted.status == 200
    again = texts.post("kv/compaction", {"revision": "1"})
    assert again == JsonAnswer(400, {"code": 11, "message": "etcdserver: mvcc: required revision has been compacted"})


def _leases(texts: EtcdJsonCalls) -> None:
    granted = texts.post("lease/grant", {"TTL": 60, "ID": 77}).document
    assert (granted["ID"], granted["TTL"]) == ("77", "60")
    texts.put(b"l/a", b"x", lease=77)
    shown = texts.post("kv/lease/timetolive", {"ID": "77", "keys": True}).document
    assert (shown["grantedTTL"], [raw(key) for key in shown["keys"]]) == ("60", [b"l/a"])
    kept = list(texts.lines("lease/keepalive", b'{"ID":77}\n{"ID":78}\n'))
    assert [(one["result"]["ID"], one["result"].get("TTL")) for one in kept] == [("77", "60"), ("78", None)]
    assert texts.post("lease/leases", {}).document["leases"] == [{"ID": "77"}]
    held = texts.post("lock/lock", {"name": b64(b"m"), "lease": 77}).document
    assert raw(held["key"]) == b"m/4d"
    assert texts.post("lease/revoke", {"ID": 77}).status == 200
    lost = texts.post("lease/revoke", {"ID": 77})
    assert lost == JsonAnswer(404, {"code": 5, "message": "etcdserver: requested lease not found"})


def _streams(calls: EtcdCalls, texts: EtcdJsonCalls, address: str) -> None:
    first = calls.put(b"w/a", b"1").header.revision
    with EtcdJsonCalls(address) as watching:
        create = {"create_request": {"key": b64(b"w/"), "range_end": b64(b"w0"), "start_revision": str(first)}}
        lines = watching.lines("watch", create)
        assert next(lines)["result"]["created"]
        (event,) = next(lines)["result"]["events"]
        assert (raw(event["kv"]["key"]), event["kv"]["mod_revision"]) == (b"w/a", str(first))
        calls.delete(b"w/a")
        (event,) = next(lines)["result"]["events"]
        assert event["type"] == "DELETE"
    # Who leaves while it waits for a lock waits no more.
    held = texts.post("lock/lock", {"name": b64(b"q")}).document
    waiting = EtcdJsonCalls(address)
    waiting.connection.request("POST", "/v3/lock/lock", b'{"name":"%s"}' % b64(b"q").encode())
    _until_count(calls, 2)
    waiting.connection.close()
    _until_count(calls, 1)
    assert texts.post("lock/unlock", {"key": held["key"]}).status == 200
    elected = texts.post("election/campaign", {"name": b64(b"e"), "value": b64(b"one")}).document
    with EtcdJsonCalls(address) as watching:
        told = watching.lines("election/observe", {"name": b64(b"e")})
        assert raw(next(told)["result"]["kv"]["value"]) == b"one"
        texts.post("election/proclaim", {"leader": elected["leader"], "value": b64(b"two")})
        assert raw(next(told)["result"]["kv"]["value"]) == b"two"


def _until_count(calls: EtcdCalls, count: int) -> None:
    deadline = time.monotonic() + 60.0
    while calls.get(b"q/", b"q0").count != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _refusals(texts: EtcdJsonCalls) -> None:
    assert texts.post("kv/range", {}) == JsonAnswer(400, {"code": 3, "message": "etcdserver: key is not provided"})
    for document in (b"{", b'{"key":"#"}', b'{"key":"Zg==","more":1}'):
        refused = texts.post("kv/range", document)
        assert (refused.status, refused.document["code"]) == (400, 3)
        assert refused.document["message"].startswith("rsm: the request ")
    assert texts.post("nothing", {}).status == 404
    assert texts.get("/v3/kv/range").status == 405
    assert texts.get("/version").document["etcdserver"]
    assert texts.post("kv/range", {"key": "Zg=="}, Host="evil.example").status == 421
    assert texts.post("kv/range", {"key": "Zg=="}, Origin="http://evil.example").status == 403
    assert texts.post("election/leader", {"name": "bm9uZQ=="}).document == {"code": 2, "message": "election: no leader"}
    assert texts.post("kv/put", {"key": "Zg==", "value": "Zg==", "lease": 4711}).status == 404
    large = texts.post("kv/put", b'{"key":"Zg==","value":"%s"}' % (b"A" * 7_000_000))
    assert (large.status, large.document["code"]) == (413, 8)


async def test_a_principal_reaches_its_own_keys_by_json_and_nothing_else(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        ready = replicas.start("a", *_JSON, *principals_of(tmp_path)).ready
        await asyncio.to_thread(_rights, ready["etcd_json_address"], tmp_path)


def _rights(address: str, folder: Path) -> None:
    denied = JsonAnswer(403, {"code": 7, "message": "etcdserver: permission denied"})
    with EtcdJsonCalls(address) as stranger:
        until_served(stranger)
        for token in ("", "wrong"):
            refused = stranger.post("kv/range", {"key": b64(b"own/a")}, **({"Authorization": token} if token else {}))
            assert (refused.status, refused.document["code"]) == (401, 16)
        wrong = stranger.post("auth/authenticate", {"name": "owner", "password": "no, this"})
        assert wrong.document["message"] == "etcdserver: authentication failed, invalid user ID or password"
        token = stranger.post("auth/authenticate", {"name": "owner", "password": TOKENS["owner"]}).document["token"]
    with EtcdJsonCalls(address, token) as owner, EtcdJsonCalls(address, f"Bearer {TOKENS['reader']}") as reader:
        assert owner.put(b"own/a", b"1").status == 200
        assert owner.put(b"other", b"1") == denied
        assert owner.range(b"own/", b"own0").document["count"] == "1"
        assert owner.range(b"\0", b"\0") == denied
        assert owner.post("kv/deleterange", {"key": b64(b"o"), "range_end": b64(b"p")}) == denied
        assert owner.post("kv/txn", {"success": [{"request_range": {"key": b64(b"other")}}]}) == denied
        assert owner.post("kv/compaction", {"revision": 1}) == denied
        assert owner.post("lease/leases", {}) == denied
        assert owner.post("lock/lock", {"name": b64(b"other")}) == denied
        assert reader.range(b"\0", b"\0").document["count"] == "1"
        assert reader.put(b"own/a", b"2").status == 403
        assert next(owner.lines("watch", {"create_request": {"key": b64(b"\0"), "range_end": b64(b"\0")}}))["result"][
            "canceled"
        ]
    with EtcdJsonCalls(address, token) as owner:
        lines = owner.lines("watch", {"create_request": {"key": b64(b"own/"), "range_end": b64(b"own0")}})
        assert next(lines)["result"]["created"]
        # Whose rights are taken back is told no more.
        file = folder / "principals.toml"
        before, _, after = file.read_text().partition('[[principal]]\nname = "owner"')
        file.write_text(before + after.partition("\n\n")[2])
        ended: list[Any] = list(lines)
        assert [one["error"]["code"] for one in ended] == [10]
