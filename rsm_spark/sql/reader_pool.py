"""Connections that read for clients, each on a thread of its own while it reads; owners in turns."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from rsm_spark.sql.engine.reader import ColumnsQuery, ReadReply, SliceReply, SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlQuery, SqlSlice
from rsm_spark.sql.owner_turns import OwnerTurns
from rsm_spark.sql.system_tables import SystemRows
from rsm_spark.sql.table_rights import TableRights

T = TypeVar("T")


class ReaderPool:
    """Connections that read; one owner has at most half of the threads.

    Args:
        path: Of the file; it is there.
        settings: Limits.
        clock_s: Monotonic seconds.

    """

    def __init__(self, path: Path, settings: SqlSettings, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._make = functools.partial(SqlReader, path, settings, clock_s)
        # Invariant: as many are idle, or lent to a thread, as there are threads.
        self._idle = [self._make() for _ in range(settings.readers)]
        self._lent: set[SqlReader] = set()
        self._threads: OwnerTurns[Any] = OwnerTurns(settings.readers, settings.waiting_reads_max, "rsm-sql-reader")

    @property
    def waiting_count(self) -> int:
        """Reads without a thread."""
        return self._threads.waiting_count

    def read(
        self,
        query: SqlQuery | ColumnsQuery,
        owner: str,
        system: SystemRows | None = None,
        rights: TableRights | None = None,
    ) -> asyncio.Future[ReadReply]:
        """Return the future of a reply; to cancel it ends the read.

        Args:
            query: The query.
            owner: Who takes turns with others.
            system: Rows of the system tables that it names; None = there are none.
            rights: Tables that the owner has; None = all.

        Raises:
            asyncio.QueueFull: Too many wait.

        """
        running: list[tuple[SqlReader, int]] = []
        loop = asyncio.get_running_loop()

        def _begin() -> Callable[[], ReadReply]:
            reader = self._lend()
            running.append((reader, reader.begin()))

            def _read() -> ReadReply:
                try:
                    return reader.read(query, system, rights)
                finally:
                    loop.call_soon_threadsafe(self._give_back, reader)

            return _read

        future = cast("asyncio.Future[ReadReply]", self._threads.run(owner, _begin))
        future.add_done_callback(lambda done: _interrupt(running) if done.cancelled() else None)
        return future

    def open_rows(
        self, query: SqlQuery, owner: str, system: SystemRows | None = None, rights: TableRights | None = None
    ) -> asyncio.Future[tuple[SliceReply, SqlReader | None]]:
        """Return the future of the first slice of a result; to cancel it ends the read; see `read`.

        Returns:
            The slice, and the connection that has more of the result, which is the caller's to close; None = there is
            no more.

        Raises:
            asyncio.QueueFull: Too many wait.

        """
        running: list[tuple[SqlReader, int]] = []
        left: list[SqlReader] = []
        loop = asyncio.get_running_loop()

        def _on_more(reader: SqlReader, fresh: SqlReader) -> None:
            self._lent.discard(reader)
            self._idle.append(fresh)
            left.append(reader)
            if future.cancelled():
                _on_done(future)

        def _begin() -> Callable[[], tuple[SliceReply, SqlReader | None]]:
            reader = self._lend()
            running.append((reader, reader.begin()))

            def _read() -> tuple[SliceReply, SqlReader | None]:
                is_left = False
                try:
                    found = reader.open_rows(query, system, rights)
                    if found.slice.is_last:
                        return found, None
                    fresh = self._make()
                    is_left = True
                    loop.call_soon_threadsafe(_on_more, reader, fresh)
                    return found, reader
                finally:
                    if not is_left:
                        reader.close_rows()
                        loop.call_soon_threadsafe(self._give_back, reader)

            return _read

        def _on_done(done: asyncio.Future[Any]) -> None:
            if not done.cancelled():
                return
            if left:
                end_rows(left.pop())
            else:
                _interrupt(running)

        future = cast("asyncio.Future[tuple[SliceReply, SqlReader | None]]", self._threads.run(owner, _begin))
        future.add_done_callback(_on_done)
        return future

    def next_rows(self, reader: SqlReader, owner: str) -> asyncio.Future[SqlSlice]:
        """Return the future of the next slice of a result.

        Args:
            reader: As `open_rows` returned it.
            owner: Who takes turns with others.

        Raises:
            asyncio.QueueFull: Too many wait.

        """

        def _begin() -> Callable[[], SqlSlice]:
            reader.begin()
            return reader.next_rows

        return cast("asyncio.Future[SqlSlice]", self._threads.run(owner, _begin))

    def _lend(self) -> SqlReader:
        reader = self._idle.pop()
        self._lent.add(reader)
        return reader

    def _give_back(self, reader: SqlReader) -> None:
        self._lent.discard(reader)
        self._idle.append(reader)

    def close(self) -> None:
        """End all reads and close the connections."""
        for reader in self._lent:
            reader.interrupt(reader.number)
        self._threads.close()
        for reader in (*self._idle, *self._lent):
            reader.close()


def end_rows(reader: SqlReader) -> None:
    """Close a connection that `ReaderPool.open_rows` has given away."""
    reader.close_rows()
    reader.close()


def _interrupt(running: list[tuple[SqlReader, int]]) -> None:
    if running:
        reader, number = running[0]
        reader.interrupt(number)
