"""The bookie's server as its connections see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ledger.bookie.inbox import ReceiveRoom
from ledger.bookie.responder import TakeRun
from ledger.bookie.tls import TlsPolicy
from ledger.store.entry_store import EntryStore
from ledger.wire.packets import Request

if TYPE_CHECKING:
    from ledger.bookie.connection import Connection

__all__ = ["ConnectionOwner"]


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    store: EntryStore
    runs: dict[int, dict[int, TakeRun]]
    room: ReceiveRoom
    tls: TlsPolicy

    @property
    def users(self) -> Mapping[str, str] | None:
        """Passwords by user, one of whom each connection must log in as; None lets everybody in."""
        ...

    def handle(self, connection: Connection, request: Request) -> bool:
        """Handle a request that is not an ordinary add; False if there is no room."""
        ...

    def on_opened(self, connection: Connection) -> bool:
        """Take note of a new connection; False if there are too many."""
        ...

    def on_lost(self, connection: Connection) -> None:
        """Forget a connection."""
        ...

    def on_no_room(self, connection: Connection) -> None:
        """Call `connection.go_on` when there may be room in the journal."""
        ...

    def on_answered(self, connection: Connection) -> None:
        """Flush this connection at the end of the journal's batch."""
        ...
