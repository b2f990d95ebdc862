"""Ranges in parts: put together they are the answer of one read, of one revision, whatever is written meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from rsm_spark.map import messages as m
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd import range_streams
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.map.etcd.range_streams import STREAMS_OF_CONNECTION_MAX, EtcdRangeService
from rsm_spark.map.etcd.view import MapView
from rsm_spark.map.etcd.work_bounds import WorkBounds
from rsm_spark.transport.served_call import CallAbortedError
from tests.unit.rsm_spark.map.etcd.test_moving_reads import Anybody, MovingBackend

pytestmark = pytest.mark.asyncio

WHOLE = {"key": b"k", "range_end": b"l"}


class Reader:
    """The client's end of one stream; it takes nothing until `takes` is set."""

    def __init__(self, peer: str = "ipv4:127.0.0.1:1") -> None:
        self.parts: list[pb.RangeResponse] = []
        self.ended: tuple[grpc.StatusCode, str] | None = None
        self.takes = asyncio.Event()
        self._peer = peer

    def peer(self) -> str:
        return self._peer

    async def drained(self) -> None:
        if self.parts:
            await self.takes.wait()

    async def write(self, text: bytes) -> None:
        self.parts.append(pb.RangeStreamResponse.FromString(text).range_response)

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.ended = (code, text)
        raise CallAbortedError(text)


class Handlers:
    """Calls of anybody."""

    def __init__(self) -> None:
        self.bounds = WorkBounds()

    def caller(self, _method: str, _context: Any) -> Any:
        return Anybody()


class Streams:
    """A service whose streams are begun by hand."""

    def __init__(self, backend: Any) -> None:
        handlers: Any = Handlers()
        self.handlers = handlers
        self.service = EtcdRangeService(backend, EtcdKvService(backend))
        made: Any = self.service.handler("/etcdserverpb.KV/RangeStream", handlers)
        self._handle = made.unary_stream

    def begin(self, reader: Reader, **asked: Any) -> asyncio.Task[None]:
        request = pb.RangeRequest(**asked).SerializeToString()
        return asyncio.get_running_loop().create_task(self._handle(request, reader))

    async def read(self, **asked: Any) -> list[pb.RangeResponse]:
        """Return all parts, or raise what the stream ended with."""
        reader = Reader()
        reader.takes.set()
        try:
            await self.begin(reader, **asked)
        except CallAbortedError:
            assert reader.ended is not None
            raise e.EtcdError(*reader.ended) from None
        return reader.parts


def filled(count: int = 60, value: bytes = b"first") -> MovingBackend:
    backend = MovingBackend()
    for n in range(count):
        backend.map.run(m.Put(b"k%03d" % n, value))
    return backend


@pytest.mark.parametrize(
    "asked",
    [
        WHOLE,
        WHOLE | {"limit": 3},
        WHOLE | {"limit": 17},
        WHOLE | {"limit": 1_000},
        WHOLE | {"keys_only": True},
        WHOLE | {"count_only": True},
        {"key": b"k001"},
        {"key": b"nothing"},
        {"key": b"x", "range_end": b"y"},
    ],
)
async def test_parts_are_the_answer_of_one_read(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_streams, "PART_BYTES", 200)
    monkeypatch.setattr(range_streams, "_PART_KEYS", 7)
    backend: Any = filled()
    anybody: Any = Anybody()
    revision = backend.revision
    parts = await Streams(backend).read(**asked)
    merged = pb.RangeResponse()
    for part in parts:
        merged.MergeFrom(part)
    expected = await EtcdKvService(backend).range(pb.RangeRequest(revision=revision, **asked), anybody)
    expected.header.revision = revision
    assert merged == expected
    assert [part.HasField("header") for part in parts] == [False] * (len(parts) - 1) + [True]
    if asked == WHOLE:
        assert len(parts) > 8
        assert backend.revision > revision, "it was written meanwhile"


async def test_an_order_that_is_not_said_is_that_within_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(filled(20))
    (part,) = await streams.read(**WHOLE, sort_target=pb.RangeRequest.MOD)
    assert [kv.mod_revision for kv in part.kvs] == sorted(kv.mod_revision for kv in part.kvs)
    monkeypatch.setattr(range_streams, "_PART_KEYS", 3)
    parts = await streams.read(**WHOLE, sort_target=pb.RangeRequest.VALUE)
    keys = [kv.key for part in parts for kv in part.kvs]
    assert (len(keys), len(set(keys))) == (parts[-1].count, len(keys)), "none is missing, none is told twice"


