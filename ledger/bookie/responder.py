"""How handlers answer: what they need of a connection, and frames of answers to reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ledger.bookie.long_poll import Waiter
from ledger.core.metadata import NO_ENTRY
from ledger.store.cold_reads import Lookup
from ledger.store.disk import Buffer
from ledger.wire.codes import Status
from ledger.wire.packets import ReadRequest, ReadResponse
from ledger.wire.v3 import encode_response
from ledger.wire.v3_fast import read_response_parts

__all__ = ["Responder", "failed_read", "read_frames"]


class Responder(ABC):
    """A connection as handlers see it. Answers gather until `flush`, which makes one write of them."""

    waiters: dict[Waiter, None]
    cold_read_count: int

    @abstractmethod
    def send(self, frame: Buffer) -> None:
        """Add whole frames to what is written at the next flush."""

    @abstractmethod
    def send_all(self, parts: Sequence[Buffer]) -> None:
        """Add the parts of one or more frames."""

    @abstractmethod
    def flush(self) -> None:
        """Write what gathered."""

    @abstractmethod
    def read_cold(self, lookup: Lookup, answer: Callable[[Any], None]) -> None:
        """Read from disk together with all that this wake-up asks for; `answer` gets bytes, None or an error."""


def failed_read(request: ReadRequest, status: Status) -> bytes:
    """Return the frame that answers a read with a failure."""
    return encode_response(ReadResponse(request.txn_id, status, request.ledger_id, request.entry_id))


def read_frames(request: ReadRequest, entry: bytes | memoryview, last_add_confirmed: int) -> list[Buffer]:
    """Return the parts of the frame that answers a read with an entry."""
    lac = None if last_add_confirmed == NO_ENTRY else last_add_confirmed
    return list(read_response_parts(request.txn_id, request.ledger_id, request.entry_id, entry, lac))
