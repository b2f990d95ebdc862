"""The change feed over HTTP, on the HTTP server of the replica's process: `GET /v1/sql/changes`, server-sent events.

    id: 4711
    event: change
    data: {"revision":4711,"transaction":4712,"kind":"update","table":"item","key":{"id":1},"old":{…},"new":{…},…}

The id is the revision: who comes again with `Last-Event-ID`, at any replica, misses nothing and sees nothing twice. A
reader that is slow holds one piece of text, and reads on from the log; see `ledger.http.probe_streams`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import msgspec

from ledger.errors import LedgerError
from ledger.http.routes import ProbePage, ProbeRequest, ProbeRoute, ProbeStream
from ledger.rights.principal import turns_name
from ledger.rights.table import Right
from rsm_spark.errors import InvalidCommandError, MissingLogError, RsmError
from rsm_spark.sql.denials import Refused, nobody_is_told, shown_reason
from rsm_spark.sql.feed.desk import FeedDesk
from rsm_spark.sql.feed.events import BEGINNING, NOW, SqlChange, SqlFeedRequest, SqlFeedSlice, check_feed_request
from rsm_spark.sql.http_api import BAD_REQUEST, complaint
from rsm_spark.sql.pg.faults import DENIED, NOT_NOW, PgFault, fault_of_error
from rsm_spark.sql.scopes import SQL_SCOPES
from rsm_spark.sql.table_rights import rights_of
from rsm_spark.transport.reach import fault_of

TRIMMED: Final = "55000"
_ROUTE: Final = "GET /v1/sql/changes"
_PARTIAL: Final = (
    b'event: partial\ndata: {"message":"of some tables nothing is told: the caller has no right to read them"}\n\n'
)
_TYPE: Final = "text/event-stream; charset=utf-8"
_PIECE_BYTES: Final = 64 * 1024
_LAST_ID: Final = "last-event-id"
_REVISION_DIGITS: Final = 18
_encode = msgspec.json.Encoder().encode


class SqlHttpChanges:
    """See the module.

    Args:
        feeds: Of the replica.
        log: Name of the log.

    Attributes:
        on_refused: Told of feeds that callers had no right to.

    """

    def __init__(self, feeds: FeedDesk, log: str) -> None:
        self._feeds = feeds
        self._log = log
        self.on_refused: Refused = nobody_is_told

    def routes(self) -> dict[str, ProbeRoute]:
        """Return what is served."""
        return {_ROUTE: ProbeRoute(self._answer, Right.STATE_READ, is_stream=True)}

    async def _answer(self, asked: ProbeRequest) -> ProbePage | ProbeStream:
        fault = fault_of(asked.principal, self._log, SQL_SCOPES)
        if fault:
            return self._denied(asked, PgFault(DENIED, fault))
        owner = turns_name(asked.principal, asked.source.rpartition(":")[0])
        try:
            texts = _texts(self._feeds.slices(_request(asked, self._log), owner, rights_of(asked.principal)))
            await anext(texts)
        except PgFault as error:
            return complaint(error, 0)
        except InvalidCommandError as error:
            return complaint(PgFault(BAD_REQUEST, str(error)), 0)
        except MissingLogError as error:
            trimmed = {"sqlstate": TRIMMED, "message": str(error), "first_revision": _first_held(error)}
            return ProbePage(410, _encode({"error": trimmed}) + b"\n", "application/json")
        except RsmError as error:
            return self._denied(asked, fault_of_error(error))
        except LedgerError as error:
            return complaint(PgFault(NOT_NOW, f"the log cannot be read: {error}"), 0)
        return ProbeStream(texts, _TYPE)

    def _denied(self, asked: ProbeRequest, fault: PgFault) -> ProbePage:
        """Return the answer to a feed that cannot begin; tell of it, if that is for want of a right."""
        if fault.code == DENIED:
            self.on_refused(asked.principal, _ROUTE, asked.source, shown_reason(fault.text))
        return complaint(fault, 0)


async def _texts(slices: AsyncGenerator[SqlFeedSlice, None]) -> AsyncGenerator[bytes, None]:
    """Iterate over the text of a stream, in pieces; the first, which is empty, once the feed has begun.

    Raises:
        RsmError, LedgerError: It cannot begin; in the place of the first piece alone.

    """
    async with contextlib.aclosing(slices):
        first = await anext(slices)
        yield b""
        yield b"retry: 1000\n" + (_PARTIAL if first.is_partial else b"") + _place(first)
        try:
            async for one in slices:
                for piece in _pieces(one):
                    yield piece
        except MissingLogError as error:
            news = {"first_revision": _first_held(error), "message": str(error)}
            yield b"event: trimmed\ndata: %s\n\n" % _encode(news)
        except (RsmError, LedgerError) as error:
            yield b"event: ended\ndata: %s\n\n" % _encode({"message": str(error)})


def _pieces(told: SqlFeedSlice) -> Iterator[bytes]:
    """Iterate over the text of a slice: what was not taken yet is no text yet. The last piece says how far it is."""
    parts: list[bytes] = []
    size = 0
    for change in told.changes:
        text = _event(change)
        parts.append(text)
        size += len(text)
        if size >= _PIECE_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join([*parts, _place(told)])


def _event(change: SqlChange) -> bytes:
    return b"id: %d\nevent: change\ndata: %s\n\n" % (change.revision, _encode(change.shown()))


def _place(told: SqlFeedSlice) -> bytes:
    """Return an event without data: it shows nobody anything, but the reader's last id is how far it is."""
    return b"id: %d\n\n" % told.up_to


def _first_held(error: MissingLogError) -> int:
    return (error.last_revision or 0) + 1


def _request(asked: ProbeRequest, log: str) -> SqlFeedRequest:
    """Return what is asked for.

    Raises:
        PgFault, InvalidCommandError: It makes no sense.

    """
    unknown = sorted({name for name, _ in asked.pairs} - {"from", "table"})
    if unknown:
        raise PgFault(BAD_REQUEST, f"{unknown[0]}: a feed is asked for with `from`, and `table` once for each of them")
    tables = tuple(value for name, value in asked.pairs if name == "table")
    last = asked.headers.get(_LAST_ID, "")
    begin = _revision(last, "Last-Event-ID") + 1 if last else _begin(asked.query.get("from", "now"))
    request = SqlFeedRequest(log, begin, tables)
    check_feed_request(request)
    return request


def _begin(text: str) -> int:
    match text:
        case "now":
            return NOW
        case "beginning":
            return BEGINNING
    begin = _revision(text, "from")
    if not begin:
        raise PgFault(BAD_REQUEST, "from: revisions begin at 1; `beginning` is the first that the log holds")
    return begin


def _revision(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _REVISION_DIGITS):
        words = "" if where == "Last-Event-ID" else ", `beginning` or `now`"
        raise PgFault(BAD_REQUEST, f"{where}: expected a revision{words}, not {text[:40]!r}")
    return int(text)
