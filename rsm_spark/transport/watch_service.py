"""Watch service of a replica: each client its own stream, as fast as it takes it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any

import grpc
import grpc.aio

from ledger.errors import LedgerError
from ledger.rights.principal import Principal
from ledger.rights.table import Right
from rsm_spark.core.machine import MachineDescription
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, RsmError
from rsm_spark.runtime.change_feed import ChangeFeed, FeedCursor
from rsm_spark.runtime.change_filter import ChangeFilter, SaidRevision, TableChange
from rsm_spark.runtime.old_rows import OldRows, RowBefore
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.transport.guard import calling_principal
from rsm_spark.transport.reach import KeyScopes, watch_fault
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.told_service import end_told
from rsm_spark.transport.watch_codec import (
    WATCH_SERVICE,
    WatchRequest,
    decode_watch,
    encode_changes,
)

WATCHERS_MAX = 2_000
PROGRESS_S = 2.0
_PROGRESS_MS_MIN = 100
MESSAGE_BYTES = 256 * 1024
"""Keys and rows of one message, before the last of them: what a watcher that stands still holds of a replica."""
_CHANGE_BYTES = 24


class WatchService:
    """Serves the changes that one replica applies, whatever its role.

    Args:
        log: Name of the replica's log; calls meant for another are refused.
        description: Of its machine.
        feed: Of its records.
        row_before: Returns the row of a table that the change of a revision has replaced or removed, or None; raises
            `MissingLogError` where it is not remembered. None = the machine remembers none.
        said_revision: Of the machine: see `ChangeFilter`.
        past: Opens what the machine does not remember; None = that is missing.
        message_bytes: Keys and rows of one message, before the last of them.

    Attributes:
        watcher_count: Streams open.
        changes_sent: Since the process began.
        refused_count: Streams refused because there were too many.

    """

    def __init__(
        self,
        log: str,
        description: MachineDescription,
        feed: ChangeFeed,
        row_before: RowBefore | None = None,
        said_revision: SaidRevision | None = None,
        *,
        past: PastRows | None = None,
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self._row_before = row_before
        self._past = past
        self._said_revision = said_revision
        self._message_bytes = message_bytes
        self._log = log
        self._description = description
        self._feed = feed
        self._keys: KeyScopes | None = None
        self._on_refused: Callable[[Principal, str, str, str], object] = lambda *_: None
        self.watcher_count = 0
        self.changes_sent = 0
        self.refused_count = 0

    def close(self) -> None:
        """End all streams: their clients go on elsewhere."""
        self._feed.close()

    def add_to(self, server: ReplicaServer) -> None:
        """Have a server that has not started yet serve this too."""
        self._keys = server.keys
        self._on_refused = server.guard.refused
        server.add_service(
            WATCH_SERVICE,
            {"Watch": grpc.unary_stream_rpc_method_handler(self._watch)},
            {"Watch": Right.STATE_READ},
            framed=["Watch"],
        )

    async def _watch(self, text: bytes, context: Any) -> None:
        try:
            request = decode_watch(text)
            self._check(request)
            principal = calling_principal()
            fault = watch_fault(principal, self._log, self._keys, request)
            if fault:
                self._on_refused(principal, f"/{WATCH_SERVICE}/Watch", str(context.peer()), fault)
                raise _RefusedError(grpc.StatusCode.PERMISSION_DENIED, fault)  # noqa: TRY301
            chosen = self._filter(request, request.types)
        except InvalidCommandError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except _RefusedError as error:
            await context.abort(error.code, str(error))
        self.watcher_count += 1
        cursor = self._feed.cursor(request.from_revision or self._feed.revision + 1)
        try:
            await self._send(request, chosen, cursor, context)
        except (RsmError, LedgerError) as error:
            await end_told(context, error)
        finally:
            self.watcher_count -= 1
            await cursor.close()

    def _check(self, request: WatchRequest) -> None:
        if request.old_rows and self._row_before is None:
            raise InvalidCommandError(f"machine {self._description.name} does not remember old rows")
        if request.log != self._log:
            raise _RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this replica serves the log {self._log!r}, the watch is meant for {request.log!r}",
            )
        if self.watcher_count >= WATCHERS_MAX:
            self.refused_count += 1
            raise _RefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self.watcher_count} watches are open on this replica: use another one, or come again later",
            )

    async def _send(self, request: WatchRequest, chosen: ChangeFilter, cursor: FeedCursor, context: Any) -> None:
        """Send what comes, until the client has gone."""
        olds = None
        if request.old_rows and self._row_before is not None:
            every, owner = self._filter(request, ()), calling_principal().name
            olds = OldRows(request.table, self._row_before, self._past, every, owner)
        try:
            await self._send_each(request, chosen, cursor, olds, context)
        finally:
            if olds is not None:
                olds.close()

    async def _send_each(
        self, request: WatchRequest, chosen: ChangeFilter, cursor: FeedCursor, olds: OldRows | None, context: Any
    ) -> None:
        clock = asyncio.get_running_loop().time
        progress_s = max(request.progress_ms, _PROGRESS_MS_MIN) / 1000 if request.progress_ms else PROGRESS_S
        told = cursor.next_revision - 1
        await context.write(encode_changes((), told))
        told_at = clock()
        while True:
            first = cursor.next_revision
            entries = await cursor.read(max(0.0, told_at + progress_s - clock()))
            if self._feed.is_closed:
                raise ConnectionLostError("this replica stops")
            changes: list[TableChange] = []
            for entry in entries:
                changes += chosen.take(entry, first)
            sent, up_to = 0, cursor.next_revision - 1
            async for part in _at_once(changes) if olds is None else olds.told(entries, changes):
                for piece in _pieces(part, self._message_bytes):
                    sent += len(piece)
                    told = up_to if sent == len(changes) else _told_up_to(changes, sent)
                    await context.write(encode_changes(piece, told, old_rows=request.old_rows))
                    self.changes_sent += len(piece)
                    told_at = clock()
            if clock() >= told_at + progress_s:
                # A replica that hears nothing new keeps silent, so that its watchers look for another one.
                if cursor.next_revision - 1 > told or self._feed.is_fresh:
                    told = cursor.next_revision - 1
                    await context.write(encode_changes((), told))
                told_at = clock()

    def _filter(self, request: WatchRequest, types: Collection[int]) -> ChangeFilter:
        return ChangeFilter(self._description, request.table, request.start, request.end, types, self._said_revision)


class _RefusedError(RsmError):
    """A watch that this replica does not serve.

    * `RsmError`
        * `_RefusedError`   never leaves this module
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def _at_once(changes: list[TableChange]) -> AsyncIterator[list[TableChange]]:
    yield changes


def _told_up_to(changes: list[TableChange], count: int) -> int:
    """Return up to where all has been sent when so many of these changes have been, and not all of them.

    Where that is within a command: up to before its first change.
    """
    counts_by = changes[count].mod_revision
    if changes[count - 1].mod_revision < counts_by:
        return changes[count - 1].mod_revision
    first = bisect_left(changes, counts_by, hi=count, key=lambda change: change.mod_revision)
    return changes[first].revision - 1


def _pieces(changes: list[TableChange], message_bytes: int) -> Iterator[list[TableChange]]:
    """Yield messages' worth of changes."""
    piece: list[TableChange] = []
    held = 0
    for change in changes:
        size = len(change.key) + len(change.row or b"") + len(change.old_row or b"") + _CHANGE_BYTES
        if piece and held + size > message_bytes:
            yield piece
            piece, held = [], 0
        piece.append(change)
        held += size
    if piece:
        yield piece
