"""Numbers of the wire protocols, v3 and v2."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

PROTOCOL_VERSION: Final = 3
V2_PROTOCOL_VERSION: Final = 2
V3_FIRST_BYTE: Final = 0x0A
"""The tag of a request's header, which protobuf's encoders write first; a v2 packet begins with its version."""

READ_FLAG_FENCE: Final = 1
READ_FLAG_PIGGYBACK: Final = 2
ADD_FLAG_RECOVERY: Final = 1
WRITE_FLAG_DEFERRED_SYNC: Final = 1
INFO_FLAG_TOTAL_DISK: Final = 1
INFO_FLAG_FREE_DISK: Final = 2
V2_FLAG_FENCE: Final = 1
V2_FLAG_RECOVERY_ADD: Final = 2
V2_FLAG_HIGH_PRIORITY: Final = 4
V2_STRIDE_SHIFT: Final = 8
"""The upper eight bits of the flags of a batch read, and of its answer, are its stride; 0 = 1. It is of this project:
who does not know it does not look at them, and answers with 0."""

PRIORITY_RECOVERY: Final = 100
"""Priority of recovery traffic: a read-only bookie still takes adds that carry it."""


class OperationType(IntEnum):
    """Operations that a packet can ask for."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


class Status(IntEnum):
    """Status of a request. Only ENOLEDGER and ENOENTRY are a definite no."""

    EOK = 0
    ENOLEDGER = 402
    ENOENTRY = 403
    EBADREQ = 404
    EIO = 501
    EUA = 502
    EBADVERSION = 503
    EFENCED = 504
    EREADONLY = 505
    ETOOMANYREQUESTS = 506
    EUNKNOWNLEDGERSTATE = 507


class FenceState(IntEnum):
    """Answer of a bookie to the question whether a ledger is fenced.

    Attributes:
        UNKNOWN: It cannot tell: it lost data once, does not hold the ledger, or will not say.
        OPEN: It has taken no fence until now.
        FENCED: It has taken one, durable or not.

    """

    UNKNOWN = 0
    OPEN = 1
    FENCED = 2


class V2Opcode(IntEnum):
    """Operations of protocol v2. Its adds and reads have each other's number in v3."""

    ADD_ENTRY = 1
    READ_ENTRY = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    GET_BOOKIE_INFO = 6
    BATCH_READ_ENTRY = 7


V2_CODES: Final[dict[Status, int]] = {
    Status.EOK: 0,
    Status.ENOLEDGER: 1,
    Status.ENOENTRY: 2,
    Status.EBADREQ: 100,
    Status.EIO: 101,
    Status.EUA: 102,
    Status.EBADVERSION: 103,
    Status.EFENCED: 104,
    Status.EREADONLY: 105,
    Status.ETOOMANYREQUESTS: 106,
    Status.EUNKNOWNLEDGERSTATE: 107,
}
"""Codes of protocol v2 for each status."""

V2_STATUSES: Final[dict[int, Status]] = {code: status for status, code in V2_CODES.items()}
