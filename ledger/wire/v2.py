"""Protocol v2: packets as values to bytes and back, for both sides.

All integers are big-endian; a packet begins with version (8 bits), operation (8) and flags (16).

    add          header, master key (20), entry
    read         header, ledger (8), entry (8)[, master key (20)]
    batch read   header, ledger (8), entry (8), request (8), count (4), bytes (8)[, master key (20)]
    answer       header, code (4), ledger (8), entry (8)[, the entry read]
    batch answer header, code (4), ledger (8), entry (8), request (8), (length (4), entry)*
    log-in       header, AuthMessage (protobuf); the answer is the same

There is no transaction but a batch read's `request`: other answers are matched by operation, ledger and entry. The
stride of a batch read is in its flags (`V2_STRIDE_SHIFT`). The runs of the hot path have codecs of their own
(`ledger.wire.v2_fast`). Encoders return whole frames, length included.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from google.protobuf.message import DecodeError

from ledger.core.stripes import STRIDE_MAX
from ledger.errors import RemoteProtocolError, UsageError
from ledger.wire import packets as p
from ledger.wire.body_run import BodyRun
from ledger.wire.codes import (
    PRIORITY_RECOVERY,
    V2_CODES,
    V2_FLAG_FENCE,
    V2_FLAG_HIGH_PRIORITY,
    V2_FLAG_RECOVERY_ADD,
    V2_PROTOCOL_VERSION,
    V2_STATUSES,
    V2_STRIDE_SHIFT,
    V3_FIRST_BYTE,
    Status,
    V2Opcode,
)
from ledger.wire.digests import MASTER_KEY_BYTES
from ledger.wire.entry import ENTRY_HEADER_BYTES
from ledger.wire.frames import frame
from ledger.wire.proto import bookkeeper_pb2 as pb

_HEADER: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">I")
_IDS: Final = struct.Struct(">qq")
_READ: Final = struct.Struct(">Iqq")
_BATCH_READ: Final = struct.Struct(">Iqqqiq")
_BARE_ANSWER: Final = struct.Struct(">II")
_ANSWER: Final = struct.Struct(">IIqq")
_FRAMED_ANSWER: Final = struct.Struct(">IIIqq")
_BATCH_ANSWER: Final = struct.Struct(">IIqqq")
_ADD_BODY_START: Final = _HEADER.size + MASTER_KEY_BYTES

_ADD: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.ADD_ENTRY << 16
_READ_ENTRY: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.READ_ENTRY << 16
_BATCH_READ_ENTRY: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.BATCH_READ_ENTRY << 16
_AUTH: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.AUTH << 16


def decode_request(packet: bytes | memoryview) -> p.Request:
    """Decode one request.

    Returns:
        An `AddRequest`, `ReadRequest`, `BatchReadRequest` or `AuthRequest`; a `RefusedRequest` for an add or a read of
        another version.

    Raises:
        RemoteProtocolError: The bytes are no v2 request; end the connection.

    """
    opcode, flags = _header(packet, "request")
    if packet[0] != V2_PROTOCOL_VERSION and opcode != V2Opcode.AUTH:
        return p.RefusedRequest(0, _bad_version_answer(packet, opcode))
    if opcode == V2Opcode.ADD_ENTRY:
        return _add_request(packet, flags)
    priority = PRIORITY_RECOVERY if flags & V2_FLAG_HIGH_PRIORITY else 0
    is_fencing = flags & V2_FLAG_FENCE != 0
    match opcode:
        case V2Opcode.READ_ENTRY:
            key = _key_behind(packet, _READ.size)
            _, ledger_id, entry_id = _READ.unpack_from(packet)
            return p.ReadRequest(0, ledger_id, entry_id, key, is_fencing, priority=priority)
        case V2Opcode.BATCH_READ_ENTRY:
            key = _key_behind(packet, _BATCH_READ.size)
            _, ledger_id, entry_id, txn_id, count, size = _BATCH_READ.unpack_from(packet)
            stride = flags >> V2_STRIDE_SHIFT or 1
            return p.BatchReadRequest(txn_id, ledger_id, entry_id, count, size, key, is_fencing, priority, stride)
        case V2Opcode.AUTH:
            return p.AuthRequest(0, *_auth_message(packet))
        case _:
            raise RemoteProtocolError(f"protocol v2 has no requests of operation {opcode}")


def decode_response(packet: bytes | memoryview) -> p.Response:
    """Decode one response.

    Returns:
        An `AddResponse`, `ReadResponse`, `BatchReadResponse` or `AuthResponse`.

    Raises:
        RemoteProtocolError: The bytes are no v2 response; end the connection.

    """
    if len(packet) > _ANSWER.size:
        header, code, ledger_id, entry_id = _ANSWER.unpack_from(packet)
        if header == _READ_ENTRY and code == 0:  # an entry read: the one that must be quick
            return p.ReadResponse(0, Status.EOK, ledger_id, entry_id, packet[_ANSWER.size :])
    opcode, _ = _header(packet, "response")
    if packet[0] != V2_PROTOCOL_VERSION:
        raise RemoteProtocolError(f"a response of protocol version {packet[0]}; only 2 is spoken on this connection")
    if opcode == V2Opcode.AUTH:
        return p.AuthResponse(0, Status.EOK, *_auth_message(packet))
    if len(packet) < _ANSWER.size:
        raise RemoteProtocolError(f"a v2 response of {len(packet)} bytes is cut short")
    _, code, ledger_id, entry_id = _ANSWER.unpack_from(packet)
    status = V2_STATUSES.get(code)
    if status is None:
        raise RemoteProtocolError(f"a v2 response has the unknown code {code}")
    match opcode:
        case V2Opcode.ADD_ENTRY:
            if len(packet) != _ANSWER.size:
                raise RemoteProtocolError(f"the answer to an add has {len(packet)} bytes instead of {_ANSWER.size}")
            return p.AddResponse(0, status, ledger_id, entry_id)
        case V2Opcode.READ_ENTRY:
            has_body = status == Status.EOK and len(packet) > _ANSWER.size
            return p.ReadResponse(0, status, ledger_id, entry_id, packet[_ANSWER.size :] if has_body else None)
        case V2Opcode.BATCH_READ_ENTRY:
            return _batch_read_response(packet, status)
        case _:
            raise RemoteProtocolError(f"protocol v2 has no responses of operation {opcode}")


def encode_request(request: p.Request) -> bytes:
    """Return the frame of a request.

    Raises:
        RemoteProtocolError: It is over the limit of a frame.
        UsageError: Protocol v2 cannot say it (long poll, LAC, deferred sync and the like).

    """
    match request:
        case p.AddRequest(write_flags=0):
            header = _ADD | _priority_flag(request.priority) | (V2_FLAG_RECOVERY_ADD if request.is_recovery else 0)
            return frame(b"".join((_HEADER.pack(header), request.master_key, request.body)))
        case p.ReadRequest(is_piggyback=False, previous_lac=None, timeout_ms=None):
            header = _READ_ENTRY | _read_flags(request)
            return frame(_READ.pack(header, request.ledger_id, request.entry_id) + (request.master_key or b""))
        case p.BatchReadRequest():
            header = _BATCH_READ_ENTRY | _read_flags(request) | _stride_flags(request.stride)
            packed = _BATCH_READ.pack(
                header, request.ledger_id, request.entry_id, request.txn_id, request.max_count, request.max_bytes
            )
            return frame(packed + (request.master_key or b""))
        case p.AuthRequest():
            return _auth_frame(request.plugin, request.payload)
        case _:
            raise UsageError(f"protocol v2 cannot carry {request!r:.200}: it needs a connection of protocol v3")


def encode_response(response: p.Response) -> bytes:
    """Return the frame of a response.

    Raises:
        RemoteProtocolError: It is over the limit of a frame.
        UsageError: Protocol v2 cannot say it, a refused log-in included: close the connection.

    """
    match response:
        case p.AddResponse():
            return _FRAMED_ANSWER.pack(
                _ANSWER.size, _ADD, V2_CODES[response.status], response.ledger_id, response.entry_id
            )
        case p.ReadResponse():
            code = V2_CODES[response.status]
            return frame(
                _ANSWER.pack(_READ_ENTRY, code, response.ledger_id, response.entry_id) + (response.body or b"")
            )
        case p.BatchReadResponse():
            code = V2_CODES[response.status]
            parts: list[bytes | memoryview] = [
                encode_batch_head(code, response.ledger_id, response.entry_id, response.txn_id, response.stride)
            ]
            for body in response.bodies:
                parts += (_LENGTH.pack(len(body)), body)
            return frame(b"".join(parts))
        case p.AuthResponse(status=Status.EOK):
            return _auth_frame(response.plugin, response.payload)
        case _:
            raise UsageError(f"protocol v2 cannot carry {response!r:.200}")


def encode_batch_head(code: int, ledger_id: int, entry_id: int, txn_id: int, stride: int) -> bytes:
    """Return the packet of a batch answer up to its first entry."""
    return _BATCH_ANSWER.pack(_BATCH_READ_ENTRY | _stride_flags(stride), code, ledger_id, entry_id, txn_id)


def encode_read_response_head(ledger_id: int, entry_id: int, body_bytes: int) -> bytes:
    """Return the start of the frame of an entry read; the sealed entry of `body_bytes` follows, not copied."""
    return _FRAMED_ANSWER.pack(_ANSWER.size + body_bytes, _READ_ENTRY, 0, ledger_id, entry_id)


def _header(packet: bytes | memoryview, kind: str) -> tuple[int, int]:
    if len(packet) < _HEADER.size:
        raise RemoteProtocolError(f"a v2 {kind} of {len(packet)} bytes is cut short")
    (header,) = _HEADER.unpack_from(packet)
    return header >> 16 & 0xFF, header & 0xFFFF


def _bad_version_answer(packet: bytes | memoryview, opcode: int) -> bytes:
    """Return the frame that answers EBADVERSION, in the version of the request as BookKeeper's bookies do.

    Raises:
        RemoteProtocolError: It is no add and no read, or too short for one; or it is a packet of protocol v3.

    """
    start = _ADD_BODY_START if opcode == V2Opcode.ADD_ENTRY else _HEADER.size
    is_batch = opcode == V2Opcode.BATCH_READ_ENTRY
    stop = start + _IDS.size + (_IDS.size // 2 if is_batch else 0)  # A batch read's number follows its ids.
    is_known = is_batch or opcode in (V2Opcode.ADD_ENTRY, V2Opcode.READ_ENTRY)
    if not is_known or len(packet) < stop or packet[0] == V3_FIRST_BYTE:
        raise RemoteProtocolError(f"a request that begins with byte {packet[0]:#04x}: neither v3 (0x0a) nor v2 (0x02)")
    head = _BARE_ANSWER.pack(packet[0] << 24 | opcode << 16, V2_CODES[Status.EBADVERSION])
    return frame(head + bytes(packet[start:stop]))


def _add_request(packet: bytes | memoryview, flags: int) -> p.AddRequest:
    if len(packet) < _ADD_BODY_START + ENTRY_HEADER_BYTES:
        raise RemoteProtocolError(f"a v2 add of {len(packet)} bytes is cut short")
    ledger_id, entry_id = _IDS.unpack_from(packet, _ADD_BODY_START)
    if ledger_id < 0 or entry_id < 0:
        raise RemoteProtocolError(f"a v2 add of entry {entry_id} to ledger {ledger_id}; ids begin at 0")
    return p.AddRequest(
        0,
        ledger_id,
        entry_id,
        bytes(packet[_HEADER.size : _ADD_BODY_START]),
        packet[_ADD_BODY_START:],
        flags & V2_FLAG_RECOVERY_ADD != 0,
        0,
        PRIORITY_RECOVERY if flags & V2_FLAG_HIGH_PRIORITY else 0,
    )


def _key_behind(packet: bytes | memoryview, start: int) -> bytes | None:
    """Return the master key that may follow the fixed part of a read."""
    if len(packet) == start:
        return None
    if len(packet) != start + MASTER_KEY_BYTES:
        raise RemoteProtocolError(f"a v2 read of {len(packet)} bytes; it has {start}, or {start + MASTER_KEY_BYTES}")
    return bytes(packet[start:])


def _batch_read_response(packet: bytes | memoryview, status: Status) -> p.BatchReadResponse:
    if len(packet) < _BATCH_ANSWER.size:
        raise RemoteProtocolError(f"a v2 batch answer of {len(packet)} bytes is cut short")
    header, _, ledger_id, entry_id, txn_id = _BATCH_ANSWER.unpack_from(packet)
    starts: list[int] = []
    ends: list[int] = []
    start, end = _BATCH_ANSWER.size, len(packet)
    while start < end:
        if end - start < _LENGTH.size:
            raise RemoteProtocolError(f"{end - start} bytes follow the last entry of a v2 batch answer")
        (length,) = _LENGTH.unpack_from(packet, start)
        start += _LENGTH.size
        if length > end - start:
            raise RemoteProtocolError(f"a v2 batch answer announces an entry of {length} bytes and has {end - start}")
        starts.append(start)
        start += length
        ends.append(start)
    bodies = BodyRun(packet, starts, ends) if status == Status.EOK else ()
    stride = (header & 0xFFFF) >> V2_STRIDE_SHIFT or 1
    return p.BatchReadResponse(txn_id, status, ledger_id, entry_id, bodies, stride)


def _auth_message(packet: bytes | memoryview) -> tuple[str, bytes]:
    message: Any = pb.AuthMessage()
    try:
        message.ParseFromString(packet[_HEADER.size :])
        plugin = message.authPluginName
    except (DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a v2 log-in of {len(packet)} bytes cannot be read: {error}") from error
    if not isinstance(plugin, str):  # so protobuf gives what is no UTF-8
        raise RemoteProtocolError(f"the name of a plugin is no text: {plugin!r:.60}")
    return plugin, message.payload


def _auth_frame(plugin: str, payload: bytes) -> bytes:
    message: Any = pb.AuthMessage(authPluginName=plugin, payload=payload)
    return frame(_HEADER.pack(_AUTH) + message.SerializeToString())


def _priority_flag(priority: int) -> int:
    return V2_FLAG_HIGH_PRIORITY if priority else 0


def _read_flags(request: p.ReadRequest | p.BatchReadRequest) -> int:
    return _priority_flag(request.priority) | (V2_FLAG_FENCE if request.is_fencing else 0)


def _stride_flags(stride: int) -> int:
    if not 1 <= stride <= STRIDE_MAX:
        raise UsageError(f"a batch read of entries {stride} apart: 1 to {STRIDE_MAX} go")
    return stride << V2_STRIDE_SHIFT if stride > 1 else 0
