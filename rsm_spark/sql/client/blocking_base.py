"""The hand-written part of the blocking client of SQL tables; `rsm_spark.sql.client.blocking` has the rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Self

from ledger.blocking_base import BlockingCalls, BlockingClient
from ledger.loop_thread import LoopThread, quickest_loop
from rsm_spark.sql.client.client import SqlClient
from rsm_spark.sql.client.row_stream import SqlRowStream


class BlockingSqlBase(BlockingClient[SqlClient]):
    """Thread and connection of the blocking client."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, SqlClient]]) -> None:
        super().__init__(LoopThread("rsm-sql-client", new_loop=quickest_loop), make)


class BlockingRowStreamBase(BlockingCalls[SqlRowStream]):
    """A blocking result as an iterator and a context manager."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Name and declared type of each; "" = it has none."""
        return self.asynchronous.columns

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows that are left."""
        while rows := self.thread.run(self.asynchronous.next_rows()):
            yield from rows

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.thread.run(self.asynchronous.close())
