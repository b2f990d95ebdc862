"""Protocol v3: packets as values to bytes and back, for both sides.

Adds, their answers and entries read take the fast path (`ledger.wire.v3_fast`); all else, and whatever the fast
path does not recognise, goes through protobuf. Encoders return whole frames, length included.
"""

# Longer than 400 lines: how a packet is written and how it is read stand in one place.

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from ledger.errors import RemoteProtocolError, UsageError
from ledger.wire import packets as p
from ledger.wire.codes import (
    ADD_FLAG_RECOVERY,
    PROTOCOL_VERSION,
    READ_FLAG_FENCE,
    READ_FLAG_PIGGYBACK,
    FenceState,
    OperationType,
    Status,
)
from ledger.wire.frames import frame
from ledger.wire.proto import bookkeeper_pb2 as pb
from ledger.wire.refusal import refusal
from ledger.wire.v3_fast import (
    add_request_body,
    add_response_frame,
    fast_add_request,
    fast_add_response,
    fast_read_response,
    framed_add_request,
)
from ledger.wire.varint import encode_varint

_IDS: Final = struct.Struct(">qq")
_TRACE_KEY: Final = "traceparent"
_PAIRS_MAX: Final = 8
_OF_ANY_VERSION: Final = (OperationType.AUTH, OperationType.START_TLS)
"""Operations that come before a version matters; BookKeeper's bookies do not look at it either."""


def decode_request(packet: bytes | memoryview) -> p.Request:
    """Decode one request.

    A request that protobuf can read but that makes no sense (no body, an entry whose own ids are others) comes
    back as `UnsupportedRequest`, to be answered with EBADREQ; one of another version as `RefusedRequest`.

    Raises:
        RemoteProtocolError: The bytes are no v3 request; end the connection.

    """
    return fast_add_request(packet) or _decode_request(packet)


def decode_response(packet: bytes | memoryview) -> p.Response:
    """Decode one response.

    Raises:
        RemoteProtocolError: The bytes are no v3 response; end the connection.

    """
    return fast_read_response(packet) or fast_add_response(packet) or _decode_response(packet)


def encode_request(request: p.Request) -> bytes:
    """Return the frame of a request.

    Raises:
        RemoteProtocolError: It is over the limit of a frame.
        UsageError: It is a batch read, which only protocol v2 has.

    """
    if isinstance(request, p.AddRequest) and not (request.is_recovery or request.write_flags or request.priority):
        head = add_request_body(request.ledger_id, request.entry_id, request.master_key, len(request.body))
        return framed_add_request(encode_varint(request.txn_id), head, len(request.body)) + request.body
    return frame(_request_message(request).SerializeToString())


def encode_response(response: p.Response) -> bytes:
    """Return the frame of a response.

    Raises:
        RemoteProtocolError: It is over the limit of a frame.

    """
    if isinstance(response, p.AddResponse):
        return add_response_frame(response.txn_id, response.status, response.ledger_id, response.entry_id)
    return frame(_response_message(response).SerializeToString())


def _decode_request(packet: bytes | memoryview) -> p.Request:
    message: Any = pb.Request()
    try:
        message.ParseFromString(packet)
    except DecodeError as error:
        raise RemoteProtocolError(f"a packet of {len(packet)} bytes is no v3 request: {error}") from error
    header = message.header
    if not header.HasField("version"):
        raise RemoteProtocolError("a request of no known protocol version; only 3 is spoken here")
    operation = OperationType(header.operation)
    found = _REQUEST_DECODERS.get(operation)
    if found is None or not message.HasField(found[0]):
        return p.UnsupportedRequest(header.txnId, operation)
    request = found[1](message)
    if header.version != PROTOCOL_VERSION and operation not in _OF_ANY_VERSION:
        return p.RefusedRequest(header.txnId, encode_response(refusal(request, Status.EBADVERSION)))
    return request


def _read_request(message: Any) -> p.Request:
    body = message.readRequest
    flag = body.flag if body.HasField("flag") else 0
    return p.ReadRequest(
        message.header.txnId,
        body.ledgerId,
        body.entryId,
        body.masterKey if body.HasField("masterKey") else None,
        flag == READ_FLAG_FENCE,
        flag == READ_FLAG_PIGGYBACK,
        body.previousLAC if body.HasField("previousLAC") else None,
        body.timeOut if body.HasField("timeOut") else None,
        message.header.priority,
    )


