"""The client of replicated SQL tables for programs without an event loop.

    from rsm_spark.sql import BlockingSqlClient

    with BlockingSqlClient.connect("shop") as shop:
        shop.execute("INSERT INTO item (name) VALUES (?)", ("pen",))
        print(shop.query("SELECT name FROM item").rows)

Same calls, same errors as `rsm_spark.sql.client.client.SqlClient`; any number of threads may use one client at once,
and calls that wait together travel together.

Written by tools/generate_blocking.py: `make blocking` writes it anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from ledger.blocking_base import BlockingCalls
from rsm_spark.client.replica_connection import ReadFrom
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.freshness import Freshness
from rsm_spark.sql.client.blocking_base import BlockingRowStreamBase, BlockingSqlBase
from rsm_spark.sql.client.changes import PROGRESS_MS, FeedBegin
from rsm_spark.sql.client.client import SqlClient, SqlOutcome, SqlRows
from rsm_spark.sql.client.statements import Statement
from rsm_spark.sql.client.transaction import InteractiveTransaction
from rsm_spark.sql.feed.events import SqlChange
from rsm_spark.sql.messages import SqlParameters, SqlResult
from rsm_spark.transport.security import Security

__all__ = ["BlockingInteractiveTransaction", "BlockingSqlClient", "BlockingSqlRowStream"]


class BlockingSqlRowStream(BlockingRowStreamBase):
    """`SqlRowStream` for code that blocks."""

    @property
    def revision(self) -> int:
        """Of the state that all its rows show."""
        return self.asynchronous.revision

    @property
    def is_last(self) -> bool:
        """No more rows are to be asked for; some that were received may be left."""
        return self.asynchronous.is_last

    @property
    def is_at_end(self) -> bool:
        """Its last row was returned, or it was closed, or it has failed."""
        return self.asynchronous.is_at_end

    def next_rows(self) -> tuple[tuple[Any, ...], ...]:
        """Return the next rows, some hundred KiB of them; none = there are no more. See `SqlRowStream.next_rows`."""
        return self.thread.run(self.asynchronous.next_rows())

    def close(self) -> None:
        """Read no more of it; does nothing at its end."""
        self.thread.run(self.asynchronous.close())


class BlockingInteractiveTransaction(BlockingCalls[InteractiveTransaction]):
    """`InteractiveTransaction` for code that blocks."""

    @property
    def revision(self) -> int:
        """Of the state that it reads."""
        return self.asynchronous.revision

    @property
    def has_written(self) -> bool:
        """It has changed something, so far."""
        return self.asynchronous.has_written

    @property
    def is_over(self) -> bool:
        """It was committed or rolled back, or has ended by itself."""
        return self.asynchronous.is_over

    def execute(self, sql: str, parameters: SqlParameters = (), *, expected: int | None = None) -> SqlResult:
        """Run one statement; return its result. See `InteractiveTransaction.execute`."""
        return self.thread.run(self.asynchronous.execute(sql, parameters, expected=expected))

    def executemany(self, sql: str, many: Iterable[SqlParameters]) -> int:
        """Run a statement for each of many parameters; return how many rows it changed.

        See `InteractiveTransaction.executemany`.
        """
        return self.thread.run(self.asynchronous.executemany(sql, list(many)))

    def execute_all(self, statements: Sequence[Statement]) -> list[SqlResult]:
        """Run statements in order, in as few messages as they fit; return their results.

        See `InteractiveTransaction.execute_all`.
        """
        return self.thread.run(self.asynchronous.execute_all(statements))

    def commit(self) -> int:
        """Keep what it did, once, and end it; return the revision. See `InteractiveTransaction.commit`."""
        return self.thread.run(self.asynchronous.commit())

    def rollback(self) -> None:
        """Drop what it did, and end it; does nothing if it is over."""
        self.thread.run(self.asynchronous.rollback())


class BlockingSqlClient(BlockingSqlBase):
    """`SqlClient` for code that blocks."""

    @classmethod
    def connect(
        cls,
        log: str,
        metadata_uri: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        replica: str | None = None,
        read: Freshness | None = None,
        read_from: ReadFrom = "leader",
        security: Security | None = None,
        rsm_root: str = DEFAULT_RSM_ROOT,
    ) -> Self:
        """Return a client of the tables whose log has this name; see `ServiceClient.connect` for the options.

        See `SqlClient.connect`.
        """
        return cls(
            lambda: SqlClient.connect(
                log,
                metadata_uri,
                timeout_s=timeout_s,
                replica=replica,
                read=read,
                read_from=read_from,
                security=security,
                rsm_root=rsm_root,
            )
        )

    def execute(
        self, sql: str, parameters: SqlParameters = (), *, expected: int | None = None, timeout_s: float | None = None
    ) -> SqlResult:
        """Do one statement, once; return its result. See `SqlClient.execute`."""
        return self.thread.run(self.asynchronous.execute(sql, parameters, expected=expected, timeout_s=timeout_s))

    def executemany(self, sql: str, many: Iterable[SqlParameters], *, timeout_s: float | None = None) -> int:
        """Do a statement for each of many parameters, as one transaction; return how many rows it changed.

        See `SqlClient.executemany`.
        """
        return self.thread.run(self.asynchronous.executemany(sql, list(many), timeout_s=timeout_s))

    def transaction(
        self, statements: Iterable[Statement], *, row_ids: bool = True, timeout_s: float | None = None
    ) -> SqlOutcome:
        """Do all of some statements, or none; once. See `SqlClient.transaction`."""
        return self.thread.run(self.asynchronous.transaction(list(statements), row_ids=row_ids, timeout_s=timeout_s))

    def begin(self, *, timeout_s: float | None = None) -> BlockingInteractiveTransaction:
        """Begin an interactive transaction; `commit` or `rollback` ends it. `interactive` does both by itself.

        See `SqlClient.begin`.
        """
        return BlockingInteractiveTransaction(
            self.thread, self.thread.run(self.asynchronous.begin(timeout_s=timeout_s))
        )

    @contextlib.contextmanager
    def interactive(self, *, timeout_s: float | None = None) -> Iterator[BlockingInteractiveTransaction]:
        """Run statements one after the other, all or none: committed at the end of the block, dropped if it raises.

        See `SqlClient.interactive`. What it raises while the block runs is told at the end of the block.
        """
        with self.thread.enter(self.asynchronous.interactive(timeout_s=timeout_s)) as entered:
            yield BlockingInteractiveTransaction(self.thread, entered)

    def query(
        self, sql: str, parameters: SqlParameters = (), *, read: Freshness | None = None, timeout_s: float | None = None
    ) -> SqlRows:
        """Return the rows of a statement that only reads; linearizable unless `read` is content with less.

        See `SqlClient.query`.
        """
        return self.thread.run(self.asynchronous.query(sql, parameters, read=read, timeout_s=timeout_s))

    def rows(self, sql: str, parameters: SqlParameters = (), *, timeout_s: float | None = None) -> BlockingSqlRowStream:
        """Return the result of a statement that only reads, however large, to be read in slices; linearizable.

        See `SqlClient.rows`.
        """
        return BlockingSqlRowStream(
            self.thread, self.thread.run(self.asynchronous.rows(sql, parameters, timeout_s=timeout_s))
        )

    def changes(
        self,
        *tables: str,
        begin: FeedBegin | None = None,
        progress_ms: int = PROGRESS_MS,
        patience_s: float | None = None,
        consumer: str = "",
    ) -> Iterator[SqlChange]:
        """Return the changes of tables, for ever: each once, in order, with the row before and after.

        See `SqlClient.changes`.
        """
        return self.thread.iterate(
            self.asynchronous.changes(
                *tables, begin=begin, progress_ms=progress_ms, patience_s=patience_s, consumer=consumer
            )
        )

    def processed(self, consumer: str, revision: int) -> None:
        """Let go of what a consumer has processed: changes up to a revision, which may be trimmed then.

        See `SqlClient.processed`.
        """
        self.thread.run(self.asynchronous.processed(consumer, revision))
