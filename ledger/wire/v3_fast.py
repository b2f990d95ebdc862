"""Hand-made codecs for the packets that come by the hundred thousand: add requests, their answers, entries read.

Each knows one layout: the canonical one that protobuf's own encoders write. The bytes written are exactly
those of protobuf (the tests compare); what does not match when reading returns None and goes through protobuf.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from ledger.wire.codes import Status
from ledger.wire.packets import AddRequest, AddResponse, ReadResponse
from ledger.wire.varint import decode_varint, encode_varint

_V: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_TXN: Final = rb"([\x80-\xff]{0,8}[\x00-\x7f])"  # unsigned: one that needs ten bytes goes through protobuf
_LENGTH: Final = struct.Struct(">I")
_IDS: Final = struct.Struct(">qq")
_DOTALL: Final = re.DOTALL

# header {version 3, operation ADD, txnId}, addRequest {ledgerId, entryId, masterKey, body up to the end}
_ADD_REQUEST: Final = re.compile(
    rb"\x0a(.)\x08\x03\x10\x02\x18%b\xaa\x06%b\x08%b\x10%b\x1a\x14(.{20})\x22%b" % (_TXN, _V, _V, _V, _V), _DOTALL
)
# header {version 3, operation ADD, txnId}, status, addResponse {status, ledgerId, entryId}
_ADD_RESPONSE: Final = re.compile(
    rb"\x0a(.)\x08\x03\x10\x02\x18" + _TXN + rb"\x10" + _V + rb"\xaa\x06(.)\x08" + _V + rb"\x10" + _V + rb"\x18" + _V,
    _DOTALL,
)
# The same as a whole frame with both states EOK. The repetitions are possessive: they are matched without a way back.
_ANY: Final = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_STORED: Final = re.compile(
    rb"\x00\x00\x00(.)\x0a.\x08\x03\x10\x02\x18[\x80-\xff]{0,8}+[\x00-\x7f]"
    rb"\x10\x00\xaa\x06.\x08\x00\x10(" + _ANY + rb")\x18(" + _ANY + rb")",
    _DOTALL,
)
# header {version 3, operation READ, txnId}, status EOK, readResponse {status EOK, ledgerId, entryId, body ...
_READ_RESPONSE: Final = re.compile(
    rb"\x0a(.)\x08\x03\x10\x01\x18%b\x10\x00\xa2\x06%b\x08\x00\x10%b\x18%b\x22%b" % (_TXN, _V, _V, _V, _V), _DOTALL
)
# ... maxLAC and lacUpdateTimestamp, each or none
_READ_RESPONSE_TAIL: Final = re.compile(rb"(?:\x28" + _V + rb")?(?:\x30" + _V + rb")?", _DOTALL)

_HEADER_REST: Final = 5  # bytes of a header beside the transaction: three tags, version, operation


def add_request_body(ledger_id: int, entry_id: int, master_key: bytes, sealed_bytes: int) -> bytes:
    """Return addRequest up to its body, which is the sealed entry and comes last."""
    inner = b"".join(
        (
            b"\x08", encode_varint(ledger_id), b"\x10", encode_varint(entry_id), b"\x1a\x14", master_key,
            b"\x22", encode_varint(sealed_bytes),
        )
    )  # fmt: skip
    return b"\xaa\x06" + encode_varint(len(inner) + sealed_bytes) + inner


def framed_add_request(txn: bytes, head: bytes, sealed_bytes: int) -> bytes:
    """Return the start of a whole frame: length, header, `head` (`add_request_body`); the entry follows."""
    size = len(txn)
    return b"%b\x0a%c\x08\x03\x10\x02\x18%b%b" % (
        _LENGTH.pack(2 + _HEADER_REST + size + len(head) + sealed_bytes),
        _HEADER_REST + size,
        txn,
        head,
    )


def fast_add_request(packet: bytes | memoryview) -> AddRequest | None:
    """Decode an ordinary add in canonical layout; None if it is anything else."""
    match = _ADD_REQUEST.match(packet)
    if match is None:
        return None
    header_bytes, txn, outer, ledger, entry, master_key, length = match.groups()
    start = match.end()
    body_bytes = len(packet) - start
    if (
        decode_varint(length) != body_bytes
        or decode_varint(outer) != len(packet) - match.end(3)
        or header_bytes[0] != _HEADER_REST + len(txn)
    ):
        return None
    ledger_id = decode_varint(ledger)
    entry_id = decode_varint(entry)
    body = packet[start:]
    if body_bytes < _IDS.size or _IDS.unpack_from(packet, start) != (ledger_id, entry_id) or entry_id < 0:
        return None
    return AddRequest(decode_varint(txn), ledger_id, entry_id, master_key, body)


def add_response_frame(txn_id: int, status: int, ledger_id: int, entry_id: int) -> bytes:
    """Return a whole frame that answers an add."""
    txn = encode_varint(txn_id)
    code = encode_varint(status)
    inner = b"\x08%b\x10%b\x18%b" % (code, encode_varint(ledger_id), encode_varint(entry_id))
    size = len(txn)
    return b"%b\x0a%c\x08\x03\x10\x02\x18%b\x10%b\xaa\x06%c%b" % (
        _LENGTH.pack(11 + size + len(code) + len(inner)),
        _HEADER_REST + size,
        txn,
        code,
        len(inner),
        inner,
    )


def fast_add_response(packet: bytes | memoryview) -> AddResponse | None:
    """Decode the answer to an add in canonical layout; None if it is anything else."""
    match = _ADD_RESPONSE.fullmatch(packet)
    if match is None:
        return None
    header_bytes, txn, outer_code, inner_bytes, code, ledger, entry = match.groups()
    if (
        outer_code != code
        or header_bytes[0] != _HEADER_REST + len(txn)
        or inner_bytes[0] != 3 + len(code) + len(ledger) + len(entry)
    ):
        return None
    try:
        status = Status(decode_varint(code))
    except ValueError:
        return None
    return AddResponse(decode_varint(txn), status, decode_varint(ledger), decode_varint(entry))


def stored_ids(buffer: bytes | bytearray, position: int, end: int) -> tuple[int, int, int] | None:
    """Read the frame at `position` as an answer EOK to an add.

    Returns:
        Ledger, entry and the end of the frame; None if it is anything else, or not whole.

    """
    match = _STORED.match(buffer, position, end)
    if match is None or match[1][0] != match.end() - position - 4:
        return None
    return decode_varint(match[2]), decode_varint(match[3]), match.end()


def read_request_frame(txn: bytes, ledger_id: int, entry_id: int) -> bytes:
    """Return a whole frame that asks for an entry, without any flag or key."""
    inner = b"\x08%b\x10%b" % (encode_varint(ledger_id), encode_varint(entry_id))
    size = len(txn)
    return b"%b\x0a%c\x08\x03\x10\x01\x18%b\xa2\x06%c%b" % (
        _LENGTH.pack(10 + size + len(inner)),
        _HEADER_REST + size,
        txn,
        len(inner),
        inner,
    )


def read_response_parts(
    txn_id: int, ledger_id: int, entry_id: int, body: bytes | memoryview, max_lac: int | None
) -> tuple[bytes, bytes | memoryview, bytes]:
    """Return a whole frame that answers a read with an entry, in three parts, so that the body is not copied."""
    txn = encode_varint(txn_id)
    body_bytes = len(body)
    inner = b"\x08\x00\x10%b\x18%b\x22%b" % (
        encode_varint(ledger_id),
        encode_varint(entry_id),
        encode_varint(body_bytes),
    )
    tail = b"" if max_lac is None else b"\x28" + encode_varint(max_lac)
    inner_length = encode_varint(len(inner) + body_bytes + len(tail))
    size = len(txn)
    head = b"%b\x0a%c\x08\x03\x10\x01\x18%b\x10\x00\xa2\x06%b%b" % (
        _LENGTH.pack(11 + size + len(inner_length) + len(inner) + body_bytes + len(tail)),
        _HEADER_REST + size,
        txn,
        inner_length,
        inner,
    )
    return head, body, tail


def fast_read_response(packet: bytes | memoryview) -> ReadResponse | None:
    """Decode an entry that was read, in canonical layout; None if it is anything else."""
    match = _READ_RESPONSE.match(packet)
    if match is None:
        return None
    header_bytes, txn, outer, ledger, entry, length = match.groups()
    start = match.end()
    stop = start + decode_varint(length)
    if (
        not start <= stop <= len(packet)
        or decode_varint(outer) != len(packet) - match.end(3)
        or header_bytes[0] != _HEADER_REST + len(txn)
    ):
        return None
    max_lac: int | None = None
    updated: int | None = None
    if stop < len(packet):
        tail = _READ_RESPONSE_TAIL.fullmatch(packet, stop)
        if tail is None:
            return None
        max_lac = None if tail[1] is None else decode_varint(tail[1])
        updated = None if tail[2] is None else decode_varint(tail[2])
    ledger_id, entry_id = decode_varint(ledger), decode_varint(entry)
    return ReadResponse(decode_varint(txn), Status.EOK, ledger_id, entry_id, packet[start:stop], max_lac, updated)
