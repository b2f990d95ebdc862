"""Frames arrive however TCP cuts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import RemoteProtocolError
from ledger.wire.frames import FRAME_BYTES_MAX, FrameBuffer, frame


def feed(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Give the buffer bytes as a transport would: as many at a time as it offers room for."""
    packets: list[bytes] = []
    while data:
        view = buffer.get_buffer(-1)
        count = min(len(view), len(data))
        assert count > 0
        view[:count] = data[:count]
        packets += [bytes(packet) for packet in buffer.take(count)]
        data = data[count:]
    return packets


def test_frames_cut_at_every_byte_come_out_whole() -> None:
    packets = [b"a", b"bc" * 10, b"d" * 300]
    stream = b"".join(frame(packet) for packet in packets)
    for cut in range(len(stream) + 1):
        buffer = FrameBuffer()
        assert feed(buffer, stream[:cut]) + feed(buffer, stream[cut:]) == packets


def test_frames_come_out_whole_byte_by_byte() -> None:
    buffer = FrameBuffer()
    stream = frame(b"one") + frame(b"two")
    assert [packet for byte in stream for packet in feed(buffer, bytes([byte]))] == [b"one", b"two"]


@given(st.lists(st.integers(1, 700_000), min_size=1, max_size=4), st.data())
def test_large_frames_come_out_whole_in_any_chunks(sizes: list[int], data: st.DataObject) -> None:
    packets = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(frame(packet) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    buffer = FrameBuffer()
    received = [
        packet for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) for packet in feed(buffer, stream[a:b])
    ]
    assert received == packets


def test_the_buffer_shrinks_after_a_large_frame() -> None:
    buffer = FrameBuffer()
    before = len(buffer.get_buffer())
    assert len(feed(buffer, frame(b"x" * FRAME_BYTES_MAX))) == 1
    feed(buffer, frame(b"y"))
    assert len(buffer.get_buffer()) == before


def test_a_run_at_the_front_is_taken_by_who_knows_it() -> None:
    buffer = FrameBuffer()
    data = frame(b"aa") + frame(b"b") + frame(b"ccc")[:-1]
    buffer.get_buffer()[: len(data)] = data
    known, packets = buffer.take_after_run(len(data), lambda buffer, end: ([bytes(buffer[4:6])], 6))
    assert (known, [bytes(packet) for packet in packets]) == ([b"aa"], [b"b"])
    assert feed(buffer, b"c") == [b"ccc"]


def test_packets_stay_valid_when_more_arrives() -> None:
    buffer = FrameBuffer()
    data = frame(b"first")
    buffer.get_buffer()[: len(data)] = data
    (packet,) = buffer.take(len(data))
    feed(buffer, frame(b"other"))
    assert bytes(packet) == b"first"


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_a_length_that_is_not_allowed_ends_the_stream(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=str(length)):
        feed(FrameBuffer(), length.to_bytes(4, "big") + b"x")


def test_a_packet_over_the_limit_is_not_sent() -> None:
    with pytest.raises(RemoteProtocolError, match="limit"):
        frame(b"x" * (FRAME_BYTES_MAX + 1))
