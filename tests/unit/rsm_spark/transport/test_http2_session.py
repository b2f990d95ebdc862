"""HTTP/2 as its server sees it: what callers may do, what they may not, and what both windows let go."""

from __future__ import annotations

import random
from typing import Any

import hpack
import pytest

from rsm_spark.transport.http2_heads import ENDED_WELL, ending, head_of
from rsm_spark.transport.http2_session import (
    CALLS_MAX,
    WORK_MAX,
    Http2Code,
    Http2Error,
    Http2Session,
    RpcHalfClosed,
    RpcMessage,
    RpcOpened,
    RpcRefused,
    RpcReset,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
HEAD = [(":method", "POST"), (":path", "/s/M"), ("content-type", "application/grpc"), ("te", "trailers")]


def frame(kind: int, flags: int, stream: int, text: bytes = b"") -> bytes:
    return len(text).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + text


def message(text: bytes) -> bytes:
    return b"\0" + len(text).to_bytes(4, "big") + text


class Caller:
    """A caller that speaks as it should, and reads what it is told."""

    def __init__(self, *, window: int | None = None, message_bytes_max: int = 1_000_000) -> None:
        self.session = Http2Session(message_bytes_max=message_bytes_max)
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.messages: dict[int, bytes] = {}
        self.heads: dict[int, list[dict[str, str]]] = {}
        self.resets: dict[int, int] = {}
        self.windows: dict[int, int] = {}
        settings = b"" if window is None else b"\x00\x04" + window.to_bytes(4, "big")
        assert self.session.receive(PREFACE + frame(SETTINGS, 0, 0, settings)) == []
        self.hear()

    def hear(self) -> bytes:
        heard = text = self.session.take()
        while text:
            size, kind, stream = int.from_bytes(text[:3], "big"), text[3], int.from_bytes(text[5:9], "big")
            body, text = text[9 : 9 + size], text[9 + size :]
            if kind == DATA:
                self.messages[stream] = self.messages.get(stream, b"") + body
            elif kind == HEADERS:
                self.heads.setdefault(stream, []).append(
                    {str(name): str(value) for name, value in self.decoder.decode(body)}
                )
            elif kind == RESET:
                self.resets[stream] = int.from_bytes(body, "big")
            elif kind == WINDOW:
                self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(body, "big")
        return heard

    def head(self, stream: int, flags: int = 0x4, fields: Any = None) -> bytes:
        return frame(HEADERS, flags, stream, self.encoder.encode(HEAD if fields is None else fields))

    def call(self, stream: int, text: bytes = b"hello") -> list[Any]:
        return self.session.receive(self.head(stream) + frame(DATA, 0x1, stream, message(text)))


def test_a_call_is_heard_and_answered() -> None:
    caller = Caller()
    for stream in (1, 3, 5):  # The later ones name entries of the table alone.
        opened, came, ended = caller.call(stream)
        assert isinstance(opened, RpcOpened)
        assert opened.head.path == "/s/M"
        assert came == RpcMessage(stream, b"hello")
        assert ended == RpcHalfClosed(stream, is_whole=True)
        caller.session.taken(stream, b"hello")
        caller.session.answer(stream, b"world", ENDED_WELL)
        caller.session.done()
        caller.hear()
        assert caller.messages[stream] == message(b"world")
        first, last = caller.heads[stream]
        assert first == {":status": "200", "content-type": "application/grpc"}
        assert last == {"grpc-status": "0"}
    assert caller.session.held_bytes == 0
    assert caller.session.is_idle


def test_bytes_may_come_in_any_pieces() -> None:
    rng = random.Random(7)
    encoder = hpack.Encoder()
    text = PREFACE + frame(SETTINGS, 0, 0)
    for stream in range(1, 41, 2):
        body = message(b"m" * rng.randrange(200))
        block = encoder.encode([*HEAD, ("token", str(rng.randrange(5)))])
        text += frame(HEADERS, 0x4, stream, block)
        for place in range(0, len(body), 33):
            text += frame(DATA, 0, stream, body[place : place + 33])
        text += frame(DATA, 0x1, stream)
    whole = Http2Session(message_bytes_max=1_000)
    expected = whole.receive(text)
    for _ in range(20):
        session, events, place = Http2Session(message_bytes_max=1_000), [], 0
        while place < len(text):
            step = rng.randrange(1, 60)
            events += session.receive(text[place : place + step])
            place += step
        assert events == expected
        assert session.held_bytes == whole.held_bytes


def test_what_a_head_says_is_told_also_when_the_table_changes() -> None:
    caller = Caller()
    for n, stream in enumerate(range(1, 200, 2)):
        fields = [*HEAD, ("token", f"t{n % 7}"), ("grpc-timeout", f"{n}m")]
        (opened,) = caller.session.receive(caller.head(stream, fields=fields))
        assert isinstance(opened, RpcOpened)
        assert opened.head.metadata == (("token", b"t%d" % (n % 7)),)
        assert opened.head.timeout_s == pytest.approx(n * 1e-3)


def test_answers_wait_for_windows_and_go_in_turn() -> None:
    caller = Caller(window=10)
    for stream in (1, 3):
        caller.call(stream)
        caller.session.answer(stream, b"x" * 20, ENDED_WELL)
    caller.hear()
    assert {stream: len(text) for stream, text in caller.messages.items()} == {1: 10, 3: 10}
    assert caller.session.unsent_of(1) == 15
    caller.session.receive(frame(WINDOW, 0, 3, (100).to_bytes(4, "big")))
    caller.hear()
    assert caller.messages[3] == message(b"x" * 20)
    assert caller.heads[3][-1] == {"grpc-status": "0"}
    caller.session.receive(frame(SETTINGS, 0, 0, b"\x00\x04" + (1000).to_bytes(4, "big")))
    caller.hear()
    assert caller.messages[1] == message(b"x" * 20)


def test_a_smaller_first_window_takes_back_what_was_left() -> None:
    caller = Caller(window=20)
    caller.call(1)
    caller.session.send(1, b"x" * 30)
    caller.session.receive(frame(SETTINGS, 0, 0, b"\x00\x04" + (5).to_bytes(4, "big")))
    caller.session.receive(frame(WINDOW, 0, 1, (15).to_bytes(4, "big")))
    caller.hear()
    assert len(caller.messages[1]) == 20
    caller.session.receive(frame(WINDOW, 0, 1, (1).to_bytes(4, "big")))
    caller.hear()
    assert len(caller.messages[1]) == 21


def test_nothing_of_messages_is_sent_while_it_is_paused() -> None:
    caller = Caller()
    caller.call(1)
    caller.session.is_paused = True
    caller.session.answer(1, b"x", ENDED_WELL)
    caller.hear()
    assert caller.messages == {}
    caller.session.is_paused = False
    caller.session.pump()
    caller.hear()
    assert caller.messages[1] == message(b"x")
    assert caller.session.held_bytes == 0


def test_large_answers_go_in_bursts() -> None:
    caller = Caller(window=2**31 - 1)
    caller.session.receive(frame(WINDOW, 0, 0, (2**30).to_bytes(4, "big")))
    caller.call(1)
    caller.session.answer(1, b"x" * 3_000_000, ENDED_WELL)
    sizes = []
    while not caller.session.is_idle:
        caller.session.pump()
        sizes.append(len(caller.hear()))
    assert max(sizes) < 300_000
    assert caller.messages[1] == message(b"x" * 3_000_000)
    assert caller.session.unsent_bytes == 0


def test_windows_open_for_a_large_message_and_not_for_unread_ones() -> None:
    caller = Caller()
    caller.session.receive(caller.head(1))
    text = message(b"m" * 900_000)
    for place in range(0, len(text), 16_000):
        events = caller.session.receive(frame(DATA, 0, 1, text[place : place + 16_000]))
        caller.hear()
    assert events == [RpcMessage(1, b"m" * 900_000)]
    assert caller.windows[1] >= len(text) - 256 * 1024
    before = caller.windows[1]
    more = frame(DATA, 0, 1, message(b"m" * 16_000)) * 40
    with pytest.raises(Http2Error) as caught:  # Nobody reads it: no more may come than the window.
        caller.session.receive(more)
    assert caught.value.code is Http2Code.FLOW_CONTROL_ERROR
    caller.hear()
    assert caller.windows[1] == before


def test_what_a_call_held_is_given_back_however_it_ends() -> None:
    caller = Caller()
    caller.session.receive(caller.head(1) + frame(DATA, 0, 1, message(b"x" * 100) + b"\0\0"))
    assert caller.session.held_bytes == 107
    assert caller.session.receive(frame(RESET, 0, 1, bytes(4))) == [RpcReset(1)]
    assert caller.session.held_bytes == 0
    assert caller.session.receive(frame(DATA, 0, 1, b"late") + frame(WINDOW, 0, 1, b"\0\0\0\1")) == []
    assert caller.session.held_bytes == 0


@pytest.mark.parametrize(("text", "status"), [(b"\1\0\0\0\1x", 12), (b"\0\1\0\0\0", 8)], ids=["compressed", "too long"])
def test_a_message_that_is_not_taken_ends_its_call_alone(text: bytes, status: int) -> None:
    caller = Caller(message_bytes_max=1_000)
    *_, refused = caller.session.receive(caller.head(1) + frame(DATA, 0, 1, text))
    assert isinstance(refused, RpcRefused)
    assert (refused.stream_id, refused.status) == (1, status)
    assert caller.session.receive(frame(DATA, 0, 1, b"more")) == []
    caller.session.finish(1, ending(status, refused.why))
    caller.hear()
    assert caller.heads[1][0]["grpc-status"] == str(status)
    assert caller.resets[1] == Http2Code.NO_ERROR
    assert len(caller.call(3)) == 3


def test_a_call_that_is_none_of_grpc_is_answered_in_http() -> None:
    caller = Caller()
    assert caller.session.receive(caller.head(1, 0x5, [(":method", "GET"), (":path", "/")])) == []
    caller.hear()
    assert caller.heads[1] == [{":status": "415"}]


def test_calls_beyond_the_bound_are_refused_and_so_is_who_resets_what_it_opens() -> None:
    caller = Caller()
    for n in range(CALLS_MAX):
        assert caller.call(2 * n + 1)
    assert caller.call(2 * CALLS_MAX + 1) == []
    caller.hear()
    assert caller.resets == {2 * CALLS_MAX + 1: Http2Code.REFUSED_STREAM}
    caller, opened = Caller(), 0
    caller.session.is_known = True
    for n in range(2 * WORK_MAX):
        opened += len(caller.session.receive(caller.head(2 * n + 1) + frame(RESET, 0, 2 * n + 1, bytes(4)))) > 0
    assert opened == WORK_MAX


BAD: dict[str, tuple[bytes, Http2Code]] = {
    "a large frame": (frame(DATA, 0, 1, b"")[3:].join((b"\1\0\0", b"")), Http2Code.FRAME_SIZE_ERROR),
    "a message of no call": (frame(DATA, 0, 9, b"x"), Http2Code.PROTOCOL_ERROR),
    "a message of stream 0": (frame(DATA, 0, 0, b"x"), Http2Code.PROTOCOL_ERROR),
    "an even stream": (frame(HEADERS, 0x5, 2, b"\x82"), Http2Code.PROTOCOL_ERROR),
    "a push": (frame(PUSH, 0x4, 1, bytes(4)), Http2Code.PROTOCOL_ERROR),
    "a short ping": (frame(PING, 0, 0, b"x"), Http2Code.FRAME_SIZE_ERROR),
    "a reset of nothing": (frame(RESET, 0, 9, bytes(4)), Http2Code.PROTOCOL_ERROR),
    "a short reset": (frame(RESET, 0, 1, b"x"), Http2Code.FRAME_SIZE_ERROR),
    "settings of a call": (frame(SETTINGS, 0, 1, bytes(6)), Http2Code.FRAME_SIZE_ERROR),
    "half a setting": (frame(SETTINGS, 0, 0, bytes(5)), Http2Code.FRAME_SIZE_ERROR),
    "too large a window": (frame(SETTINGS, 0, 0, b"\0\4\xff\xff\xff\xff"), Http2Code.FLOW_CONTROL_ERROR),
    "a window of nothing": (frame(WINDOW, 0, 0, bytes(4)), Http2Code.PROTOCOL_ERROR),
    "a window beyond all": (frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), Http2Code.FLOW_CONTROL_ERROR),
    "headers that are none": (frame(HEADERS, 0x4, 1, b"\xff\xff\xff\xff\xff\xff"), Http2Code.COMPRESSION_ERROR),
    "padding beyond the frame": (frame(HEADERS, 0xC, 1, b"\x09x"), Http2Code.PROTOCOL_ERROR),
    "a continuation of nothing": (frame(CONTINUATION, 0x4, 1), Http2Code.PROTOCOL_ERROR),
    "a ping within headers": (frame(HEADERS, 0, 1, b"\x82") + frame(PING, 0, 0, bytes(8)), Http2Code.PROTOCOL_ERROR),
    "headers without end": (
        frame(HEADERS, 0, 1, b"\x82") + frame(CONTINUATION, 0, 1, bytes(9_000)) * 2, Http2Code.ENHANCE_YOUR_CALM,
    ),
    "continuations of nothing without end": (
        frame(HEADERS, 0, 1, b"\x82") + frame(CONTINUATION, 0, 1) * 30_000, Http2Code.ENHANCE_YOUR_CALM,
    ),
    "pings without end": (frame(PING, 0, 0, bytes(8)) * 30_000, Http2Code.ENHANCE_YOUR_CALM),
    "a bomb of headers": (
        frame(HEADERS, 0x4, 1, b"\x40\x01a\x7f\x81\x1e" + b"v" * 4_000 + b"\xbe" * 4_000), Http2Code.COMPRESSION_ERROR,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_who_breaks_the_protocol_or_a_bound_is_told_how(name: str) -> None:
    text, code = BAD[name]
    with pytest.raises(Http2Error) as caught:
        Caller().session.receive(text)
    assert caught.value.code is code


def test_garbage_raises_nothing_else() -> None:
    rng = random.Random(11)
    for _ in range(3_000):
        caller = Caller()
        text = bytearray(caller.head(1) + frame(DATA, 0, 1, message(b"x" * 50)) + frame(WINDOW, 0, 1, bytes(4)))
        for _ in range(rng.randrange(1, 8)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        try:
            caller.session.receive(bytes(text))
        except Http2Error:
            continue
        assert caller.session.held_bytes >= 0


def test_who_speaks_something_else_is_no_caller() -> None:
    session = Http2Session(message_bytes_max=10)
    with pytest.raises(Http2Error, match="does not speak HTTP/2"):
        session.receive(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(Http2Error, match="tells no settings"):
        Http2Session(message_bytes_max=10).receive(PREFACE + frame(PING, 0, 0, bytes(8)))


def test_endings_are_told_in_any_words() -> None:
    long = "käse\n" + "x" * 300
    told: dict[Any, Any] = dict(hpack.Decoder().decode(ending(5, long, [("more", "y" * 200)])))
    assert told["grpc-status"] == "5"
    assert told["grpc-message"] == "k%C3%A4se%0A" + "x" * 300
    assert told["more"] == "y" * 200
    assert head_of([(b":path", b"/a/b"), (b"grpc-timeout", b"12xS")]).timeout_s is None
