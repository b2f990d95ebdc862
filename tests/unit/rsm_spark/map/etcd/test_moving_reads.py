"""Reads of a map that changes while they are answered: the header names what was shown."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.map import messages as m
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd import kv_service
from rsm_spark.map.etcd.key_texts import field_text
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.map.etcd.view import MapView
from tests.unit.rsm_spark.map.etcd.test_view import driven

pytestmark = pytest.mark.asyncio


class MovingBackend:
    """A map that somebody writes whenever somebody looks."""

    past = None

    def __init__(self) -> None:
        self.map, self.history = driven()

    @property
    def revision(self) -> int:
        return self.map.revision

    async def linearizable(self) -> int:
        return self.revision

    def view(self, revision: int) -> MapView:
        self.map.run(m.Put(b"k%03d" % (self.revision * 7 % 60), b"%d" % self.revision))
        self.map.run(m.Delete(b"k%03d" % (self.revision * 11 % 60)))
        return MapView(self.map.machine, revision, self.history.overlay(revision, again=True))

    def is_forgotten(self, _revision: int) -> bool:
        return False

    def header(self, revision: int | None = None) -> pb.ResponseHeader:
        return pb.ResponseHeader(revision=self.revision if revision is None else revision)

    def header_text(self, revision: int | None = None) -> bytes:
        return field_text(1, self.header(revision).SerializeToString())


class Anybody:
    owner = "anybody"

    def check_read(self, _span: Any) -> None: ...


async def test_a_read_shows_one_revision_and_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_service, "_STEP_KEYS", 7)
    backend: Any = MovingBackend()
    anybody: Any = Anybody()
    for n in range(60):
        backend.map.run(m.Put(b"k%03d" % n, b"first"))
    service = EtcdKvService(backend)
    every: dict[str, Any] = {"key": b"k", "range_end": b"l"}
    for _ in range(20):
        read = await service.range(pb.RangeRequest(**every), anybody)
        revision = read.header.revision
        again = await service.range(pb.RangeRequest(revision=revision, **every), anybody)
        assert list(again.kvs) == list(read.kvs)
        assert (again.count, again.header.revision > revision) == (len(read.kvs), True)
        assert max(kv.mod_revision for kv in read.kvs) <= revision
        paged: list[Any] = []
        key = b"k"
        while True:
            page = await service.range(pb.RangeRequest(key=key, range_end=b"l", limit=9, revision=revision), anybody)
            paged += page.kvs
            if not page.more:
                break
            key = page.kvs[-1].key + b"\0"
        assert paged == list(read.kvs)


async def test_who_asks_for_no_revision_never_hears_that_it_is_compacted() -> None:
    class ForgettingBackend(MovingBackend):
        def view(self, revision: int) -> MapView:
            raise e.compacted()

    backend: Any = ForgettingBackend()
    anybody: Any = Anybody()
    service = EtcdKvService(backend)
    for read in ({"key": b"k"}, {"key": b"k", "range_end": b"l"}, {"key": b"k", "count_only": True}):
        with pytest.raises(e.EtcdError, match="no leader"):
            await service.range(pb.RangeRequest(**read), anybody)
        with pytest.raises(e.EtcdError, match="compacted"):
            await service.range(pb.RangeRequest(revision=3, **read), anybody)