async def test_other_orders_and_filters_are_refused_as_etcd_does() -> None:
    streams = Streams(MovingBackend())
    for more in ({"sort_order": 2}, {"sort_target": 2, "sort_order": 1}):
        with pytest.raises(e.EtcdError, match="custom sort orders") as refused:
            await streams.read(**WHOLE, **more)
        assert refused.value.code is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(e.EtcdError, match="revision filters"):
        await streams.read(**WHOLE, min_mod_revision=3)


async def test_a_compaction_in_the_middle_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    class CompactedBackend(MovingBackend):
        looks_left = 4

        def view(self, revision: int) -> MapView:
            self.looks_left -= 1
            if not self.looks_left:
                raise e.compacted()
            return super().view(revision)

    monkeypatch.setattr(range_streams, "_PART_KEYS", 5)
    backend = CompactedBackend()
    for n in range(60):
        backend.map.run(m.Put(b"k%03d" % n, b""))
    streams, reader = Streams(backend), Reader()
    reader.takes.set()
    with pytest.raises(CallAbortedError):
        await streams.begin(reader, **WHOLE)
    assert reader.ended == (grpc.StatusCode.OUT_OF_RANGE, e.COMPACTED_TEXT)
    assert [len(part.kvs) for part in reader.parts] == [5, 5], "what was told before stays told"
    assert (streams.service.stream_count, streams.handlers.bounds.calls) == (0, 0)


async def test_nothing_is_read_ahead_of_a_client_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_streams, "PART_BYTES", 2_000)
    streams, reader = Streams(filled(50, b"v" * 1_000)), Reader()
    task = streams.begin(reader, **WHOLE)
    for _ in range(100):
        await asyncio.sleep(0)
    assert (len(reader.parts), task.done()) == (1, False)
    assert len(reader.parts[0].kvs) == 2, "the last key may pass the bound"
    reader.takes.set()
    await task
    assert sum(len(part.kvs) for part in reader.parts) == reader.parts[-1].count


async def test_a_stream_of_which_nothing_is_taken_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_streams, "PART_BYTES", 100)
    monkeypatch.setattr(range_streams, "_TAKEN_S", 0.01)
    streams, reader = Streams(filled()), Reader()
    with pytest.raises(CallAbortedError):
        await streams.begin(reader, **WHOLE)
    assert reader.ended is not None
    assert reader.ended[0] is grpc.StatusCode.UNAVAILABLE
    assert (streams.service.stream_count, streams.handlers.bounds.calls) == (0, 0)


async def test_a_connection_and_a_caller_have_so_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_streams, "PART_BYTES", 100)
    streams = Streams(filled())
    readers = [Reader() for _ in range(STREAMS_OF_CONNECTION_MAX)]
    tasks = [streams.begin(reader, **WHOLE) for reader in readers]
    while not all(reader.parts for reader in readers):
        await asyncio.sleep(0)
    with pytest.raises(e.EtcdError, match="too many requests"):
        await streams.read(**WHOLE)
    other = Reader("ipv4:127.0.0.1:2")
    other.takes.set()
    await streams.begin(other, **WHOLE)
    assert other.parts[-1].count == sum(len(part.kvs) for part in other.parts)
    for reader in readers:
        reader.takes.set()
    await asyncio.gather(*tasks)
    assert streams.handlers.bounds.calls == 0


async def test_a_large_key_counts_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_streams, "PART_BYTES", 1_000)
    streams = Streams(filled(4, b"v" * 100_000))
    streams.handlers.bounds = WorkBounds(bytes_max=4 * 240_000)
    readers = [Reader(f"ipv4:127.0.0.1:{n}") for n in range(2)]
    tasks = [streams.begin(reader, **WHOLE) for reader in readers]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    (ended,) = [reader.ended for reader in readers if reader.ended is not None]
    assert ended == (grpc.StatusCode.RESOURCE_EXHAUSTED, e.TOO_MANY_REQUESTS)
    for reader in readers:
        reader.takes.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert streams.handlers.bounds.calls == 0
