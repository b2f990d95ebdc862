"""Messages as JSON: names, base64 and numbers are etcd's; what is no message is refused in words."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd.errors import EtcdError
from rsm_spark.map.etcd.json_text import OBJECTS_MAX, VALUES_MAX, json_of, json_steps, parse_all, parse_json


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (pb.LeaseGrantResponse(id=7, ttl=30), {"ID": "7", "TTL": "30"}),
        (pb.LeaseTimeToLiveResponse(granted_ttl=3, keys=[b"k"]), {"grantedTTL": "3", "keys": ["aw=="]}),
        (pb.StatusResponse(dbSize=1, raftIndex=2, leader=3), {"dbSize": "1", "raftIndex": "2", "leader": "3"}),
        (pb.EtcdMember(id=1, client_urls=["u"], isLearner=True), {"ID": "1", "clientURLs": ["u"], "isLearner": True}),
        (pb.AlarmMember(member_id=1, alarm=pb.NOSPACE), {"memberID": "1", "alarm": "NOSPACE"}),
        (pb.HashKVResponse(hash=5, compact_revision=6), {"hash": 5, "compact_revision": "6"}),
        (pb.Event(type=pb.Event.PUT, kv=pb.KeyValue(key=b"k", mod_revision=2)),
         {"kv": {"key": "aw==", "mod_revision": "2"}}),
        (pb.Event(type=pb.Event.DELETE), {"type": "DELETE"}),
        (pb.PutResponse(), {}),
    ],
)  # fmt: skip
def test_an_answer_has_etcds_names(message: Any, shown: dict[str, Any]) -> None:
    assert json.loads(json_of(message)) == shown


def test_a_long_answer_comes_in_pieces() -> None:
    response = pb.RangeResponse(count=3, kvs=[pb.KeyValue(key=b"%d" % n) for n in range(3)], more=True)
    pieces = list(json_steps(response))
    assert len(pieces) == 7
    assert [kv["key"] for kv in json.loads(b"".join(pieces))["kvs"]] == ["MA==", "MQ==", "Mg=="]


@given(
    key=st.binary(max_size=40), value=st.binary(max_size=40), lease=st.integers(-(1 << 63), (1 << 63) - 1),
    old=st.booleans(),
)  # fmt: skip
def test_a_request_is_read_as_it_was_written(key: bytes, value: bytes, lease: int, old: bool) -> None:  # noqa: FBT001
    request = pb.PutRequest(key=key, value=value, lease=lease, prev_kv=old)
    assert parse_json(pb.PutRequest, json_of(request)) == request


def test_either_name_of_a_field_is_taken() -> None:
    for text in (b'{"range_end":"eg==","limit":3}', b'{"rangeEnd":"eg","limit":"3"}'):
        assert parse_json(pb.RangeRequest, text) == pb.RangeRequest(range_end=b"z", limit=3)
    assert parse_json(pb.LeaseGrantRequest, b'{"TTL":5,"ID":"9"}') == pb.LeaseGrantRequest(ttl=5, id=9)
    assert parse_json(pb.RangeRequest, b"") == pb.RangeRequest()
    assert parse_json(pb.AuthenticateRequest, '{"name":"Ä b"}'.encode()).name == "Ä b"


def test_a_stream_has_several_requests() -> None:
    text = b'{"ID":1}\n {"ID":2}{"ID":3}\n'
    assert [request.id for request in parse_all(pb.LeaseKeepAliveRequest, text, 3)] == [1, 2, 3]
    with pytest.raises(EtcdError, match="more than 2 documents"):
        parse_all(pb.LeaseKeepAliveRequest, text, 2)


@pytest.mark.parametrize(
    "text",
    [
        b"{", b"[]", b"1", b"null", b"nothing", b'{"key":"Zg"} x', b'{"key":"Zg=="}{"key":"Zg=="}', b"\xff",
        b'{"key":"###"}', b'{"key":"A"}', b'{"key":1}', b'{"key":{}}', b'{"key":["Zg=="]}', b'{"bogus":1}',
        b'{"limit":1,"limit":2}', b'{"limit":1.5}', b'{"limit":"9223372036854775808"}', b'{"limit":NaN}',
        b'{"limit":1e400}', b'{"sort_order":"SIDEWAYS"}', b'{"serializable":"yes"}', b'{"key":"\\ud800"}',
        b'{"a":' * 5_000 + b"}" * 5_000, b"[" * 9_000, b"{" * (OBJECTS_MAX + 1), b"," * (VALUES_MAX + 1),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_in_words(text: bytes) -> None:
    with pytest.raises(EtcdError, match="^rsm: the request ") as refused:
        parse_json(pb.RangeRequest, text)
    assert len(refused.value.text) <= 400


def test_a_nested_transaction_has_a_depth() -> None:
    request = pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"k"))])
    for _ in range(10):
        request = pb.TxnRequest(success=[pb.RequestOp(request_txn=request)])
    assert parse_json(pb.TxnRequest, json_of(request)) == request
    deep = b'{"success":[{"request_txn":' * 40 + b"{}" + b"}]}" * 40
    with pytest.raises(EtcdError, match="^rsm: the request "):
        parse_json(pb.TxnRequest, deep)


def test_the_largest_transaction_is_read() -> None:
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"k" * 100, value=b"v" * 1_000))
    request = pb.TxnRequest(success=[pb.RequestOp(request_txn=pb.TxnRequest(success=[put] * 7)) for _ in range(128)])
    text = json_of(request)
    assert b64encode(b"k" * 100) in text
    assert parse_json(pb.TxnRequest, text) == request