def _add_request(message: Any) -> p.Request:
    body = message.addRequest
    entry = body.body
    if len(entry) < _IDS.size or _IDS.unpack_from(entry) != (body.ledgerId, body.entryId) or body.entryId < 0:
        return p.UnsupportedRequest(message.header.txnId, OperationType.ADD_ENTRY)
    return p.AddRequest(
        message.header.txnId,
        body.ledgerId,
        body.entryId,
        body.masterKey,
        entry,
        body.HasField("flag") and body.flag == ADD_FLAG_RECOVERY,
        body.writeFlags,
        message.header.priority,
        _trace_of(message),
    )


def _trace_of(message: Any) -> str:
    """Return the context of a trace that came along; BookKeeper's own clients may send other pairs."""
    pairs = message.requestContext[:_PAIRS_MAX]
    return next((pair.value for pair in pairs if pair.key == _TRACE_KEY and isinstance(pair.value, str)), "")


def _write_lac_request(message: Any) -> p.Request:
    body = message.writeLacRequest
    return p.WriteLacRequest(message.header.txnId, body.ledgerId, body.lac, body.masterKey, body.body)


def _read_lac_request(message: Any) -> p.Request:
    body = message.readLacRequest
    if body.HasField("fenceCheckKey"):
        return p.FenceCheckRequest(message.header.txnId, body.ledgerId, body.fenceCheckKey, body.leaseMs)
    return p.ReadLacRequest(message.header.txnId, body.ledgerId)


_REQUEST_DECODERS: Final[dict[OperationType, tuple[str, Callable[[Any], p.Request]]]] = {
    OperationType.READ_ENTRY: ("readRequest", _read_request),
    OperationType.ADD_ENTRY: ("addRequest", _add_request),
    OperationType.AUTH: (
        "authRequest",
        lambda m: p.AuthRequest(m.header.txnId, _text(m.authRequest.authPluginName), m.authRequest.payload),
    ),
    OperationType.WRITE_LAC: ("writeLacRequest", _write_lac_request),
    OperationType.READ_LAC: ("readLacRequest", _read_lac_request),
    OperationType.GET_BOOKIE_INFO: (
        "getBookieInfoRequest",
        lambda m: p.InfoRequest(m.header.txnId, m.getBookieInfoRequest.requested),
    ),
    OperationType.START_TLS: ("startTLSRequest", lambda m: p.StartTlsRequest(m.header.txnId)),
    OperationType.FORCE_LEDGER: (
        "forceLedgerRequest",
        lambda m: p.ForceRequest(m.header.txnId, m.forceLedgerRequest.ledgerId),
    ),
    OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER: (
        "getListOfEntriesOfLedgerRequest",
        lambda m: p.ListRequest(m.header.txnId, m.getListOfEntriesOfLedgerRequest.ledgerId),
    ),
}


def _request_message(request: p.Request) -> Any:
    message = pb.Request()
    header = message.header
    header.version = PROTOCOL_VERSION  # type: ignore[assignment]
    header.txnId = request.txn_id
    match request:
        case p.ReadRequest():
            header.operation = pb.READ_ENTRY
            _fill_read_request(message.readRequest, request)
            if request.priority:
                header.priority = request.priority
        case p.AddRequest():
            header.operation = pb.ADD_ENTRY
            if request.priority:
                header.priority = request.priority
            add = message.addRequest
            add.ledgerId, add.entryId = request.ledger_id, request.entry_id
            add.masterKey, add.body = request.master_key, bytes(request.body)
            if request.write_flags:
                add.writeFlags = request.write_flags
            if request.is_recovery:
                add.flag = pb.AddRequest.RECOVERY_ADD
        case p.AuthRequest():
            header.operation = pb.AUTH
            message.authRequest.authPluginName, message.authRequest.payload = request.plugin, request.payload
        case p.WriteLacRequest():
            header.operation = pb.WRITE_LAC
            lac = message.writeLacRequest
            lac.ledgerId, lac.lac = request.ledger_id, request.last_add_confirmed
            lac.masterKey, lac.body = request.master_key, request.body
        case p.ReadLacRequest():
            header.operation = pb.READ_LAC
            message.readLacRequest.ledgerId = request.ledger_id
        case p.FenceCheckRequest():
            header.operation = pb.READ_LAC
            check = message.readLacRequest
            check.ledgerId, check.fenceCheckKey = request.ledger_id, request.master_key
            if request.lease_ms:
                check.leaseMs = request.lease_ms
        case p.InfoRequest():
            header.operation = pb.GET_BOOKIE_INFO
            message.getBookieInfoRequest.requested = request.requested
        case p.StartTlsRequest():
            header.operation = pb.START_TLS
            message.startTLSRequest.SetInParent()
        case p.ForceRequest():
            header.operation = pb.FORCE_LEDGER
            message.forceLedgerRequest.ledgerId = request.ledger_id
        case p.ListRequest():
            header.operation = pb.GET_LIST_OF_ENTRIES_OF_LEDGER
            message.getListOfEntriesOfLedgerRequest.ledgerId = request.ledger_id
        case p.UnsupportedRequest():
            header.operation = request.operation  # type: ignore[assignment]
        case p.BatchReadRequest():
            raise UsageError("a batch read needs a connection of protocol v2", ledger_id=request.ledger_id)
        case p.RefusedRequest():
            raise UsageError("a refused request is not sent on")
    return message


