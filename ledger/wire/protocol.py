"""The two protocols behind one face: what a client's connection needs to send requests and to match their answers.

A request is known by its key while it is in flight: in v3 its transaction, in v2 its operation, ledger and entry.

**What v2 must not carry.** In v2 two requests with one key cannot be told apart by their answers. So they must be
interchangeable: a plain read answers for any plain read of that entry, a stored add for any add of that entry. A
fencing read is not like a plain one (its answer says that the ledger is fenced), nor a recovery add like an
ordinary one, nor a read of "the last entry" like an earlier one. These go over v3, and so does what v2 lacks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol, TypeAlias

from ledger.wire import v2, v2_fast, v3, v3_fast
from ledger.wire.add_batch import AddEncoder
from ledger.wire.codes import V2Opcode
from ledger.wire.digests import Digest
from ledger.wire.packets import (
    AddRequest,
    AddResponse,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)
from ledger.wire.v2_fast import V2AddEncoder
from ledger.wire.varint import encode_varint

Key: TypeAlias = Hashable
"""Tells requests in flight on one connection apart."""

# First part of a v2 key: plain numbers, which hash and compare quicker than those of an enumeration.
_ADD, _READ, _AUTH, _BATCH_READ = (
    int(opcode) for opcode in (V2Opcode.ADD_ENTRY, V2Opcode.READ_ENTRY, V2Opcode.AUTH, V2Opcode.BATCH_READ_ENTRY)
)


class BatchEncoder(Protocol):
    """Encodes the adds of one ledger; a request is `head + payload`."""

    def heads(
        self,
        first_txn: int,
        first_entry_id: int,
        last_add_confirmed: int,
        lengths: Iterable[int],
        payloads: Sequence[bytes],
        context: bytes = b"",
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the heads, and the frames that will say "stored"; `context` is `request_context` of all of them."""
        ...

    def again(self, txn_number: int, entry_id: int, head: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """Return the head of an entry that is sent again, and the frame that will say "stored"."""
        ...


class WireProtocol(Protocol):
    """Protocol of one connection."""

    name: str

    def carries(self, request: Request) -> bool:
        """Return whether the request may go over a connection of this protocol."""
        ...

    def encode(self, request: Request) -> tuple[bytes, Key]:
        """Return the frame of a request and its key.

        Raises:
            RemoteProtocolError: The frame is over the limit.
            UsageError: The protocol cannot say it.

        """
        ...

    def encode_read(self, txn_id: int, ledger_id: int, entry_id: int) -> tuple[bytes, Key]:
        """Do the same for a plain read, quicker."""
        ...

    def decode(self, packet: bytes | memoryview) -> tuple[Response, Key]:
        """Return a response and the key of the request that it answers.

        Raises:
            RemoteProtocolError: The bytes are no response; end the connection.

        """
        ...

    def stored_frame(self, response: AddResponse) -> bytes:
        """Return the frame that says "stored" to the same add."""
        ...

    def stored_ids(self, buffer: bytes | bytearray, position: int, end: int) -> tuple[int, int, int] | None:
        """Return ledger, entry and end of a frame that says "stored"; None if it is anything else, or not whole."""
        ...

    def add_encoder(self, ledger_id: int, master_key: bytes, digest: Digest) -> BatchEncoder:
        """Return the encoder of a ledger's adds."""
        ...


class V3Protocol:
    """Protobuf, with transactions; carries everything but batch reads."""

    name = "v3"
    stored_ids = staticmethod(v3_fast.stored_ids)

    def carries(self, request: Request) -> bool:
        """Return whether the request may go over v3."""
        return not isinstance(request, BatchReadRequest)

    def encode(self, request: Request) -> tuple[bytes, Key]:
        """Return the frame of a request and its transaction."""
        return v3.encode_request(request), request.txn_id

    def encode_read(self, txn_id: int, ledger_id: int, entry_id: int) -> tuple[bytes, Key]:
        """Return the frame of a plain read and its transaction."""
        return v3_fast.read_request_frame(encode_varint(txn_id), ledger_id, entry_id), txn_id

    def decode(self, packet: bytes | memoryview) -> tuple[Response, Key]:
        """Return a response and its transaction."""
        response = v3.decode_response(packet)
        return response, response.txn_id

    def stored_frame(self, response: AddResponse) -> bytes:
        """Return the frame that says "stored" in the same transaction."""
        return v3_fast.add_response_frame(response.txn_id, 0, response.ledger_id, response.entry_id)

    def add_encoder(self, ledger_id: int, master_key: bytes, digest: Digest) -> BatchEncoder:
        """Return the encoder of a ledger's adds."""
        return AddEncoder(ledger_id, master_key, digest)


class V2Protocol:
    """Binary, without transactions; carries ordinary adds, plain reads and batch reads."""

    name = "v2"
    stored_ids = staticmethod(v2_fast.stored_ids)

    def carries(self, request: Request) -> bool:
        """Return whether the request may go over v2 and is interchangeable with all others of its key."""
        match request:
            case AddRequest():
                return not (request.is_recovery or request.write_flags or request.priority)
            case ReadRequest():
                return not (
                    request.is_fencing
                    or request.is_piggyback
                    or request.previous_lac is not None
                    or request.timeout_ms is not None
                    or request.entry_id < 0
                )
            case BatchReadRequest():
                return True
            case _:
                return False

    def encode(self, request: Request) -> tuple[bytes, Key]:
        """Return the frame of a request and its key."""
        match request:
            case AddRequest():
                key: Key = (_ADD, request.ledger_id, request.entry_id)
            case ReadRequest():
                key = (_READ, request.ledger_id, request.entry_id)
            case BatchReadRequest():
                key = (_BATCH_READ, request.txn_id)
            case _:
                key = _AUTH
        return v2.encode_request(request), key

    def encode_read(self, txn_id: int, ledger_id: int, entry_id: int) -> tuple[bytes, Key]:  # noqa: ARG002
        """Return the frame of a plain read and its key."""
        return v2_fast.read_request_frame(ledger_id, entry_id), (_READ, ledger_id, entry_id)

    def decode(self, packet: bytes | memoryview) -> tuple[Response, Key]:
        """Return a response and the key of its request."""
        response = v2.decode_response(packet)
        if isinstance(response, ReadResponse):
            return response, (_READ, response.ledger_id, response.entry_id)
        if isinstance(response, AddResponse):
            return response, (_ADD, response.ledger_id, response.entry_id)
        if isinstance(response, BatchReadResponse):
            return response, (_BATCH_READ, response.txn_id)
        assert isinstance(response, AuthResponse)
        return response, _AUTH

    def stored_frame(self, response: AddResponse) -> bytes:
        """Return the frame that says "stored" to the same entry."""
        return v2_fast.stored_frame(response.ledger_id, response.entry_id)

    def add_encoder(self, ledger_id: int, master_key: bytes, digest: Digest) -> BatchEncoder:
        """Return the encoder of a ledger's adds."""
        return V2AddEncoder(ledger_id, master_key, digest)


PROTOCOLS: dict[str, WireProtocol] = {"v2": V2Protocol(), "v3": V3Protocol()}
"""Protocols by the names that `ClientSettings.protocol` takes."""
