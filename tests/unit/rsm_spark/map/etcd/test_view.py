"""The map at a revision, reads of it, and what a transaction answers, by a driven map and its history."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rsm_spark.map import messages as m
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd import ranges
from rsm_spark.map.etcd.errors import EtcdError
from rsm_spark.map.etcd.key_texts import KeyTexts
from rsm_spark.map.etcd.ranges import answer_range
from rsm_spark.map.etcd.replay import TxnReplay
from rsm_spark.map.etcd.requests import branch_of, span_of
from rsm_spark.map.etcd.view import MapView
from rsm_spark.map.key_history import KeyHistory
from tests.unit.rsm_spark.map.driven_map import DrivenMap
from tests.unit.rsm_spark.map.etcd.test_requests import delete, put, read


def driven() -> tuple[DrivenMap, KeyHistory]:
    one = DrivenMap()
    one.machine.history = history = KeyHistory()
    history.begin(0)
    return one, history


def shown(view: MapView, start: bytes = b"", end: bytes | None = None) -> list[tuple[bytes, bytes, int]]:
    return [(row.key, row.value, row.lease) for row in view.rows((start, end))]


def test_a_view_is_the_map_as_it_was_with_leases() -> None:
    one, history = driven()
    one.run(m.GrantLease(9_000, 7))
    one.run(m.Branch([], [m.WriteKey(b"a", b"1", 7), m.WriteKey(b"b", b"1", 0)], []))
    then = one.revision
    before = [(b"a", b"1", 7), (b"b", b"1", 0)]
    one.run(m.Branch([], [m.WriteKey(b"a", b"2", 0), m.WriteKey(b"c", b"2", 7)], []))
    one.run(m.Delete(b"b"))
    view = MapView(one.machine, then, history.overlay(then))
    assert shown(view) == before
    assert shown(view, b"a", b"b") == before[:1]
    assert (view.count((b"", None)), view.count((b"b", b"c\0")), view.count((b"z", b"a"))) == (2, 1, 0)
    assert view.get(b"c") is None
    for inside in (then - 1, then - 2):
        assert shown(MapView(one.machine, inside, history.overlay(inside))) == [], "within a command it is as before it"
    now = MapView(one.machine, one.revision, history.overlay(one.revision))
    assert shown(now) == [(b"a", b"2", 0), (b"c", b"2", 7)]
    assert now.count((b"", None)) == 2


def rows(view: MapView, request: pb.RangeRequest) -> pb.RangeResponse:
    span = span_of(request.key, request.range_end)
    return answer_range(request, list(view.rows(span)), view.count(span))


def test_reads_are_filtered_sorted_and_cut_as_they_ask() -> None:
    one, history = driven()
    for key, value in ((b"a", b"3"), (b"b", b"1"), (b"c", b"2"), (b"a", b"0")):
        one.run(m.Put(key, value))
    view = MapView(one.machine, one.revision, history.overlay(one.revision))

    def keys(**asked: Any) -> list[bytes]:
        return [kv.key for kv in rows(view, pb.RangeRequest(key=b"\0", range_end=b"\0", **asked)).kvs]

    assert keys() == [b"a", b"b", b"c"]
    assert keys(sort_order=pb.RangeRequest.DESCEND) == [b"c", b"b", b"a"]
    assert keys(sort_target=pb.RangeRequest.VALUE, sort_order=pb.RangeRequest.ASCEND) == [b"a", b"b", b"c"]
    assert keys(sort_target=pb.RangeRequest.MOD, sort_order=pb.RangeRequest.DESCEND, limit=1) == [b"a"]
    assert keys(sort_target=pb.RangeRequest.VERSION) == [b"b", b"c", b"a"]
    assert keys(min_mod_revision=3) == [b"a", b"c"]
    assert keys(max_create_revision=2) == [b"a", b"b"]
    page = rows(view, pb.RangeRequest(key=b"\0", range_end=b"\0", limit=2))
    assert (page.more, page.count, len(page.kvs)) == (True, 3, 2)
    counted = rows(view, pb.RangeRequest(key=b"\0", range_end=b"\0", count_only=True))
    assert (counted.count, len(counted.kvs)) == (3, 0)
    assert rows(view, pb.RangeRequest(key=b"a", keys_only=True)).kvs[0].value == b""


def test_what_keys_are_told_as_is_kept_until_they_change() -> None:
    one, history = driven()
    one.run(m.GrantLease(9_000, 7))
    chosen, texts, revisions = Random(11), KeyTexts(8_000), [one.revision]
    for _ in range(1_500):
        key = b"%02d" % chosen.randrange(60)
        match chosen.randrange(5):
            case 0:
                one.run(m.Delete(key))
            case 1:
                one.run(m.Branch([], [m.WriteKey(key, b"leased", 7)], []))
            case _:
                one.run(m.Put(key, b"v" * chosen.randrange(40)))
        revisions.append(one.revision)
        then = chosen.choice((one.revision, chosen.choice(revisions)))
        view = MapView(one.machine, then, history.overlay(then), texts)
        begin, end = sorted((b"%02d" % chosen.randrange(60), b"%02d" % chosen.randrange(60)))
        request = pb.RangeRequest(key=begin, range_end=chosen.choice((end, b"\0", b"")), limit=chosen.randrange(9))
        span = span_of(request.key, request.range_end)
        told: list[bytes] = []
        start: bytes | None = span[0]
        while start is not None and len(told) < (request.limit or 100) + 1:
            start = view.texts((start, span[1]), 1 if request.limit else 7, told)
        answer = pb.RangeResponse.FromString(ranges.range_text(request, told, view.count(span)))
        assert answer == rows(view, request)


def test_an_answer_that_would_be_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, history = driven()
    for n in range(4):
        one.run(m.Put(b"%d" % n, b"v" * 100))
    view = MapView(one.machine, one.revision, history.overlay(one.revision))
    monkeypatch.setattr(ranges, "ANSWER_BYTES_MAX", 250)
    with pytest.raises(EtcdError, match="by a limit"):
        rows(view, pb.RangeRequest(key=b"\0", range_end=b"\0"))
    assert len(rows(view, pb.RangeRequest(key=b"\0", range_end=b"\0", limit=2)).kvs) == 2
    monkeypatch.setattr(ranges, "SORTED_KEYS_MAX", 3)
    with pytest.raises(EtcdError, match="3 keys at most are sorted"):
        rows(view, pb.RangeRequest(key=b"\0", range_end=b"\0", sort_order=pb.RangeRequest.DESCEND))


def test_a_transaction_is_answered_from_the_map_before_it() -> None:
    one, history = driven()
    one.run(m.Put(b"a", b"1"))
    one.run(m.Put(b"b", b"1"))
    request = pb.TxnRequest(
        compare=[pb.Compare(key=b"a", target=pb.Compare.VALUE, value=b"1")],
        success=[read(b"a", b"z"), put(b"a", value=b"2", prev_kv=True), delete(b"b"), read(b"a", b"z"), put(b"c")],
    )
    done = one.run(branch_of(request))
    assert isinstance(done, m.Branched)
    one.run(m.Put(b"a", b"later"))
    view = MapView(one.machine, done.first - 1, history.overlay(done.first - 1))
    answer = pb.TxnResponse.FromString(TxnReplay(view, done.last).text(request, done.taken))
    first, written, removed, second, last = answer.responses
    assert [(kv.key, kv.value) for kv in first.response_range.kvs] == [(b"a", b"1"), (b"b", b"1")]
    assert first.response_range.header.revision == done.first - 1
    assert written.response_put.prev_kv.value == b"1"
    assert removed.response_delete_range.deleted == 1
    (kv,) = second.response_range.kvs
    assert (kv.key, kv.value, kv.mod_revision, kv.create_revision, kv.version) == (b"a", b"2", done.last, 1, 2)
    assert last.response_put.header.revision == done.last


def test_a_limited_read_within_a_transaction_sees_what_came_before_it() -> None:
    one, history = driven()
    for key in (b"b", b"d", b"f", b"h"):
        one.run(m.Put(key, b"1"))
    limited = pb.RequestOp(request_range=pb.RangeRequest(key=b"a", range_end=b"z", limit=3))
    request = pb.TxnRequest(
        success=[limited, put(b"c", value=b"2"), put(b"b", value=b"2"), delete(b"d", b"g"), limited]
    )
    done = one.run(branch_of(request))
    assert isinstance(done, m.Branched)
    view = MapView(one.machine, done.first - 1, history.overlay(done.first - 1))
    answer = pb.TxnResponse.FromString(TxnReplay(view, done.last).text(request, done.taken))
    first, last = answer.responses[0].response_range, answer.responses[-1].response_range
    assert ([kv.key for kv in first.kvs], first.count, first.more) == ([b"b", b"d", b"f"], 4, True)
    assert ([kv.key for kv in last.kvs], last.count, last.more) == ([b"b", b"c", b"h"], 3, False)


def test_a_transaction_that_only_reads_judges_by_itself() -> None:
    one, history = driven()
    one.run(m.Put(b"a", b"1"))
    view = MapView(one.machine, 1, history.overlay(1))
    inner = pb.TxnRequest(compare=[pb.Compare(key=b"a", target=pb.Compare.LEASE, lease=1)])
    request = pb.TxnRequest(
        compare=[pb.Compare(key=b"a", range_end=b"b", target=pb.Compare.VERSION, version=1)],
        success=[pb.RequestOp(request_txn=inner)],
    )
    assert TxnReplay(view, 1).taken(request) == [True, False]
