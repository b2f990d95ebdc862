"""Frames of the framed port, by bytes: what may come when, what is too long, and that rubbish is one clear error."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.transport.call_frames import (
    BEAT,
    HELLO_BYTES_MAX,
    VERSION,
    CallEnd,
    CallFrameReader,
    CallHello,
    CallWelcome,
    FrameError,
    FrameKind,
    FrameTooLongError,
    decode_end,
    decode_hello,
    decode_welcome,
    encode_end,
    encode_frame,
    encode_hello,
    encode_welcome,
)
from tests.sets import examples

MESSAGE_MAX = 1_000
HELLO = encode_hello(CallHello("/a.B/C", b"token"))
WELCOME = encode_welcome(CallWelcome(VERSION, MESSAGE_MAX))
ENDED = encode_end(CallEnd(7, "no", (("a", "b"),)))


def feed(reader: CallFrameReader, data: bytes) -> list[tuple[FrameKind, bytes]]:
    """Raise what is wrong behind the frames, as who reads them all does in the end."""
    frames = reader.feed(data)
    if reader.damage is not None:
        raise reader.damage
    return frames


def message(content: bytes) -> bytes:
    return encode_frame(FrameKind.MESSAGE, content)


def replica(*, is_let_in: bool = True) -> CallFrameReader:
    reader = CallFrameReader(is_server=True, message_bytes_max=MESSAGE_MAX)
    if is_let_in:
        feed(reader, HELLO)
        reader.let_in()
    return reader


def caller() -> CallFrameReader:
    return CallFrameReader(is_server=False, message_bytes_max=MESSAGE_MAX)


def test_a_hello_is_these_bytes() -> None:
    content = b"\x95\xa6/a.B/C\xc4\x05token\x01\x01\xa3rsm"
    assert encode_hello(CallHello("/a.B/C", b"token")) == len(content).to_bytes(4, "big")[:3] + b"\x16\x01" + content


def test_what_was_encoded_is_decoded() -> None:
    reader = replica(is_let_in=False)
    ((kind, content),) = feed(reader, HELLO)
    assert (kind, decode_hello(content)) == (FrameKind.HELLO, CallHello("/a.B/C", b"token"))
    ((kind, content),) = feed(caller(), WELCOME)
    assert (kind, decode_welcome(content)) == (FrameKind.WELCOME, CallWelcome(VERSION, MESSAGE_MAX))
    ((kind, content),) = feed(caller(), ENDED)
    assert (kind, decode_end(content)) == (FrameKind.END, CallEnd(7, "no", (("a", "b"),)))


def test_later_versions_may_append_fields() -> None:
    later = msgspec.msgpack.encode(["/a.B/C", b"", 1, 9, "rsm", {"compression": ["zstd"]}, 5])
    hello = decode_hello(later)
    assert (hello.method, hello.version) == ("/a.B/C", VERSION)
    assert decode_end(msgspec.msgpack.encode([0, "", [], 1])) == CallEnd()
    assert decode_welcome(msgspec.msgpack.encode([1, 5, "more"])) == CallWelcome(1, 5)


@pytest.mark.parametrize(("lowest", "highest", "agreed"), [(1, 1, 1), (1, 7, 1), (0, 1, 1), (2, 3, None), (0, 0, None)])
def test_a_version_is_spoken_that_both_know_or_none(lowest: int, highest: int, agreed: int | None) -> None:
    assert CallHello("/a.B/C", b"", lowest, highest).version == agreed


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no hello"),
        (b"\xff" * 20, "no hello"),
        (msgspec.msgpack.encode(["/a.B/C", b"", 1, 1, "http"]), "without the word"),
        (msgspec.msgpack.encode(["/a.B/C", "text", "1"]), "no hello"),
        (msgspec.msgpack.encode([5]), "no hello"),
        (b"\x91\xa1\xff", "no hello"),
        (b"\x96\xa1a\xc4\x00\x01\x01\xa3rsm" + b"\x91" * 3_000, "no hello"),
    ],
)
def test_a_hello_that_is_none_is_one_clear_error(content: bytes, said: str) -> None:
    with pytest.raises(FrameError, match=said):
        decode_hello(content)


def test_a_token_beyond_all_bounds_is_never_sent() -> None:
    with pytest.raises(FrameTooLongError):
        encode_hello(CallHello("/a.B/C", b"t" * HELLO_BYTES_MAX))


def test_very_long_words_about_an_end_are_cut() -> None:
    ((_, content),) = feed(caller(), encode_end(CallEnd(3, "x" * 100_000)))
    assert 1_000 < len(decode_end(content).details) < 10_000


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",  # TLS
        bytes(5),
        b"\0\0\0\x01\x03",
        BEAT,
        ENDED,
        WELCOME,
        message(b"x"),
        (HELLO_BYTES_MAX + 2).to_bytes(4, "big") + b"\x01",
    ],
)
def test_a_stranger_says_a_hello_first_and_no_long_one(said: bytes) -> None:
    with pytest.raises(FrameError, match="no frame of the framed protocol"):
        feed(replica(is_let_in=False), said)


def test_nothing_is_taken_between_the_hello_and_the_welcome() -> None:
    for more in (message(b"x"), BEAT, HELLO, encode_end(CallEnd())):
        with pytest.raises(FrameError, match="may not come now"):
            feed(replica(is_let_in=False), HELLO + more)
        reader = replica(is_let_in=False)
        feed(reader, HELLO)
        with pytest.raises(FrameError, match="may not come now"):
            feed(reader, more)


def test_many_frames_of_one_wake_up_come_out_in_order() -> None:
    frames = feed(replica(), message(b"1") + BEAT + message(b"") + encode_end(CallEnd()))
    assert [kind for kind, _ in frames] == [FrameKind.MESSAGE, FrameKind.BEAT, FrameKind.MESSAGE, FrameKind.END]
    assert [content for _, content in frames[:3]] == [b"1", b"", b""]


def test_after_its_end_a_caller_gives_signs_of_life_alone_and_a_replica_says_nothing() -> None:
    reader = replica()
    feed(reader, encode_end(CallEnd()) + BEAT)
    with pytest.raises(FrameError, match="MESSAGE, which may not come now"):
        feed(reader, message(b"x"))
    heard = caller()
    feed(heard, WELCOME + message(b"x") + ENDED)
    with pytest.raises(FrameError, match="BEAT, which may not come now"):
        feed(heard, BEAT)


@pytest.mark.parametrize("header", [(MESSAGE_MAX + 2, 3), (2, 5), (70_000, 4), (0xFFFFFFFF, 3)])
def test_what_is_too_long_is_refused_by_its_first_bytes(header: tuple[int, int]) -> None:
    length, kind = header
    with pytest.raises(FrameTooLongError, match="allowed"):
        feed(replica(), length.to_bytes(4, "big") + bytes([kind]))


def test_what_came_before_the_damage_is_handed_out() -> None:
    reader = replica()
    assert reader.feed(message(b"1") + b"\0\0\0\x01\x63") == [(FrameKind.MESSAGE, b"1")]
    assert isinstance(reader.damage, FrameError)


def test_kinds_that_nobody_knows_are_refused() -> None:
    with pytest.raises(FrameError, match="kind 99"):
        feed(replica(), b"\0\0\0\x01\x63")


@given(contents=st.lists(st.binary(max_size=MESSAGE_MAX), max_size=8), cuts=st.lists(st.integers(1, 60), min_size=1))
@settings(max_examples=examples(100))
def test_frames_come_out_the_same_however_the_bytes_are_cut(contents: list[bytes], cuts: list[int]) -> None:
    sent = b"".join(message(content) for content in contents) + encode_end(CallEnd())
    reader, got, position = replica(), [], 0
    while position < len(sent):
        step = cuts[position % len(cuts)]
        got += feed(reader, sent[position : position + step])
        position += step
        assert reader.held_bytes <= MESSAGE_MAX + 5
    assert [content for kind, content in got if kind is FrameKind.MESSAGE] == contents
    assert got[-1][0] is FrameKind.END
    assert reader.held_bytes == 0


@given(chunks=st.lists(st.binary(max_size=300), max_size=10), is_server=st.booleans(), is_begun=st.booleans())
@settings(max_examples=examples(300))
def test_rubbish_is_one_error_and_holds_no_more_than_a_frame(
    chunks: list[bytes], is_server: bool, is_begun: bool
) -> None:
    reader = replica(is_let_in=is_begun) if is_server else caller()
    if is_begun and not is_server:
        feed(reader, WELCOME)
    bound = max(MESSAGE_MAX, 64 * 1024) + 5 if is_begun else HELLO_BYTES_MAX + 5
    for chunk in chunks:
        try:
            frames = feed(reader, chunk)
        except FrameError:
            return
        assert all(isinstance(kind, FrameKind) for kind, _ in frames)
        assert reader.held_bytes <= max(bound, 64 * 1024 + 5)


@given(content=st.binary(max_size=200), decode=st.sampled_from([decode_hello, decode_welcome, decode_end]))
@settings(max_examples=examples(300))
def test_contents_that_are_none_are_one_error(content: bytes, decode: object) -> None:
    assert callable(decode)
    try:
        decode(content)
    except FrameError:
        return


@given(position=st.integers(0, 200), value=st.integers(0, 255))
@settings(max_examples=examples(200))
def test_one_wrong_byte_of_a_good_beginning_is_one_error_or_none(position: int, value: int) -> None:
    sent = bytearray(HELLO)
    sent[position % len(sent)] = value
    try:
        for kind, content in feed(replica(is_let_in=False), bytes(sent)):
            assert kind is FrameKind.HELLO
            decode_hello(content)
    except FrameError:
        return
