"""Requests of PostgreSQL's protocol: cut out of any bytes, however they come; what is none is refused."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.sql.pg.wire import (
    PgBindRequest,
    PgBrokenError,
    PgCancelRequest,
    PgCloseRequest,
    PgDescribeRequest,
    PgEncryptionRequest,
    PgExecuteRequest,
    PgParseRequest,
    PgQuery,
    PgReader,
    PgRequest,
    PgStartupRequest,
    PgSyncRequest,
)
from tests.unit.rsm_spark.sql.pg import pg_bytes as b


def _reader() -> PgReader:
    reader = PgReader()
    reader.is_greeting = False
    return reader


def _all(reader: PgReader) -> list[PgRequest]:
    found: list[PgRequest] = []
    while (request := reader.request()) is not None:
        found.append(request)
    return found


SAID = [
    (b.query("SELECT 'ä'"), PgQuery("SELECT 'ä'")),
    (b.parse("s", "SELECT $1", 23, 0), PgParseRequest("s", "SELECT $1", (23, 0))),
    (
        b.bind("p", "s", b"\0x", None, formats=[1, 0], results=[1]),
        PgBindRequest("p", "s", (1, 0), (b"\0x", None), (1,)),
    ),
    (b.describe("P", "p"), PgDescribeRequest(True, "p")),  # noqa: FBT003
    (b.execute("p", 7), PgExecuteRequest("p", 7)),
    (b.close("S", "s"), PgCloseRequest(False, "s")),  # noqa: FBT003
    (b.SYNC, PgSyncRequest()),
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(SAID), max_size=6), st.data())
def test_requests_come_whole_however_their_bytes_come(said: list[tuple[bytes, PgRequest]], data: st.DataObject) -> None:
    text = b"".join(one for one, _ in said)
    reader, found = _reader(), list[PgRequest]()
    while text:
        size = data.draw(st.integers(1, len(text)))
        reader.feed(text[:size])
        text = text[size:]
        found += _all(reader)
    assert found == [one for _, one in said]
    assert reader.held_bytes == 0


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_requests_or_refused(text: bytes) -> None:
    for reader in (_reader(), PgReader()):
        reader.feed(text)
        with contextlib.suppress(PgBrokenError):
            if reader.is_greeting:
                while reader.is_greeting and reader.greeting() is not None:
                    pass
            else:
                _all(reader)


@settings(max_examples=200)
@given(st.sampled_from([text for text, _ in SAID]), st.integers(0, 60), st.integers(0, 255))
def test_a_request_with_a_wrong_byte_is_a_request_or_refused(text: bytes, place: int, letter: int) -> None:
    place %= len(text)
    reader = _reader()
    reader.feed(text[:place] + bytes([letter]) + text[place + 1 :])
    with contextlib.suppress(PgBrokenError):
        _all(reader)


def test_greetings_are_told_apart() -> None:
    reader = PgReader()
    reader.feed(struct.pack("!ii", 8, 80877103) + struct.pack("!ii", 8, 80877104))
    assert [reader.greeting(), reader.greeting()] == [PgEncryptionRequest(True), PgEncryptionRequest(False)]  # noqa: FBT003
    reader.feed(struct.pack("!iiii", 16, 80877102, 5, -7))
    assert reader.greeting() == PgCancelRequest(5, -7)
    reader.feed(b.startup(user="ann", database="shop"))
    assert reader.greeting() == PgStartupRequest(0, {"user": "ann", "database": "shop"})
    assert not reader.is_greeting


@pytest.mark.parametrize(
    "text",
    [b"GET / HTTP/1.1\r\n\r\n", struct.pack("!ii", 20_000, 3 << 16), struct.pack("!ii", 8, 2 << 16), b"\0" * 8],
)
def test_what_is_no_greeting_is_refused(text: bytes) -> None:
    reader = PgReader()
    reader.feed(text)
    with pytest.raises(PgBrokenError):
        reader.greeting()


def test_a_frame_is_bounded_before_it_has_come() -> None:
    reader = _reader()
    reader.feed(b"Q" + struct.pack("!i", reader.message_bytes_max + 1))
    with pytest.raises(PgBrokenError, match="at most"):
        reader.request()


def test_a_reader_is_full_when_a_frame_waits_or_much_lies_ahead() -> None:
    reader = _reader()
    reader.message_bytes_max = 1_000_000
    reader.feed(b"Q" + struct.pack("!i", 500_000) + b"x" * 100_000)
    assert not reader.is_full, "the frame is not whole"
    reader.feed(b"x" * 399_995)
    assert not reader.is_full
    reader.feed(b"\0")
    assert reader.is_full
    many = _reader()
    many.feed(b.SYNC * 20_000)
    assert many.is_full
    assert len(_all(many)) == 20_000
