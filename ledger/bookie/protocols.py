"""The two protocols that a bookie speaks, as its connections use them. The first packet of a connection decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.storage.disk import Buffer
from ledger.wire import v2, v3
from ledger.wire.codes import V3_FIRST_BYTE, OperationType, V2Opcode
from ledger.wire.packets import ReadRequest, Request, Response
from ledger.wire.v3_fast import read_response_parts


class ServedProtocol(msgspec.Struct, frozen=True):
    """One protocol.

    Attributes:
        version: 2 or 3.
        operation_place: Which byte of an ordinary packet tells its operation.
        add_operation: The operation of an add.
        decode_request: Packet to request; raises `RemoteProtocolError` for one that ends the connection.
        encode_response: Response to whole frame.
        entry_frame: (request, entry, LAC) to the parts of the frame that answers a read with an entry, not copied.

    """

    version: int
    operation_place: int
    add_operation: int
    decode_request: Callable[[bytes | memoryview], Request]
    encode_response: Callable[[Response], bytes]
    entry_frame: Callable[[ReadRequest, bytes | memoryview, int], list[Buffer]]


def _entry_frame_v3(request: ReadRequest, entry: bytes | memoryview, last_add_confirmed: int) -> list[Buffer]:
    lac = None if last_add_confirmed == NO_ENTRY else last_add_confirmed
    return list(read_response_parts(request.txn_id, request.ledger_id, request.entry_id, entry, lac))


def _entry_frame_v2(request: ReadRequest, entry: bytes | memoryview, _last_add_confirmed: int) -> list[Buffer]:
    return [v2.encode_read_response_head(request.ledger_id, request.entry_id, len(entry)), entry]


V2: Final = ServedProtocol(2, 1, V2Opcode.ADD_ENTRY, v2.decode_request, v2.encode_response, _entry_frame_v2)
V3: Final = ServedProtocol(3, 5, OperationType.ADD_ENTRY, v3.decode_request, v3.encode_response, _entry_frame_v3)


def protocol_of(first_byte: int) -> ServedProtocol:
    """Return the protocol of a connection whose first packet begins with this byte.

    What does not begin as v3 does is v2, of whatever version: its decoder answers, or ends the connection.
    """
    return V3 if first_byte == V3_FIRST_BYTE else V2
