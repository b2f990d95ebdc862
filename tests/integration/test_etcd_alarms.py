"""Alarms over etcd's API: what they forbid at every door, who may raise them, and that a failover keeps them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.errors import AccessDeniedError, InvalidCommandError
from rsm_spark.map import messages as m
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.transport.security import Security
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.store_processes import stores
from tests.integration.test_etcd_api import TOKENS, principals_of, until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(600)]

_MEMBER = (1 << 64) - 3
_WRITER = "writer-token-0123456789abcdef"
_OPERATOR = "operator-token-0123456789abcdef"
_MORE = f"""
[[principal]]
name = "writer"
role = "client"
access = "write"
tokens = ["{hashlib.sha256(_WRITER.encode()).hexdigest()}"]

[[principal]]
name = "boss"
role = "operator"
tokens = ["{hashlib.sha256(_OPERATOR.encode()).hexdigest()}"]
"""
_FULL = EtcdFailure("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
_CORRUPT = EtcdFailure("DATA_LOSS", "etcdserver: corrupt cluster")
_DENIED = EtcdFailure("PERMISSION_DENIED", "etcdserver: permission denied")


def _request(action: str, alarm: pb.AlarmType = pb.NO_ALARM, member: int = 0) -> pb.AlarmRequest:
    return pb.AlarmRequest(action=action, alarm=alarm, member_id=member)


def _raised(calls: EtcdCalls) -> list[tuple[int, int]]:
    answer = until(lambda: calls.call("Alarm", _request("GET")))
    return [(one.member_id, one.alarm) for one in answer.alarms]


def _health(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/health", timeout=30) as answer:  # noqa: S310 - of ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _without_space(calls: EtcdCalls, owner: EtcdCalls) -> None:
    (raised,) = until(lambda: calls.call("Alarm", _request("ACTIVATE", pb.NOSPACE, _MEMBER))).alarms
    assert (raised.member_id, raised.alarm) == (_MEMBER, pb.NOSPACE)
    again = calls.call("Alarm", _request("ACTIVATE", pb.NOSPACE, _MEMBER))
    assert len(again.alarms) == 1, "it is told again, and raised once"
    assert _raised(calls) == [(_MEMBER, pb.NOSPACE)]
    assert calls.put(b"own/a", b"2") == _FULL == owner.put(b"own/a", b"2")
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"own/new"))
    assert calls.call("Txn", pb.TxnRequest(success=[put])) == _FULL
    assert calls.call("LeaseGrant", pb.LeaseGrantRequest(ttl=60)) == _FULL
    assert calls.get(b"own/a").kvs[0].value == b"1"
    assert calls.delete(b"own/b").deleted == 1
    (error,) = calls.call("Status", pb.StatusRequest()).errors
    assert error == f"memberID:{_MEMBER} alarm:NOSPACE"


def _only_for_administrators(address: str) -> None:
    for token in (TOKENS["owner"], TOKENS["reader"], _WRITER):
        with EtcdCalls(address, token) as calls:
            for action in ("ACTIVATE", "DEACTIVATE"):
                assert calls.call("Alarm", _request(action, pb.CORRUPT, 1)) == _DENIED


async def _clients_cannot_go_around(uri: str, log: str, folder: Path) -> None:
    """Nobody writes the command itself, over the port of the map's own clients."""
    token = folder / "writer-token"
    token.touch(mode=0o600)
    token.write_text(_WRITER)
    security = Security(token_file=str(token))
    async with await ServiceClient.connect(log, uri, security=security) as client:
        with pytest.raises((AccessDeniedError, InvalidCommandError), match="may not administer the log"):
            await client.execute(m.encode(m.SetAlarm("nospace", -3, is_raised=False)))
    async with await MapClient.connect(log, uri, security=security) as client:
        with pytest.raises(InvalidCommandError, match="no-space"):
            await client.put(b"own/a", b"2")


def _corrupt(calls: EtcdCalls, address: str, health: str) -> None:
    assert calls.call("Alarm", _request("ACTIVATE", pb.CORRUPT, 5)).alarms
    for refused in (
        calls.put(b"own/a", b"2"),
        calls.delete(b"own/a"),
        calls.call("LeaseGrant", pb.LeaseGrantRequest(ttl=60)),
        calls.call("Compact", pb.CompactionRequest(revision=2)),
    ):
        assert refused == _CORRUPT
    assert calls.get(b"own/a").kvs[0].value == b"1"
    status, text = _health(health)
    assert (status, json.loads(text)["reason"]) == (503, "ALARM CORRUPT")
    with EtcdCalls(address, _OPERATOR) as boss:
        ended = boss.call("Alarm", _request("DEACTIVATE", pb.CORRUPT, 5)).alarms
        assert [(one.member_id, one.alarm) for one in ended] == [(5, pb.CORRUPT)]
        assert not boss.call("Alarm", _request("DEACTIVATE", pb.CORRUPT, 5)).alarms, "there is none"
        assert calls.put(b"own/a", b"2") == _FULL, "the other one goes on"
        assert boss.call("Alarm", _request("DEACTIVATE", pb.NOSPACE, _MEMBER)).alarms
    assert calls.put(b"own/a", b"2").header.revision > 0
    assert _raised(calls) == []
    assert _health(health)[0] == 200


async def test_alarms_hold_at_every_door_and_over_a_failover(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    options = principals_of(tmp_path)
    with (tmp_path / "principals.toml").open("a") as file:
        file.write(_MORE)
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        first, second = (
            replicas.start(name, "--etcd-port", "0", "--etcd-json-port", "0", *options).ready for name in "ab"
        )
        with EtcdCalls(first["etcd_address"], TOKENS["replica"]) as calls:
            await asyncio.to_thread(until, lambda: calls.put(b"own/a", b"1"))
            await asyncio.to_thread(calls.put, b"own/b", b"1")
        follower = str(second["etcd_address"])
        with EtcdCalls(follower, TOKENS["replica"]) as calls, EtcdCalls(follower, TOKENS["owner"]) as owner:
            await asyncio.to_thread(_without_space, calls, owner)
            await asyncio.to_thread(_only_for_administrators, follower)
            await _clients_cannot_go_around(cluster.metadata_uri, unique_name, tmp_path)
            replicas.gone("a").kill()
            assert await asyncio.to_thread(_raised, calls) == [(_MEMBER, pb.NOSPACE)]
            assert await asyncio.to_thread(calls.put, b"own/a", b"2") == _FULL
            await asyncio.to_thread(_corrupt, calls, follower, str(second["etcd_json_address"]))
