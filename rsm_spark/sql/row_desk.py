"""Results that are read in slices: whose they are, how long they may be open, and who reads when.

    open      a query runs on a connection of the pool until its first slice is full; if there is more, that connection
              is the result's from then on, and the pool opens another one
    next      the next slice is read when its client asks for it, and no sooner; a slice that was asked for again is
              answered the same way
    end       the last slice was read, the client has enough, or its time is over

Memory is bounded by the number of results, each of which has one slice and a small cache. While a result is open it
holds one commit, which keeps SQLite's WAL from being used again: results end when that has grown much.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable

from rsm_spark.errors import InvalidCommandError
from rsm_spark.sql.engine.reader import SliceReply, SqlReader
from rsm_spark.sql.limits import RESULT_WAL_PAGES_MAX, SqlSettings
from rsm_spark.sql.messages import SqlFault, SqlQuery, SqlRowsEnd, SqlRowsQuery, SqlSlice, SqlSliceRequest
from rsm_spark.sql.reader_pool import ReaderPool, end_rows
from rsm_spark.sql.system_tables import HeldCommit, SystemRows
from rsm_spark.sql.table_rights import TableRights

_NAME_BYTES = 16
_ENDED_MAX = 1_024
_YOUNG_S = 1.0
"""A result that is not older is not ended for the WAL's sake."""
_LOOK_S = 1.0
_NOTHING = SliceReply(SqlSlice(), 0)


class OpenResult:
    """One result of which there is more.

    Args:
        first: Its first slice, with its name.
        owner: Whose it is: a principal, or an address.
        reader: Its own.
        began_s: Time of the event loop.
        rights: Tables that its owner had then; None = all.

    """

    __slots__ = (
        "began_s", "first", "is_running", "name", "number", "over", "owner", "reader", "reply", "revision", "rights",
        "used_s",
    )  # fmt: skip

    def __init__(
        self, first: SliceReply, owner: str, reader: SqlReader, began_s: float, rights: TableRights | None
    ) -> None:
        self.rights = rights
        self.first = first
        self.name = first.name
        self.revision = first.revision
        self.owner = owner
        self.reader = reader
        self.began_s = self.used_s = began_s
        self.is_running = False
        self.number = 0  # Of the slice that was asked for last.
        self.reply: asyncio.Task[SqlSlice] | None = None  # That slice.
        self.over: SqlFault | None = None