def _fill_read_request(read: Any, request: p.ReadRequest) -> None:
    read.ledgerId, read.entryId = request.ledger_id, request.entry_id
    if request.master_key is not None:
        read.masterKey = request.master_key
    if request.previous_lac is not None:
        read.previousLAC = request.previous_lac
    if request.timeout_ms is not None:
        read.timeOut = request.timeout_ms
    if request.is_fencing:
        read.flag = READ_FLAG_FENCE
    elif request.is_piggyback:
        read.flag = READ_FLAG_PIGGYBACK


def _decode_response(packet: bytes | memoryview) -> p.Response:
    message: Any = pb.Response()
    try:
        message.ParseFromString(packet)
    except DecodeError as error:
        raise RemoteProtocolError(f"a packet of {len(packet)} bytes is no v3 response: {error}") from error
    txn_id = message.header.txnId
    operation = OperationType(message.header.operation)
    status = Status(message.status)
    found = _RESPONSE_FIELDS.get(operation)
    if found is None or not message.HasField(found):
        return p.UnsupportedResponse(txn_id, status, operation)
    body = getattr(message, found)
    match operation:
        case OperationType.ADD_ENTRY:
            return p.AddResponse(txn_id, _worse(status, body.status), body.ledgerId, body.entryId)
        case OperationType.READ_ENTRY:
            return p.ReadResponse(
                txn_id,
                _worse(status, body.status),
                body.ledgerId,
                body.entryId,
                body.body if body.HasField("body") else None,
                body.maxLAC if body.HasField("maxLAC") else None,
                body.lacUpdateTimestamp if body.HasField("lacUpdateTimestamp") else None,
            )
        case OperationType.AUTH:
            return p.AuthResponse(txn_id, status, _text(body.authPluginName), body.payload)
        case OperationType.WRITE_LAC:
            return p.WriteLacResponse(txn_id, _worse(status, body.status), body.ledgerId)
        case OperationType.READ_LAC:
            return _read_lac_response(txn_id, status, body)
        case OperationType.GET_BOOKIE_INFO:
            return p.InfoResponse(
                txn_id,
                _worse(status, body.status),
                body.totalDiskCapacity if body.HasField("totalDiskCapacity") else None,
                body.freeDiskSpace if body.HasField("freeDiskSpace") else None,
            )
        case OperationType.FORCE_LEDGER:
            return p.ForceResponse(txn_id, _worse(status, body.status), body.ledgerId)
        case OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER:
            packed = body.availabilityOfEntriesOfLedger if body.HasField("availabilityOfEntriesOfLedger") else None
            return p.ListResponse(txn_id, _worse(status, body.status), body.ledgerId, packed)
        case _:
            return p.StartTlsResponse(txn_id, status)


