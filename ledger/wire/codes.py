"""Numbers of the wire protocol."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "ADD_FLAG_RECOVERY",
    "INFO_FLAG_FREE_DISK",
    "INFO_FLAG_TOTAL_DISK",
    "PRIORITY_RECOVERY",
    "PROTOCOL_VERSION",
    "READ_FLAG_FENCE",
    "READ_FLAG_PIGGYBACK",
    "WRITE_FLAG_DEFERRED_SYNC",
    "Operation",
    "Status",
]

PROTOCOL_VERSION: Final = 3

READ_FLAG_FENCE: Final = 1
READ_FLAG_PIGGYBACK: Final = 2
ADD_FLAG_RECOVERY: Final = 1
WRITE_FLAG_DEFERRED_SYNC: Final = 1
INFO_FLAG_TOTAL_DISK: Final = 1
INFO_FLAG_FREE_DISK: Final = 2

PRIORITY_RECOVERY: Final = 100
"""Priority of recovery traffic: a read-only bookie still takes adds that carry it."""


class Operation(IntEnum):
    """What a packet asks for."""

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
    """What became of a request. Only ENOLEDGER and ENOENTRY are a definite no."""

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
