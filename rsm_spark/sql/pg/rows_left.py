"""Rest of a result of a client of PostgreSQL's protocol: at this replica, or over a link at the leader."""

from __future__ import annotations

import asyncio
import contextlib

from rsm_spark.sql.client.row_stream import SqlRowStream
from rsm_spark.sql.messages import SqlSlice
from rsm_spark.sql.pg.faults import OVERLOADED, PgFault, fault_of
from rsm_spark.sql.pg.tasks import PgCaller
from rsm_spark.sql.reads import SqlReads


class LocalRows:
    """Rows that this replica reads.

    Args:
        reads: Of the replica.
        name: Of the result.
        caller: Whose it is.

    """

    def __init__(self, reads: SqlReads, name: bytes, caller: PgCaller) -> None:
        self._reads = reads
        self._name = name
        self._caller = caller
        self._number = 0

    async def next(self) -> SqlSlice:
        """Read the next rows.

        Raises:
            PgFault: It failed, or was open for too long.

        """
        self._number += 1
        try:
            owner, rights = self._caller
            found = await self._reads.next_rows(self._name, self._number, owner, rights)
        except asyncio.QueueFull:
            raise PgFault(OVERLOADED, "too many reads wait: try again") from None
        if found.fault is not None:
            raise fault_of(found.fault)
        return found

    async def close(self) -> None:
        """Read no more of them."""
        self._reads.close_rows(self._name, self._caller.turns_as)


class LinkedRows:
    """Rows that the leader reads.

    Args:
        stream: Of them.
        held: The link; given back at the end.

    """

    def __init__(self, stream: SqlRowStream, held: contextlib.AsyncExitStack) -> None:
        self._stream = stream
        self._held = held

    async def next(self) -> SqlSlice:
        """Read the next rows.

        Raises:
            SqlError: It failed, or was open for too long.
            RsmError: There is no answer.

        """
        rows = await self._stream.next_rows()
        return SqlSlice((), rows, self._stream.is_last)

    async def close(self) -> None:
        """Read no more of them."""
        try:
            await self._stream.close()
        finally:
            await self._held.aclose()
