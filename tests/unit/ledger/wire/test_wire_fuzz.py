"""Damaged packets by the ten thousand: every decoder refuses them with its own error, or reads a packet.

The packets are valid ones with bytes flipped, cut out, doubled, and lengths set to the extremes, from fixed seeds.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from ledger.core.metadata import DigestType
from ledger.errors import RemoteProtocolError
from ledger.wire import packets as p
from ledger.wire import v2, v2_fast, v3, v3_fast
from ledger.wire.codes import FenceState, OperationType, Status
from ledger.wire.digests import Digest
from ledger.wire.entry import seal
from ledger.wire.frames import FRAME_BYTES_MAX, FrameBuffer

_COUNT = 50_000
_KEY = bytes(range(20))
_BODY = seal(5, 7, 6, 3, b"abc", Digest(DigestType.CRC32C))
_EXTREMES = [0, 1, 3, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]

_REQUESTS: list[p.Request] = [
    p.AddRequest(9, 5, 7, _KEY, _BODY),
    p.AddRequest(9, 5, 7, _KEY, _BODY, is_recovery=True, priority=100),
    p.ReadRequest(300, 5, 7),
    p.ReadRequest(300, 5, -1, _KEY, is_fencing=True),
    p.AuthRequest(1, "plugin", b"payload"),
]
_V2_REQUESTS: list[p.Request] = [*_REQUESTS, p.BatchReadRequest(1, 5, 7, 100, 1 << 20, _KEY, is_fencing=True)]
_V3_REQUESTS: list[p.Request] = [
    *_REQUESTS,
    p.ReadRequest(1, 5, -1, is_piggyback=True, previous_lac=3, timeout_ms=1000),
    p.WriteLacRequest(1, 5, 7, _KEY, b"lac"),
    p.ReadLacRequest(1, 5),
    p.FenceCheckRequest(1, 5, _KEY),
    p.InfoRequest(1, 3),
    p.StartTlsRequest(1),
    p.ForceRequest(1, 5),
    p.ListRequest(1, 5),
]
_RESPONSES: list[p.Response] = [
    p.AddResponse(9, Status.EOK, 5, 7),
    p.AddResponse(9, Status.EFENCED, 5, 7),
    p.ReadResponse(300, Status.EOK, 5, 7, _BODY),
    p.ReadResponse(300, Status.ENOENTRY, 5, 7),
    p.AuthResponse(1, Status.EOK, "plugin", b"payload"),
]
_V2_RESPONSES: list[p.Response] = [*_RESPONSES, p.BatchReadResponse(1, Status.EOK, 5, 7, (_BODY, _BODY, b""))]
_V3_RESPONSES: list[p.Response] = [
    *_RESPONSES,
    p.ReadResponse(300, Status.EOK, 5, 7, _BODY, 9, 123456789),
    p.WriteLacResponse(1, Status.EOK, 5),
    p.ReadLacResponse(1, Status.EOK, 5, b"lac", _BODY),
    p.FenceCheckResponse(1, Status.EOK, 5, FenceState.FENCED),
    p.InfoResponse(1, Status.EOK, 10**12, 10**11),
    p.StartTlsResponse(1, Status.EOK),
    p.ForceResponse(1, Status.EIO, 5),
    p.ListResponse(1, Status.EOK, 5, bytes(64)),
    p.UnsupportedResponse(1, Status.EBADREQ, OperationType.RANGE_ADD_ENTRY),
]

# decoder, the frames that it is given damaged
_DECODERS: dict[str, tuple[Callable[[bytes], object], list[bytes]]] = {
    "v2 requests": (v2.decode_request, [v2.encode_request(r) for r in _V2_REQUESTS]),
    "v2 responses": (v2.decode_response, [v2.encode_response(r) for r in _V2_RESPONSES]),
    "v3 requests": (v3.decode_request, [v3.encode_request(r) for r in _V3_REQUESTS]),
    "v3 responses": (v3.decode_response, [v3.encode_response(r) for r in _V3_RESPONSES]),
}
_FRAMES = [frame for _, frames in _DECODERS.values() for frame in frames]


def _damaged(rng: random.Random, packet: bytes, others: list[bytes]) -> bytes:
    raw = bytearray(packet)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(raw) + 1)
        match rng.randrange(6):
            case 0 if place < len(raw):
                raw[place] ^= 1 << rng.randrange(8)
            case 1 if place < len(raw):
                raw[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del raw[place : place + rng.choice((1, 2, 8, len(raw)))]
            case 3:
                raw[place:place] = raw[: rng.randrange(24)]
            case 4:
                size, code = rng.choice(((4, ">I"), (8, ">Q")))
                raw[place : place + size] = struct.pack(code, rng.choice(_EXTREMES) % (1 << 8 * size))
            case _:
                other = rng.choice(others)
                raw[place:] = other[rng.randrange(len(other)) :]
    return bytes(raw)


@pytest.mark.parametrize("name", _DECODERS)
def test_a_damaged_packet_is_refused_or_is_a_packet(name: str) -> None:
    decode, frames = _DECODERS[name]
    rng = random.Random(name)
    packets = [frame[4:] for frame in frames]
    refusals: list[str] = []
    for number in range(_COUNT):
        packet = _damaged(rng, packets[number % len(packets)], packets)
        try:
            decode(packet)
        except RemoteProtocolError as error:
            refusals.append(str(error))
    assert _COUNT // 20 < len(refusals) < _COUNT
    assert max(map(len, refusals)) < 1000


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", _DECODERS)
def test_a_packet_of_a_few_bytes_is_refused(name: str, size: int) -> None:
    decode, frames = _DECODERS[name]
    for frame in frames:
        with pytest.raises(RemoteProtocolError):
            decode(frame[4 : 4 + size])


def test_a_name_that_is_no_text_is_refused() -> None:
    for codec in (v2, v3):
        request = codec.encode_request(p.AuthRequest(0, "plugin", b""))[4:].replace(b"plugin", b"pl\xff\xfein")
        with pytest.raises(RemoteProtocolError, match="no text"):
            codec.decode_request(request)
        response = codec.encode_response(p.AuthResponse(0, Status.EOK, "plugin", b""))[4:]
        with pytest.raises(RemoteProtocolError, match="no text"):
            codec.decode_response(response.replace(b"plugin", b"pl\xff\xfein"))


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(0, 0), (2**63 - 1, 2**63 - 1), (2**63 - 1, 0)])
def test_the_extreme_ids_survive(ledger_id: int, entry_id: int) -> None:
    body = seal(ledger_id, entry_id, -1, 0, b"", Digest(DigestType.DUMMY))
    for codec in (v2, v3):
        request = p.AddRequest(0, ledger_id, entry_id, _KEY, body)
        assert codec.decode_request(codec.encode_request(request)[4:]) == request


def test_deep_nesting_is_refused() -> None:
    """Unknown groups in groups; a parser that recurses without a limit would overflow."""
    packet = v3.encode_request(p.ReadLacRequest(1, 5))[4:] + b"\x0b" * 100_000
    with pytest.raises(RemoteProtocolError):
        v3.decode_request(packet)


def test_unknown_and_doubled_fields_are_as_protobuf_has_them() -> None:
    """A later version may add fields; of a doubled one the last counts."""
    packet = v3.encode_request(p.ReadLacRequest(1, 5))[4:]
    assert v3.decode_request(packet + b"\xf8\x7f\x01") == p.ReadLacRequest(1, 5)
    assert v3.decode_request(v3.encode_request(p.ReadLacRequest(9, 8))[4:] + packet) == p.ReadLacRequest(1, 5)


def test_streams_with_any_lengths_are_cut_or_refused_within_bounds() -> None:
    """Whatever lengths a peer announces, the buffer stays within one frame and takes no time to fill."""
    rng = random.Random(7)
    refusals: list[str] = []
    for _ in range(2000):
        buffer = FrameBuffer()
        stream = b"".join(_damaged(rng, rng.choice(_FRAMES), _FRAMES) for _ in range(4))
        position = 0
        try:
            while position < len(stream):
                room = buffer.get_buffer(-1)
                assert 0 < len(room) <= FRAME_BYTES_MAX + 4
                part = stream[position : position + rng.choice((1, 7, 64, 10_000))][: len(room)]
                room[: len(part)] = part
                position += len(part)
                for packet in buffer.take(len(part)):
                    assert 0 < len(packet) <= FRAME_BYTES_MAX
        except RemoteProtocolError as error:
            refusals.append(str(error))
    assert refusals
    assert all("a frame announces" in refusal for refusal in refusals)


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_an_impossible_length_is_refused_at_once(length: int) -> None:
    buffer = FrameBuffer()
    buffer.get_buffer(-1)[:4] = struct.pack(">I", length)
    with pytest.raises(RemoteProtocolError, match=f"announces {length} bytes"):
        buffer.take(4)


def test_a_frame_may_come_byte_by_byte() -> None:
    frame = v3.encode_request(_V3_REQUESTS[0])
    buffer = FrameBuffer()
    for byte in frame[:-1]:
        buffer.get_buffer(-1)[0] = byte
        assert buffer.take(1) == []
    buffer.get_buffer(-1)[0] = frame[-1]
    assert [bytes(packet) for packet in buffer.take(1)] == [frame[4:]]


@pytest.mark.parametrize("stored_ids", [v2_fast.stored_ids, v3_fast.stored_ids])
def test_whatever_comes_is_stored_or_something_else(
    stored_ids: Callable[[bytes, int, int], tuple[int, int, int] | None],
) -> None:
    rng = random.Random(3)
    answers = [v2_fast.stored_frame(5, 7), v3_fast.add_response_frame(300, 0, 5, 7)]
    for _ in range(_COUNT // 10):
        raw = _damaged(rng, rng.choice(answers), answers)
        found = stored_ids(raw, 0, len(raw))
        if found is not None:
            assert found[2] == 4 + int.from_bytes(raw[:4], "big") <= len(raw)
