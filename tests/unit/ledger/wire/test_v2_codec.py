"""Protocol v2 against bytes written by hand from BookKeeper's description, and back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.metadata import DigestType
from ledger.errors import RemoteProtocolError, UsageError
from ledger.wire import packets as p
from ledger.wire import v2, v3
from ledger.wire.codes import PRIORITY_RECOVERY, V2_CODES, V2_STATUSES, Status
from ledger.wire.digests import Digest
from ledger.wire.entry import seal

KEY = bytes(range(1, 21))
IDS = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x07"
ENTRY = IDS + b"\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x03abc"

# (a request, its frame)
REQUESTS: list[tuple[p.Request, bytes]] = [
    (p.AddRequest(0, 5, 7, KEY, ENTRY), b"\0\0\0\x3b\2\1\0\0" + KEY + ENTRY),
    (
        p.AddRequest(0, 5, 7, KEY, ENTRY, is_recovery=True, priority=PRIORITY_RECOVERY),
        b"\0\0\0\x3b\2\1\0\6" + KEY + ENTRY,
    ),
    (p.ReadRequest(0, 5, 7), b"\0\0\0\x14\2\2\0\0" + IDS),
    (p.ReadRequest(0, 5, -1), b"\0\0\0\x14\2\2\0\0" + IDS[:8] + b"\xff" * 8),
    (p.ReadRequest(0, 5, 7, KEY, is_fencing=True), b"\0\0\0\x28\2\2\0\1" + IDS + KEY),
    (
        p.ReadRequest(0, 5, 7, KEY, is_fencing=True, priority=PRIORITY_RECOVERY),
        b"\0\0\0\x28\2\2\0\5" + IDS + KEY,
    ),
    (
        p.BatchReadRequest(9, 5, 7, 100, 4096),
        b"\0\0\0\x28\2\7\0\0" + IDS + b"\0\0\0\0\0\0\0\x09\0\0\0\x64\0\0\0\0\0\0\x10\0",
    ),
    (
        p.BatchReadRequest(9, 5, 7, 0, 4096, KEY, is_fencing=True),
        b"\0\0\0\x3c\2\7\0\1" + IDS + b"\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\x10\0" + KEY,
    ),
    (
        p.BatchReadRequest(9, 5, 7, 0, 4096, KEY, is_fencing=True, stride=255),
        b"\0\0\0\x3c\2\7\xff\1" + IDS + b"\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\x10\0" + KEY,
    ),
    (p.AuthRequest(0, "dodo", b"\1\2"), b"\0\0\0\x0e\2\3\0\0\x0a\4dodo\x12\2\1\2"),
]
# (a response, its frame)
RESPONSES: list[tuple[p.Response, bytes]] = [
    (p.AddResponse(0, Status.EOK, 5, 7), b"\0\0\0\x18\2\1\0\0\0\0\0\0" + IDS),
    (p.AddResponse(0, Status.EFENCED, 5, 7), b"\0\0\0\x18\2\1\0\0\0\0\0\x68" + IDS),
    (p.ReadResponse(0, Status.EOK, 5, 7, ENTRY), b"\0\0\0\x3b\2\2\0\0\0\0\0\0" + IDS + ENTRY),
    (p.ReadResponse(0, Status.ENOENTRY, 5, 7), b"\0\0\0\x18\2\2\0\0\0\0\0\2" + IDS),
    (
        p.BatchReadResponse(9, Status.EOK, 5, 7, (b"one", b"three")),
        b"\0\0\0\x30\2\7\0\0\0\0\0\0" + IDS + b"\0\0\0\0\0\0\0\x09\0\0\0\3one\0\0\0\5three",
    ),
    (
        p.BatchReadResponse(9, Status.ENOLEDGER, 5, 7),
        b"\0\0\0\x20\2\7\0\0\0\0\0\1" + IDS + b"\0\0\0\0\0\0\0\x09",
    ),
    (
        p.BatchReadResponse(9, Status.EOK, 5, 7, (b"one",), 3),
        b"\0\0\0\x27\2\7\3\0\0\0\0\0" + IDS + b"\0\0\0\0\0\0\0\x09\0\0\0\3one",
    ),
    (
        p.AuthResponse(0, Status.EOK, "AuthDisabledPlugin", b""),
        b"\0\0\0\x1a\2\3\0\0\x0a\x12AuthDisabledPlugin\x12\0",
    ),
]
WHOLE = [packet for _, packet in REQUESTS + RESPONSES]


@pytest.mark.parametrize(("request_", "raw"), REQUESTS)
def test_a_request_is_these_bytes_and_back(request_: p.Request, raw: bytes) -> None:
    assert v2.encode_request(request_) == raw
    assert v2.decode_request(raw[4:]) == request_
    assert v2.decode_request(memoryview(raw)[4:]) == request_


@pytest.mark.parametrize(("response", "raw"), RESPONSES)
def test_a_response_is_these_bytes_and_back(response: p.Response, raw: bytes) -> None:
    assert v2.encode_response(response) == raw
    assert v2.decode_response(raw[4:]) == response


def test_every_status_has_a_code_of_its_own() -> None:
    assert list(V2_CODES) == list(Status)
    assert sorted(V2_CODES.values()) == [0, 1, 2, *range(100, 108)]
    assert all(V2_CODES[status] == code for code, status in V2_STATUSES.items())


@pytest.mark.parametrize("status", list(Status))
def test_every_status_is_told_by_an_add(status: Status) -> None:
    assert v2.decode_response(v2.encode_response(p.AddResponse(0, status, 1, 2))[4:]).status == status


@pytest.mark.parametrize("raw", [raw for request, raw in REQUESTS if not isinstance(request, p.AuthRequest)])
def test_a_request_cut_anywhere_in_its_fixed_part_is_refused(raw: bytes) -> None:
    packet = raw[4:]
    fixed = len(packet) - (3 if packet[1] == 1 else 0)
    whole = {20, 40} if packet[1] == 2 else {40, 60} if packet[1] == 7 else {fixed}
    for size in range(fixed):
        if size not in whole:
            with pytest.raises(RemoteProtocolError):
                v2.decode_request(packet[:size])


@pytest.mark.parametrize("raw", [raw for _, raw in RESPONSES])
def test_a_response_cut_in_its_fixed_part_is_refused(raw: bytes) -> None:
    for size in range(4 if raw[5] == 3 else 24):
        with pytest.raises(RemoteProtocolError):
            v2.decode_response(raw[4 : 4 + size])


@pytest.mark.parametrize(
    "packet",
    [
        b"\3\6\0\0" + KEY + ENTRY,  # of another version, and of an operation that has no packets
        b"\3\1\0\0" + KEY + IDS[:15],  # of another version, and without the ids that an answer needs
        b"\x0a\7\0\0" + IDS + IDS,  # a packet of v3
        b"\2\4\0\0" + IDS,  # an operation that has no packets
        b"\2\x63\0\0" + IDS,  # an unknown one
        b"\2\1\0\0" + KEY + IDS[:8] + b"\xff" * 8 + ENTRY[16:],  # entry -1
        b"\2\1\0\0" + KEY + b"\xff" * 8 + ENTRY[8:],  # ledger -1
        b"\2\2\0\0" + IDS + b"x",  # something behind a read
        b"\2\3\0\0\x0a\xff",  # no protobuf
    ],
)
def test_a_request_of_another_kind_is_refused(packet: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        v2.decode_request(packet)


@pytest.mark.parametrize(
    "packet",
    [
        b"\2\1\0\0\0\0\0\0" + IDS + b"x",  # something behind the answer to an add
        b"\2\1\0\0\0\0\0\x32" + IDS,  # an unknown code
        b"\2\6\0\0\0\0\0\0" + IDS,  # an operation that has no packets
        b"\2\7\0\0\0\0\0\0" + IDS,  # a batch without its number
        b"\2\7\0\0\0\0\0\0" + IDS + IDS[:8] + b"\0\0\0\4abc",  # an entry longer than the packet
        b"\2\7\0\0\0\0\0\0" + IDS + IDS[:8] + b"\xff\xff\xff\xffabc",
        b"\2\7\0\0\0\0\0\0" + IDS + IDS[:8] + b"\0\0\0\3abc\0\0",  # half a length
    ],
)
def test_a_response_of_another_kind_is_refused(packet: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        v2.decode_response(packet)


@pytest.mark.parametrize(
    "request_",
    [
        p.ReadRequest(1, 5, 7, is_piggyback=True, previous_lac=3, timeout_ms=10),
        p.AddRequest(1, 5, 7, KEY, ENTRY, write_flags=1),
        p.ReadLacRequest(1, 5),
        p.StartTlsRequest(1),
    ],
)
def test_what_v2_cannot_say_is_refused(request_: p.Request) -> None:
    with pytest.raises(UsageError, match="v3"):
        v2.encode_request(request_)


@pytest.mark.parametrize("response", [p.ForceResponse(1, Status.EOK, 5), p.AuthResponse(0, Status.EUA, "dodo", b"")])
def test_an_answer_that_v2_cannot_give_is_refused(response: p.Response) -> None:
    with pytest.raises(UsageError, match="v2"):
        v2.encode_response(response)


@pytest.mark.parametrize("stride", [-1, 0, 256, 1 << 40])
def test_a_batch_read_of_entries_too_far_apart_is_refused(stride: int) -> None:
    with pytest.raises(UsageError, match="1 to 255 go"):
        v2.encode_request(p.BatchReadRequest(1, 5, 7, 1, 1, stride=stride))


def test_a_batch_read_is_for_v2_only() -> None:
    with pytest.raises(UsageError, match="v2"):
        v3.encode_request(p.BatchReadRequest(1, 5, 7, 1, 1))
    with pytest.raises(UsageError, match="v2"):
        v3.encode_response(p.BatchReadResponse(1, Status.EOK, 5, 7))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=99))
def test_an_entry_read_in_parts_is_the_frame(ledger_id: int, entry_id: int, payload: bytes) -> None:
    body = seal(ledger_id, entry_id, -1, len(payload), payload, Digest(DigestType.CRC32C))
    response = p.ReadResponse(0, Status.EOK, ledger_id, entry_id, body)
    assert v2.encode_read_response_head(ledger_id, entry_id, len(body)) + body == v2.encode_response(response)


@pytest.mark.parametrize("version", [0, 1, 3, 255])
@pytest.mark.parametrize(("opcode", "rest"), [(1, KEY + ENTRY), (2, IDS), (7, IDS + IDS + b"\0" * 12)])
def test_a_request_of_another_version_is_answered_in_that_version(version: int, opcode: int, rest: bytes) -> None:
    refused = v2.decode_request(bytes([version, opcode, 0, 0]) + rest)
    assert isinstance(refused, p.RefusedRequest)
    ids = ENTRY[:16] if opcode == 1 else IDS + (IDS[:8] if opcode == 7 else b"")
    assert refused.answer == struct.pack(">I", 8 + len(ids)) + bytes([version, opcode, 0, 0, 0, 0, 0, 103]) + ids
