"""Interface through which handlers answer a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ledger.bookie.long_poll import Waiter
from ledger.bookie.protocols import ServedProtocol
from ledger.storage.disk import Buffer
from ledger.storage.journal import JournalItem
from ledger.storage.read_queue import Lookup
from ledger.wire.codes import Status
from ledger.wire.packets import (
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Response,
    StartTlsRequest,
)


class Responder(ABC):
    """A connection as handlers see it. Answers gather until `flush`, which makes one write of them.

    Attributes:
        protocol: What it speaks.
        waiters: Its long polls.

    """

    protocol: ServedProtocol
    waiters: dict[Waiter, None]

    @property
    @abstractmethod
    def pending_count(self) -> int:
        """Requests that wait for a disk."""

    def answer(self, response: Response) -> None:
        """Add an answer to what is written at the next flush."""
        self.send(self.protocol.encode_response(response))

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
        """Read from disk together with all that this wake-up asks for.

        `answer` gets bytes, None (not held) or an error: `ConnectionResetError` if the connection was lost meanwhile.
        """

    @abstractmethod
    def run_cold(self, job: Callable[[Callable[[], None]], None]) -> None:
        """Run a job that reads from disk when it is its turn; it calls its argument when it has answered."""

    @abstractmethod
    def may_begin(self, ledger_id: int, key: bytes) -> bool:
        """Return whether a request of this connection may create a ledger, as far as is known now."""

    @abstractmethod
    def start_tls(self, request: StartTlsRequest) -> None:
        """Answer, and go on in TLS if the bookie has a certificate."""

    @abstractmethod
    def log_in(self, request: AuthRequest) -> None:
        """Answer one step of a log-in.

        Raises:
            RemoteProtocolError: The client is not let in.

        """


TakeRun = Callable[[Responder, bytes, int, int], int]
"""(connection, chunk, start, end) -> end of the frames at the head of `chunk[start:end]` that it took."""


def failed_read(request: ReadRequest | BatchReadRequest, status: Status) -> ReadResponse | BatchReadResponse:
    """Return the answer to a read that failed."""
    kind = BatchReadResponse if isinstance(request, BatchReadRequest) else ReadResponse
    return kind(request.txn_id, status, request.ledger_id, request.entry_id)


def send_answer(item: JournalItem) -> None:
    """Answer what has become durable (the journal calls this); `item.context` is the connection."""
    connection = item.context
    assert isinstance(connection, Responder)
    connection.send(item.answer)
