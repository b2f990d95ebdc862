"""Reads at revisions that are forgotten show what memory had shown, from the log and snapshots; in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from rsm_spark.errors import MissingLogError
from rsm_spark.map import messages as m
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd.errors import EtcdError
from rsm_spark.map.etcd.old_reads import OldReads
from rsm_spark.map.etcd.ranges import answer_range, rows_wanted
from rsm_spark.map.etcd.requests import Span, span_of
from rsm_spark.map.etcd.view import MapView
from rsm_spark.map.machine import MapMachine
from rsm_spark.runtime.past_rows import PastRows
from tests.unit.rsm_spark.map.etcd.test_past_keys import WatchedMap, _write
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run
from tests.unit.rsm_spark.runtime.test_past_rows import _roll, ask

_ASKED = (
    pb.RangeRequest(key=b"k1"),
    pb.RangeRequest(key=b"\0", range_end=b"\0"),
    pb.RangeRequest(key=b"k1", range_end=b"k3", keys_only=True),
    pb.RangeRequest(key=b"k", range_end=b"l", limit=2),
    pb.RangeRequest(key=b"k", range_end=b"l", count_only=True),
    pb.RangeRequest(key=b"k", range_end=b"z", sort_order=pb.RangeRequest.DESCEND, sort_target=pb.RangeRequest.MOD),
    pb.RangeRequest(key=b"k2", range_end=b"k1"),
)


def _span(request: pb.RangeRequest) -> Span:
    return span_of(request.key, request.range_end)


def _remembered(watched: WatchedMap, request: pb.RangeRequest, revision: int) -> pb.RangeResponse:
    machine = watched.world.leader._context.machine
    assert isinstance(machine, MapMachine)
    view = MapView(machine, revision, watched.history.overlay(revision))
    rows, wanted = list(view.rows(_span(request))), rows_wanted(request)
    return answer_range(request, rows[:wanted], view.count(_span(request)))


def test_what_is_forgotten_is_read_as_it_was_at_every_revision(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path)
        begun = world.leader.revision
        # Keys of very different lengths: what is stored of them has another order than they have.
        await ask(world, m.Put(b"k" * 300, b"long"), m.Put(b"k" * 40, b"middle"), m.Put(b"k", b"short"))
        await _write(world)
        revisions = range(begun, world.leader.revision + 1)
        expected = {(place, at): _remembered(watched, one, at) for place, one in enumerate(_ASKED) for at in revisions}
        watched.forget()
        olds = OldReads(watched.past)
        for (place, at), answer in expected.items():
            assert await olds.answer(_ASKED[place], _span(_ASKED[place]), at, "me") == answer, (place, at)
        assert any(kv.lease for answer in expected.values() for kv in answer.kvs)
        assert watched.past.open_count <= 2
        olds.close()
        assert watched.past.open_count == 0

    run(scenario, replica_count=1, machine=MapMachine)


def test_pages_of_one_list_are_read_from_one_past(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path)
        at = await ask(world, *(m.Put(b"p/%02d" % number, b"old") for number in range(20)))
        await ask(world, *(m.Put(b"p/%02d" % number, b"new") for number in range(10, 30)))
        watched.forget()
        olds = OldReads(watched.past)
        start, seen = b"p/", []
        while True:
            request = pb.RangeRequest(key=start, range_end=b"p0", limit=6)
            answer = await olds.answer(request, _span(request), at, "me")
            seen += [(kv.key, kv.value) for kv in answer.kvs]
            if not answer.more:
                break
            start = answer.kvs[-1].key + b"\0"
        assert seen == [(b"p/%02d" % number, b"old") for number in range(20)]
        assert watched.past.opened_count == 1
        # Another caller has no share in it; reads together wait for their turn; what nobody reads goes.
        reads = (olds.answer(_ASKED[1], _span(_ASKED[1]), at - number, "other") for number in range(12))
        answers = await asyncio.gather(*reads)
        assert [one.count for one in answers] == [20 - number for number in range(12)]
        assert watched.past.open_count <= 2
        await asyncio.sleep(60)
        assert watched.past.open_count == 0

    run(scenario, replica_count=1, machine=MapMachine)


def test_a_range_in_parts_is_read_from_one_past(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path)
        at = await ask(world, *(m.Put(b"p/%02d" % number, b"o" * 10 * number) for number in range(20)))
        await ask(world, *(m.Put(b"p/%02d" % number, b"new") for number in range(10, 30)))
        watched.forget()
        olds = OldReads(watched.past)
        span: Span = (b"p/", b"p0")
        assert await olds.count(span, at, "me") == 20
        for bounds in ({"keys_max": 3, "bytes_max": 1 << 20}, {"keys_max": 100, "bytes_max": 300}):
            seen, sizes = [], []
            next_key: bytes | None = span[0]
            while next_key is not None:
                rows, next_key = await olds.part((next_key, span[1]), at, "me", **bounds)
                seen += [(row.key, row.value) for row in rows]
                sizes.append(len(rows))
            assert seen == [(b"p/%02d" % number, b"o" * 10 * number) for number in range(20)]
            assert len(sizes) > 5
            assert min(sizes) > 0
        assert await olds.part((b"p/50", b"p0"), at, "me", keys_max=1, bytes_max=1) == ([], None)
        assert watched.past.opened_count == 1
        olds.close()

    run(scenario, replica_count=1, machine=MapMachine)


def test_between_two_pasts_others_have_as_long_as_one_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[float, float]] = []
    real_open = PastRows.open

    async def open_slowly(past: PastRows, *chosen: Any, **options: Any) -> Any:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(3)
        rows = await real_open(past, *chosen, **options)
        opened.append((began, asyncio.get_running_loop().time()))
        return rows

    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path)
        at = await ask(world, *(m.Put(b"k/%02d" % number, b"") for number in range(20)))
        watched.forget()
        olds = OldReads(watched.past)
        monkeypatch.setattr(PastRows, "open", open_slowly)
        reads = (olds.answer(_ASKED[1], _span(_ASKED[1]), at - number, f"caller {number % 2}") for number in range(4))
        assert [one.count for one in await asyncio.gather(*reads)] == [20, 19, 18, 17]
        assert len(opened) == 4
        for (began, ended), (next_began, _) in itertools.pairwise(opened):
            assert next_began - ended >= (ended - began) * 0.99
        # A past that is open is read at once.
        before = asyncio.get_running_loop().time()
        await olds.answer(_ASKED[1], _span(_ASKED[1]), at - 3, "caller 1")
        assert asyncio.get_running_loop().time() - before < 3
        olds.close()

    run(scenario, replica_count=1, machine=MapMachine)


def test_an_answer_that_is_too_large_is_refused_and_one_that_nothing_leads_to(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path)
        early = await ask(world, m.Put(b"a", b""))
        for number in range(34):
            await ask(world, m.Put(b"large/%02d" % number, b"v" * 1_000_000))
        at = world.leader.revision
        olds = OldReads(watched.past)
        with pytest.raises(EtcdError, match="ask for parts"):
            await olds.answer(_ASKED[1], _span(_ASKED[1]), at, "me")
        await _roll(world, 2)
        names = sorted(world.cluster.replicas)
        await world.verify(*names[:2])
        async with asyncio.timeout(600):
            while (await world.chain()).ledgers[0].first_revision == 1:
                await asyncio.sleep(0.5)
        with pytest.raises(MissingLogError):
            await olds.answer(_ASKED[0], _span(_ASKED[0]), early, "me")
        olds.close()
        assert watched.past.open_count == 0

    run(
        scenario, machine=MapMachine, roll_bytes=4_000, retention_ms=1_000, trim_s=0.5, checkpoint_records=1,
        snapshot_s=0, limit_s=3_000.0,
    )  # fmt: skip