def _read_lac_response(txn_id: int, status: Status, body: Any) -> p.Response:
    status = _worse(status, body.status)
    if not body.HasField("fenceState"):
        lac_body = body.lacBody if body.HasField("lacBody") else None
        last_entry_body = body.lastEntryBody if body.HasField("lastEntryBody") else None
        return p.ReadLacResponse(txn_id, status, body.ledgerId, lac_body, last_entry_body)
    is_told = status == Status.EOK and body.fenceState in (FenceState.OPEN, FenceState.FENCED)
    state = FenceState(body.fenceState) if is_told else FenceState.UNKNOWN
    return p.FenceCheckResponse(txn_id, status, body.ledgerId, state, body.leaseMs)


def _text(name: str | bytes) -> str:
    """Return a string; what is no UTF-8 comes out of protobuf as bytes."""
    if isinstance(name, bytes):
        raise RemoteProtocolError(f"the name of a plugin is no text: {name!r:.60}")
    return name


def _worse(outer: Status, inner: int) -> Status:
    """Return the status of a response that carries two: EOK only if both say so."""
    return outer if outer != Status.EOK else Status(inner)


_RESPONSE_FIELDS: Final[dict[OperationType, str]] = {
    OperationType.READ_ENTRY: "readResponse",
    OperationType.ADD_ENTRY: "addResponse",
    OperationType.AUTH: "authResponse",
    OperationType.WRITE_LAC: "writeLacResponse",
    OperationType.READ_LAC: "readLacResponse",
    OperationType.GET_BOOKIE_INFO: "getBookieInfoResponse",
    OperationType.START_TLS: "startTLSResponse",
    OperationType.FORCE_LEDGER: "forceLedgerResponse",
    OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedgerResponse",
}


def _response_message(response: p.Response) -> Any:
    message: Any = pb.Response()
    header = message.header
    header.version = PROTOCOL_VERSION
    header.txnId = response.txn_id
    message.status = response.status
    if isinstance(response, p.UnsupportedResponse):
        header.operation = response.operation
        return message
    if isinstance(response, p.AuthResponse):
        header.operation = OperationType.AUTH
        message.authResponse.authPluginName, message.authResponse.payload = response.plugin, response.payload
        return message
    if isinstance(response, p.StartTlsResponse):
        header.operation = OperationType.START_TLS
        message.startTLSResponse.SetInParent()
        return message
    if isinstance(response, p.BatchReadResponse):
        raise UsageError("a batch read is answered in protocol v2 only", ledger_id=response.ledger_id)
    header.operation = _RESPONSE_OPERATIONS[type(response)]
    body = getattr(message, _RESPONSE_FIELDS[OperationType(header.operation)])
    body.status = response.status
    for attribute, field in _RESPONSE_BODIES[type(response)].items():
        value = getattr(response, attribute)
        if value is not None:
            setattr(body, field, bytes(value) if isinstance(value, memoryview) else value)
    return message


_RESPONSE_OPERATIONS: Final[dict[type, OperationType]] = {
    p.AddResponse: OperationType.ADD_ENTRY,
    p.ReadResponse: OperationType.READ_ENTRY,
    p.WriteLacResponse: OperationType.WRITE_LAC,
    p.ReadLacResponse: OperationType.READ_LAC,
    p.FenceCheckResponse: OperationType.READ_LAC,
    p.InfoResponse: OperationType.GET_BOOKIE_INFO,
    p.ForceResponse: OperationType.FORCE_LEDGER,
    p.ListResponse: OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER,
}
_RESPONSE_BODIES: Final[dict[type, dict[str, str]]] = {
    p.AddResponse: {"ledger_id": "ledgerId", "entry_id": "entryId"},
    p.ReadResponse: {
        "ledger_id": "ledgerId",
        "entry_id": "entryId",
        "body": "body",
        "max_lac": "maxLAC",
        "lac_update_timestamp": "lacUpdateTimestamp",
    },
    p.WriteLacResponse: {"ledger_id": "ledgerId"},
    p.ReadLacResponse: {"ledger_id": "ledgerId", "lac_body": "lacBody", "last_entry_body": "lastEntryBody"},
    p.FenceCheckResponse: {"ledger_id": "ledgerId", "state": "fenceState", "lease_ms": "leaseMs"},
    p.InfoResponse: {"total_bytes": "totalDiskCapacity", "free_bytes": "freeDiskSpace"},
    p.ForceResponse: {"ledger_id": "ledgerId"},
    p.ListResponse: {"ledger_id": "ledgerId", "availability": "availabilityOfEntriesOfLedger"},
}
