"""Results of the client of SQL tables that are read in slices.

    async with await shop.rows("SELECT id, body FROM letter ORDER BY id") as letters:
        async for number, body in letters:
            ...

All rows show one commit, however long they are read. The replica reads the next slice when it is asked for; while a
result is open, it holds that commit. So a result is to be read on: one that nobody asks for ends after a minute.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any, Protocol, Self

from rsm_spark.client.service_client import Reply
from rsm_spark.core.freshness import Freshness
from rsm_spark.errors import RsmError
from rsm_spark.sql.errors import SqlError
from rsm_spark.sql.messages import (
    SqlRowsEnd,
    SqlRowsQuery,
    SqlSlice,
    SqlSliceRequest,
    decode_slice,
    encode,
)

_END_S = 2.0


class RowService(Protocol):
    """Part of a client that a result in slices needs; `ServiceClient` has it."""

    @property
    def steady_read(self) -> Freshness:
        """Freshness with which reads are answered by one replica."""
        ...

    async def query(self, query: bytes, *, read: Freshness | None = None, timeout_s: float | None = None) -> Reply:
        """Return the answer to a query."""
        ...


class SqlRowStream:
    """A result that is read in slices; made by `SqlClient.rows`.

    Args:
        service: Of the client.
        timeout_s: Time limit of each call; None = the client's.

    Attributes:
        columns: Name and declared type of each; "" = it has none.
        revision: Of the state that all its rows show.
        is_last: No more rows are to be asked for; some that were received may be left.
        is_at_end: Its last row was returned, or it was closed, or it has failed.

    """

    def __init__(self, service: RowService, timeout_s: float | None = None) -> None:
        self.columns: tuple[tuple[str, str], ...] = ()
        self.revision = 0
        self.is_last = False
        self.is_at_end = False
        self._service = service
        self._timeout_s = timeout_s
        self._name = os.urandom(16)
        self._number = 0
        self._rows: tuple[tuple[Any, ...], ...] = ()  # That were received, and not returned.
        self._turn = asyncio.Lock()

    async def open(self, sql: str, parameters: tuple[Any, ...] | dict[str, Any]) -> None:
        """Have it begin; called once, by the client."""
        found, self.revision = await self._ask(SqlRowsQuery(self._name, sql, parameters))
        self.columns = found.columns
        self._take(found)

    async def _ask(self, request: SqlRowsQuery | SqlSliceRequest) -> tuple[SqlSlice, int]:
        service = self._service
        reply = await service.query(encode(request), read=service.steady_read, timeout_s=self._timeout_s)
        return decode_slice(reply.payload), reply.revision

    def _take(self, found: SqlSlice) -> None:
        self.is_last = found.is_last or found.fault is not None
        if found.fault is not None:
            self.is_at_end = True
            raise SqlError.of(found.fault)
        self._rows = found.rows

    async def next_rows(self) -> tuple[tuple[Any, ...], ...]:
        """Return the next rows, some hundred KiB of them; none = there are no more.

        Raises:
            SqlError: It failed, or takes too long.
            SqlAbortedError: It was not read on in time, or the replica that had it is gone: read it again.

        """
        async with self._turn:
            while True:
                rows, self._rows = self._rows, ()
                if rows or self.is_at_end:
                    return rows
                if self.is_last:
                    self.is_at_end = True
                    return ()
                self._number += 1
                found, _ = await self._ask(SqlSliceRequest(self._name, self._number))
                self._take(found)

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        """Iterate over the rows that are left."""
        while rows := await self.next_rows():
            for row in rows:
                yield row

    async def close(self) -> None:
        """Read no more of it; does nothing at its end."""
        async with self._turn:
            was_open, self.is_at_end, self._rows = not self.is_last and not self.is_at_end, True, ()
            if not was_open:
                return
            service = self._service
            try:
                await service.query(encode(SqlRowsEnd(self._name)), read=service.steady_read, timeout_s=_END_S)
            except RsmError:
                return  # The replica forgets it by itself.

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()


async def open_rows(
    service: RowService,
    sql: str,
    parameters: tuple[Any, ...] | dict[str, Any],
    timeout_s: float | None = None,
) -> SqlRowStream:
    """Return a result that has begun.

    Raises:
        SqlError: The statement failed.
        RsmError: There is no answer.

    """
    stream = SqlRowStream(service, timeout_s)
    await stream.open(sql, parameters)
    return stream
