"""Requests of etcd's clients: what is wrong with them, and the commands that they are."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.map import commands as c
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd.requests import (
    OPERATIONS_MAX,
    asks_for_old,
    branch_of,
    check_put,
    check_range,
    check_txn,
    holds,
    is_read_only,
    reads_of,
    span_of,
)


def put(key: bytes, **more: Any) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, **more))


def delete(key: bytes, range_end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=range_end))


def read(key: bytes, range_end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=range_end))


def inner(**sides: Any) -> pb.RequestOp:
    return pb.RequestOp(request_txn=pb.TxnRequest(**sides))


def test_a_range_is_one_key_or_up_to_an_end_or_all_from_one_on() -> None:
    assert span_of(b"a", b"") == (b"a", b"a\0")
    assert span_of(b"a", b"b") == (b"a", b"b")
    assert span_of(b"a", b"\0") == (b"a", None)
    assert holds((b"a", None), b"z")
    assert not holds((b"a", b"b"), b"b")


@pytest.mark.parametrize(
    ("check", "request_", "text"),
    [
        (check_range, pb.RangeRequest(), e.EMPTY_KEY),
        (check_range, pb.RangeRequest(key=b"a", sort_order=7), e.INVALID_SORT),  # type: ignore[arg-type]
        (check_range, pb.RangeRequest(key=b"a", sort_target=7), e.INVALID_SORT),  # type: ignore[arg-type]
        (check_put, pb.PutRequest(value=b"x"), e.EMPTY_KEY),
        (check_put, pb.PutRequest(key=b"a", value=b"x", ignore_value=True), e.VALUE_PROVIDED),
        (check_put, pb.PutRequest(key=b"a", lease=1, ignore_lease=True), e.LEASE_PROVIDED),
        (check_txn, pb.TxnRequest(success=[put(b"a")] * 2), e.DUPLICATE_KEY),
        (check_txn, pb.TxnRequest(success=[put(b"a"), delete(b"a")]), e.DUPLICATE_KEY),
        (check_txn, pb.TxnRequest(success=[put(b"b"), delete(b"a", b"c")]), e.DUPLICATE_KEY),
        (check_txn, pb.TxnRequest(success=[put(b"a"), inner(failure=[put(b"a")])]), e.DUPLICATE_KEY),
        (check_txn, pb.TxnRequest(success=[put(b"a"), inner(failure=[delete(b"a")])]), e.DUPLICATE_KEY),
        (check_txn, pb.TxnRequest(success=[pb.RequestOp()]), e.KEY_NOT_FOUND),
        (check_txn, pb.TxnRequest(compare=[pb.Compare()]), e.EMPTY_KEY),
        (check_txn, pb.TxnRequest(failure=[read(b"a")] * (OPERATIONS_MAX + 1)), e.TOO_MANY_OPERATIONS),
        (check_txn, pb.TxnRequest(success=[inner(success=[read(b"a")] * OPERATIONS_MAX)]), e.TOO_MANY_OPERATIONS),
    ],
)
def test_what_can_never_be_carried_out_is_refused_in_etcds_words(check: Any, request_: Any, text: str) -> None:
    with pytest.raises(e.EtcdError) as caught:
        check(request_)
    assert caught.value.text == text


def test_one_key_may_be_written_on_ways_that_exclude_each_other() -> None:
    check_txn(pb.TxnRequest(success=[put(b"a")], failure=[put(b"a")]))
    check_txn(pb.TxnRequest(success=[inner(success=[put(b"a")], failure=[put(b"a")])]))
    check_txn(pb.TxnRequest(success=[delete(b"a"), delete(b"a")]))


def test_a_transaction_becomes_a_command_without_its_reads() -> None:
    compare = pb.Compare(key=b"a", range_end=b"b", target=pb.Compare.MOD, result=pb.Compare.LESS, mod_revision=7)
    request = pb.TxnRequest(
        compare=[compare],
        success=[read(b"x"), put(b"a", value=b"1", lease=3), put(b"b", ignore_value=True, ignore_lease=True)],
        failure=[inner(success=[delete(b"c", b"\0")]), read(b"y", b"z")],
    )
    assert branch_of(request) == c.Branch(
        [c.CompareRange(b"a", b"b", "revision", "<", 7)],
        [c.WriteKey(b"a", b"1", 3), c.WriteKey(b"b", None, None)],
        [c.Branch([], [c.DeleteRange(b"c", None)], [])],
    )
    assert [(read.key, read.range_end) for read in reads_of(request)] == [(b"x", b""), (b"y", b"z")]
    assert not is_read_only(request)
    assert is_read_only(pb.TxnRequest(success=[read(b"a"), inner(failure=[read(b"b")])]))
    assert not is_read_only(pb.TxnRequest(success=[inner(failure=[put(b"b")])]))


def test_only_what_is_asked_for_needs_the_map_as_it_was() -> None:
    assert not asks_for_old(pb.TxnRequest(success=[put(b"a"), inner(success=[put(b"b")])]))
    for operation in (put(b"a", prev_kv=True), delete(b"a"), read(b"a"), inner(failure=[read(b"a")])):
        assert asks_for_old(pb.TxnRequest(success=[put(b"b"), operation]))