class RowDesk:
    """See the module. For one event loop.

    Args:
        pool: Reads.
        wal_pages: Says how many pages SQLite's WAL has.
        settings: Limits.

    """

    def __init__(self, pool: ReaderPool, wal_pages: Callable[[], int], settings: SqlSettings) -> None:
        self._pool = pool
        self._wal_pages = wal_pages
        self._settings = settings
        self._open: dict[bytes, OpenResult] = {}
        # By owner: those that are being opened count as well.
        self._counts: dict[str, int] = {}
        self._opening: dict[bytes, asyncio.Task[SliceReply]] = {}
        self._ended: OrderedDict[bytes, SqlFault] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open_count(self) -> int:
        """Results of which there is more."""
        return len(self._open)

    def held_commits(self) -> list[HeldCommit]:
        """Return what `rsm_locks` shows of them."""
        return [
            HeldCommit(
                "result",
                one.name,
                one.owner,
                one.began_s,
                one.used_s,
                None if one.is_running else "its client",
                one.revision,
                has_written=False,
            )
            for one in self._open.values()
        ]

    async def read(
        self,
        query: SqlQuery,
        owner: str,
        name: bytes | None = None,
        system: SystemRows | None = None,
        rights: TableRights | None = None,
    ) -> SliceReply:
        """Run a query up to its first slice; if that is not the last, the result is kept. To cancel it ends the read.

        Args:
            query: The query.
            owner: Whose it is.
            name: Of the result; None = drawn here, see `SliceReply.name`.
            system: Rows of the system tables that it names; None = there are none.
            rights: Tables that the owner has; None = all.

        Raises:
            asyncio.QueueFull: Too many reads wait.
            RsmError: The file failed.

        """
        future = self._pool.open_rows(query, owner, system, rights)
        try:
            found, reader = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                left = future.result()[1]
                if left is not None:
                    end_rows(left)
            raise
        if reader is None:
            return found
        own = self._counts.get(owner, 0)
        if own >= self._settings.results_max // 4 or len(self._open) >= self._settings.results_max:
            end_rows(reader)
            text = f"{own} results of this client are read in slices, {len(self._open)} in all: read one to its end"
            return SliceReply(SqlSlice(fault=SqlFault("limit", text)), found.revision)
        found = found._replace(name=os.urandom(_NAME_BYTES) if name is None else name)
        self._open[found.name] = OpenResult(found, owner, reader, asyncio.get_running_loop().time(), rights)
        self._counts[owner] = own + 1
        self._arm()
        return found

    async def open(
        self, request: SqlRowsQuery, owner: str, system: SystemRows | None = None, rights: TableRights | None = None
    ) -> SliceReply:
        """Do the same for a client elsewhere; what is opened again is answered the same way.

        Raises:
            InvalidCommandError: Its name is none, or is in use.
            asyncio.QueueFull: Too many reads wait.
            RsmError: The file failed.

        """
        name = request.name
        if len(name) != _NAME_BYTES:
            raise InvalidCommandError(f"the name of a result has {_NAME_BYTES} bytes, not {len(name)}")
        while name in self._opening:  # It was sent again.
            await asyncio.wait([self._opening[name]])
        found = self._open.get(name)
        if found is not None:
            if found.owner != owner or found.number or found.rights != rights:
                raise InvalidCommandError("a result of this name is open already: draw another one")
            return found.first
        query = SqlQuery(request.sql, request.parameters)
        task = self._opening[name] = asyncio.get_running_loop().create_task(
            self.read(query, owner, name, system, rights)
        )
        try:
            return await task
        finally:
            del self._opening[name]

    async def next(self, request: SqlSliceRequest, owner: str, rights: TableRights | None = None) -> SqlSlice:
        """Return the next slice; the same one again is answered the same way.

        Args:
            request: Its name and number.
            owner: Whose it is.
            rights: Tables that the owner has now; None = all. If it had others before, the result is over.

        """
        one = self._open.get(request.name)
        if one is None or one.owner != owner:
            unknown = SqlFault("aborted", "this replica has no such result: another one has it, or it is at its end")
            return SqlSlice(fault=self._ended.get(request.name, unknown))
        if one.rights != rights:
            self._finish(one, SqlFault("aborted", "the rights of its client are others since it began: read it again"))
            return SqlSlice(fault=one.over)
        if request.number != one.number or one.reply is None:
            if request.number != one.number + 1 or one.is_running:
                self._finish(one, SqlFault("aborted", f"slice {request.number} was asked for after {one.number}"))
                return SqlSlice(fault=one.over)
            one.number, one.is_running = request.number, True
            one.first = _NOTHING  # Its client has it.
            one.reply = asyncio.get_running_loop().create_task(self._next(one))
        return await asyncio.shield(one.reply)

    async def _next(self, one: OpenResult) -> SqlSlice:
        try:
            found = await self._pool.next_rows(one.reader, one.owner)
        except asyncio.QueueFull:
            found = SqlSlice(fault=SqlFault("aborted", "too many reads wait"))
        except Exception as error:
            self._finish_run(one, SqlFault("aborted", str(error)))
            raise
        fault = found.fault
        if found.is_last:
            fault = fault or SqlFault("aborted", "the result is at its end")
        self._finish_run(one, fault)
        return SqlSlice(fault=one.over) if one.over is not None and not found.is_last else found

    def _finish_run(self, one: OpenResult, fault: SqlFault | None) -> None:
        one.is_running = False
        one.used_s = asyncio.get_running_loop().time()
        if one.over is not None:
            end_rows(one.reader)
        elif fault is not None:
            self._finish(one, fault)

    def close_result(self, request: SqlRowsEnd, owner: str) -> SqlSlice:
        """Forget a result."""
        one = self._open.get(request.name)
        if one is not None and one.owner == owner:
            self._finish(one, SqlFault("aborted", "its client has ended it"))
        return SqlSlice()

    def _finish(self, one: OpenResult, fault: SqlFault) -> None:
        one.over = fault
        del self._open[one.name]
        self._counts[one.owner] -= 1
        if not self._counts[one.owner]:
            del self._counts[one.owner]
        self._ended[one.name] = fault
        if len(self._ended) > _ENDED_MAX:
            self._ended.popitem(last=False)
        if one.is_running:
            one.reader.interrupt(one.reader.number)  # Closed when it has stopped.
        else:
            end_rows(one.reader)

    def _arm(self) -> None:
        if self._timer is None and self._open:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """End results whose time is over, and old ones when SQLite's WAL has grown much."""
        self._timer = None
        now_s, settings = asyncio.get_running_loop().time(), self._settings
        is_wal_long = self._wal_pages() >= RESULT_WAL_PAGES_MAX
        for one in list(self._open.values()):
            if now_s >= one.began_s + settings.result_ms_max / 1000:
                text = f"the result was read for longer than {settings.result_ms_max / 1000:g} s"
            elif not one.is_running and now_s >= one.used_s + settings.result_idle_ms / 1000:
                text = f"the result has waited for its client for longer than {settings.result_idle_ms / 1000:g} s"
            elif is_wal_long and now_s >= one.began_s + _YOUNG_S:
                text = "SQLite's WAL has grown much while the result was read"
            else:
                continue
            self._finish(one, SqlFault("aborted", f"{text}: read it again, in pieces by a key"))
        self._arm()

    def close(self) -> None:
        """End all of them; the pool is closed behind it."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._opening.values():
            task.cancel()
        for one in list(self._open.values()):
            self._finish(one, SqlFault("aborted", "this replica is being stopped"))
