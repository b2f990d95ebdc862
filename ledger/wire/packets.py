"""Requests and responses as values; `ledger.wire.v3` and `ledger.wire.v2` turn them into bytes and back.

`txn_id` is the client's number of a request on one connection; the response carries it back. Protocol v2 has such a
number for batch reads only: its other packets are matched by operation, ledger and entry, and `txn_id` is 0.
Bodies may be slices of the chunk that was received: copy what must outlive it cheaply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from ledger.wire.codes import FenceState, OperationType, Status


class AddRequest(msgspec.Struct, frozen=True, gc=False):
    """Store an entry. `body` is the sealed entry; its ids equal `ledger_id` and `entry_id` (checked).

    Attributes:
        trace: W3C's traceparent, as it came, from anybody; "" = none.

    """

    txn_id: int
    ledger_id: int
    entry_id: int
    master_key: bytes
    body: bytes | memoryview
    is_recovery: bool = False
    write_flags: int = 0
    priority: int = 0
    trace: str = ""


class ReadRequest(msgspec.Struct, frozen=True, gc=False):
    """Read an entry; entry -1 is the highest one stored.

    Attributes:
        is_fencing: Refuse every later ordinary add to this ledger; answer when that is durable.
        is_piggyback: With `previous_lac`: a long poll, answered when the LAC is above it or `timeout_ms` is over.

    """

    txn_id: int
    ledger_id: int
    entry_id: int
    master_key: bytes | None = None
    is_fencing: bool = False
    is_piggyback: bool = False
    previous_lac: int | None = None
    timeout_ms: int | None = None
    priority: int = 0


class BatchReadRequest(msgspec.Struct, frozen=True, gc=False):
    """Read entries from `entry_id` on; protocol v2 only.

    Attributes:
        txn_id: Carried by the request and its response.
        max_count: Entries at most; 0 or less leaves it to `max_bytes`.
        max_bytes: Of the whole response. The first entry comes even if it is longer; the bookie has a limit of its own.
        is_fencing: As for `ReadRequest`.
        stride: How far apart the entries are, 1 to 255. Only bookies of this project know others than 1: those of
            before, and BookKeeper's, read consecutive entries, and say so by the stride of the answer.

    """

    txn_id: int
    ledger_id: int
    entry_id: int
    max_count: int
    max_bytes: int
    master_key: bytes | None = None
    is_fencing: bool = False
    priority: int = 0
    stride: int = 1


class AuthRequest(msgspec.Struct, frozen=True, gc=False):
    """One step of a log-in."""

    txn_id: int
    plugin: str
    payload: bytes


class WriteLacRequest(msgspec.Struct, frozen=True, gc=False):
    """Store an explicit LAC; `body` is sealed by `ledger.wire.entry.seal_lac`."""

    txn_id: int
    ledger_id: int
    last_add_confirmed: int
    master_key: bytes
    body: bytes


class ReadLacRequest(msgspec.Struct, frozen=True, gc=False):
    """Read the explicit LAC and the last entry."""

    txn_id: int
    ledger_id: int


class FenceCheckRequest(msgspec.Struct, frozen=True, gc=False):
    """Ask whether the ledger is fenced; only bookies of this project know the question.

    On the wire it is a `ReadLacRequest` with one more field. A bookie that does not know the field, such as
    BookKeeper's, answers with a plain `ReadLacResponse`.

    Attributes:
        lease_ms: Promise that is asked for with it, see `ledger.core.lease_promises`; 0 = none.

    """

    txn_id: int
    ledger_id: int
    master_key: bytes
    lease_ms: int = 0


class InfoRequest(msgspec.Struct, frozen=True, gc=False):
    """Ask for disk space; `requested` is a sum of `INFO_FLAG_*`."""

    txn_id: int
    requested: int


class StartTlsRequest(msgspec.Struct, frozen=True, gc=False):
    """Go on in TLS."""

    txn_id: int


class ForceRequest(msgspec.Struct, frozen=True, gc=False):
    """Sync what was added with deferred sync."""

    txn_id: int
    ledger_id: int


class ListRequest(msgspec.Struct, frozen=True, gc=False):
    """Ask which entries of a ledger the bookie holds."""

    txn_id: int
    ledger_id: int


class UnsupportedRequest(msgspec.Struct, frozen=True, gc=False):
    """A well-formed request for an operation that has no v3 body, or whose body is missing: answer EBADREQ."""

    txn_id: int
    operation: OperationType


class RefusedRequest(msgspec.Struct, frozen=True, gc=False):
    """A request of another version of its protocol: nothing is done but to answer it.

    Attributes:
        answer: Whole frame, EBADVERSION.

    """

    txn_id: int
    answer: bytes


Request: TypeAlias = (
    AddRequest
    | ReadRequest
    | BatchReadRequest
    | AuthRequest
    | WriteLacRequest
    | ReadLacRequest
    | FenceCheckRequest
    | InfoRequest
    | StartTlsRequest
    | ForceRequest
    | ListRequest
    | UnsupportedRequest
    | RefusedRequest
)


class AddResponse(msgspec.Struct, frozen=True, gc=False):
    """Answer to an add."""

    txn_id: int
    status: Status
    ledger_id: int
    entry_id: int


class ReadResponse(msgspec.Struct, frozen=True, gc=False):
    """An entry, or why there is none.

    Attributes:
        body: The sealed entry; None for a failure and for a long poll that ran out.
        max_lac: Highest LAC the bookie knows of; a hint that no digest protects.
        lac_update_timestamp: When the bookie learned of it, ms.

    """

    txn_id: int
    status: Status
    ledger_id: int
    entry_id: int
    body: bytes | memoryview | None = None
    max_lac: int | None = None
    lac_update_timestamp: int | None = None


class BatchReadResponse(msgspec.Struct, frozen=True, gc=False):
    """The entries from `entry_id` on, `stride` apart, sealed, in order; none unless the status is EOK."""

    txn_id: int
    status: Status
    ledger_id: int
    entry_id: int
    bodies: Sequence[bytes | memoryview] = ()
    stride: int = 1


class AuthResponse(msgspec.Struct, frozen=True, gc=False):
    """One step of a log-in."""

    txn_id: int
    status: Status
    plugin: str
    payload: bytes


class WriteLacResponse(msgspec.Struct, frozen=True, gc=False):
    """Answer to an explicit LAC."""

    txn_id: int
    status: Status
    ledger_id: int


class ReadLacResponse(msgspec.Struct, frozen=True, gc=False):
    """The explicit LAC (sealed) and the last entry (sealed), each as far as the bookie has one."""

    txn_id: int
    status: Status
    ledger_id: int
    lac_body: bytes | None = None
    last_entry_body: bytes | None = None


class FenceCheckResponse(msgspec.Struct, frozen=True, gc=False):
    """Answer to a fence check; `state` is UNKNOWN unless the status is EOK; `lease_ms` is what it promises."""

    txn_id: int
    status: Status
    ledger_id: int
    state: FenceState = FenceState.UNKNOWN
    lease_ms: int = 0


class InfoResponse(msgspec.Struct, frozen=True, gc=False):
    """Disk space in bytes, as far as it was asked for."""

    txn_id: int
    status: Status
    total_bytes: int | None = None
    free_bytes: int | None = None


class StartTlsResponse(msgspec.Struct, frozen=True, gc=False):
    """Answer to START_TLS: whether the peer goes on in TLS."""

    txn_id: int
    status: Status


class ForceResponse(msgspec.Struct, frozen=True, gc=False):
    """Answer to a force: whether everything added before is synced."""

    txn_id: int
    status: Status
    ledger_id: int


class ListResponse(msgspec.Struct, frozen=True, gc=False):
    """Answer with the entries that the bookie holds, in BookKeeper's own packed form."""

    txn_id: int
    status: Status
    ledger_id: int
    availability: bytes | None = None


class UnsupportedResponse(msgspec.Struct, frozen=True, gc=False):
    """A bare status for an operation: the answer to what the peer does not know."""

    txn_id: int
    status: Status
    operation: OperationType


Response: TypeAlias = (
    AddResponse
    | ReadResponse
    | BatchReadResponse
    | AuthResponse
    | WriteLacResponse
    | ReadLacResponse
    | FenceCheckResponse
    | InfoResponse
    | StartTlsResponse
    | ForceResponse
    | ListResponse
    | UnsupportedResponse
)
