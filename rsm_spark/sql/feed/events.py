"""Requests and changes of a feed, as msgpack and as JSON. Pure."""

from __future__ import annotations

import base64
import math
from typing import Any, Literal

import msgspec

from ledger.decoding import msgpack_decoder
from rsm_spark.errors import InvalidCommandError

NOW = 0
BEGINNING = -1
"""Revisions from which a feed begins: with what comes; with the first revision that the log holds."""

FEED_SERVICE = "rsm.sql.v1.Changes"
FEED_CALL = "Tell"
FEED_METHOD = f"/{FEED_SERVICE}/{FEED_CALL}"
TABLES_MAX = 1_000
NAME_CHARS_MAX = 1_024

SqlChangeKind = Literal["insert", "update", "delete", "put", "schema"]
SchemaObject = tuple[str, str, bool]


class SqlChange(msgspec.Struct, frozen=True, array_like=True):
    """A row that has changed, or a statement that has changed the schema.

    Attributes:
        revision: Of its record. A feed that is to go on behind this change begins at the next revision.
        transaction: Revision of the transaction: the one that its client was told; the same for all of its changes.
        logged_ms: Logged time, ms since 1970.
        kind: "insert", "update", "delete". "put": inserted or updated, by a leader of a version that did not tell
            which. "schema": a statement has changed the schema.
        table: Name of the table at that revision; of a statement the first table that it concerns, or "".
        key: Of the row, by column: its primary key if that is an INTEGER, or of a table WITHOUT ROWID; else its rowid.
        new: The row by column, without generated columns; None = it is gone.
        old: What it was; None = there was none, or it is not known.
        is_old_known: False = a leader of a version that did not tell old rows has written it.
        is_last: The feed has no more changes of this transaction.
        sql: Statement that has changed the schema.
        objects: Tables, indexes, views and triggers that it concerns: kind, name, and whether there is one now.

    """

    revision: int
    transaction: int
    logged_ms: int
    kind: SqlChangeKind
    table: str
    key: dict[str, Any] = {}
    new: dict[str, Any] | None = None
    old: dict[str, Any] | None = None
    is_old_known: bool = True
    is_last: bool = True
    sql: str = ""
    objects: tuple[SchemaObject, ...] = ()

    def shown(self) -> dict[str, Any]:
        """Return it as JSON has it: bytes are ``{"base64": "…"}``, infinite numbers ``{"float": "Infinity"}``."""
        told: dict[str, Any] = {
            "revision": self.revision,
            "transaction": self.transaction,
            "logged_ms": self.logged_ms,
            "kind": self.kind,
            "table": self.table,
            "is_last": self.is_last,
        }
        if self.kind == "schema":
            objects = [{"kind": kind, "name": name, "is_there": is_there} for kind, name, is_there in self.objects]
            return told | {"sql": self.sql, "objects": objects}
        return told | {
            "key": _shown(self.key),
            "old": _shown(self.old),
            "new": _shown(self.new),
            "is_old_known": self.is_old_known,
        }


class SqlFeedRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request for a feed.

    Attributes:
        log: Name of the log; a replica of another one refuses.
        begin: First revision wanted, inclusive; `NOW` or `BEGINNING`.
        tables: Names of tables; () = all.
        progress_ms: The longest silence of a replica that is up to date; 0 = its choice.

    """

    log: str
    begin: int = NOW
    tables: tuple[str, ...] = ()
    progress_ms: int = 0


class SqlFeedSlice(msgspec.Struct, frozen=True, array_like=True):
    """Some changes.

    Attributes:
        changes: In order of revisions.
        up_to: There are no others up to this revision, inclusive.
        is_partial: Of the first one: of some tables nothing is told, since the feed's reader has no right to them.

    """

    changes: tuple[SqlChange, ...]
    up_to: int
    is_partial: bool = False


_REQUESTS = msgpack_decoder(SqlFeedRequest)
_SLICES = msgpack_decoder(SqlFeedSlice)


def decode_feed_request(text: bytes) -> SqlFeedRequest:
    """Read a client's request.

    Raises:
        InvalidCommandError: It is none.

    """
    try:
        request = _REQUESTS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidCommandError(f"this is no request for a feed of changes: {error}") from None
    check_feed_request(request)
    return request


def check_feed_request(request: SqlFeedRequest) -> None:
    """Check the bounds of a request.

    Raises:
        InvalidCommandError: It is beyond them.

    """
    if not BEGINNING <= request.begin < 1 << 62:
        raise InvalidCommandError(f"a feed begins at a revision from 1 on, not at {request.begin}")
    if len(request.tables) > TABLES_MAX or any(len(name) > NAME_CHARS_MAX for name in request.tables):
        raise InvalidCommandError(f"a feed names at most {TABLES_MAX} tables: name none to have all")


def decode_feed_slice(text: bytes) -> SqlFeedSlice:
    """Read a replica's message.

    Raises:
        ValueError: It is none.

    """
    return _SLICES.decode(text)


def _shown(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: shown_value(value) for name, value in row.items()}


def shown_value(value: Any) -> Any:
    """Return a value of SQLite as JSON has it."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and math.isinf(value):
        return {"float": "Infinity" if value > 0 else "-Infinity"}
    return value
