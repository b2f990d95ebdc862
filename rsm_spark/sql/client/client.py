"""The asyncio client of replicated SQL tables.

    from rsm_spark.sql import SqlClient

    async with await SqlClient.connect("shop") as shop:
        await shop.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, stock INTEGER)")
        added = await shop.execute("INSERT INTO item (name, stock) VALUES (?, ?)", ("pen", 5))
        print(added.last_rowid)
        found = await shop.query("SELECT name, stock FROM item WHERE stock > :least", {"least": 0})
        for name, stock in found.rows:
            print(name, stock)
        await shop.transaction([                        # all of it, or nothing
            ("UPDATE item SET stock = stock - 1 WHERE id = ? AND stock > 0", (1,), 1),  # exactly one row, else nothing
            ("INSERT INTO sale (item) VALUES (?)", (1,)),
        ])

        async with shop.interactive() as sale:           # the same, where what is written depends on what was read
            ((stock,),) = (await sale.execute("SELECT stock FROM item WHERE id = ?", (1,))).rows
            await sale.execute("UPDATE item SET stock = ? WHERE id = ?", (stock - 1, 1))

The client finds the leader through ZooKeeper, follows it through failovers and sends a transaction again, with the same
number in its session, until it has the answer: it is done once. Reads are linearizable, unless `read=` asks for less. A
call ends after `timeout_s` at the latest, then with one of

    SqlError              the statement failed; nothing was done
    NoLeaderError         certainly not done
    OutcomeUnknownError   perhaps done: read before you write again
    OverloadedError       not done: the queues are full
    InvalidCommandError   what it changes does not fit one entry of the log (4 MiB)
    TooStaleError, NotReadyError   the replica that was asked is not fresh enough for this read
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import NamedTuple, Self, TypeVar

from ledger.errors import LedgerError, UsageError
from rsm_spark.client.consumers import ClientConsumers
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.client.replica_connection import ReadFrom
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.freshness import Freshness
from rsm_spark.errors import RsmError
from rsm_spark.sql.client.changes import PROGRESS_MS, FeedBegin, SqlChangeStream, begin_of
from rsm_spark.sql.client.row_stream import SqlRowStream, open_rows
from rsm_spark.sql.client.statements import Statement, parameters_of, statement_of
from rsm_spark.sql.client.transaction import InteractiveTransaction, pause_s
from rsm_spark.sql.errors import SqlError, SqlRetryableError
from rsm_spark.sql.feed.events import SqlFeedRequest
from rsm_spark.sql.messages import (
    SqlParameters,
    SqlQuery,
    SqlReply,
    SqlResult,
    SqlTransaction,
    SqlValue,
    decode_reply,
    encode,
)
from rsm_spark.sql.records import MACHINE
from rsm_spark.transport.security import Security

T = TypeVar("T")


class SqlRows(NamedTuple):
    """Rows of a query.

    Attributes:
        columns: Name and declared type of each; "" = it has none.
        rows: In order.
        revision: Of the state that they show.

    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[SqlValue, ...], ...]
    revision: int


class SqlOutcome(NamedTuple):
    """Outcome of a transaction.

    Attributes:
        results: Of each statement.
        revision: Of the state after it.

    """

    results: tuple[SqlResult, ...]
    revision: int


class SqlClient:
    """A client of the tables of one log; see the module. For one event loop; any number of tasks may use it at once.

    Args:
        service: Its connections; closed with it.
        log: Name of the log.
        consumers: Of its feeds; None = the metadata store is not known.

    """

    def __init__(self, service: ServiceClient, log: str, consumers: ClientConsumers | None = None) -> None:
        self._service = service
        self._log = log
        self._consumers = consumers

    @classmethod
    async def connect(
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

        Raises:
            UsageError: A file of `security` cannot be used.
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        service = await ServiceClient.connect(
            log,
            metadata_uri,
            replica=replica,
            read_from=read_from,
            read=read,
            rsm_root=rsm_root,
            timeout_s=timeout_s,
            security=security,
            machine=MACHINE,
        )
        store = service.metadata
        consumers = None if store is None else ClientConsumers(store, log, rsm_root, kind="feed of changes")
        return cls(service, log, consumers)

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    def keep_session(self, kept: KeptSession) -> None:
        """Send transactions in a session that was kept, and keep it again at the end; before the first call."""
        self._service.keep_session(kept)

    async def close(self) -> None:
        """Give up what is still waiting, and disconnect."""
        if self._consumers is not None:
            # The log stays held as it is: a little more than is needed.
            with contextlib.suppress(LedgerError, RsmError):
                await self._consumers.flush()
        await self._service.close()

    async def execute(
        self, sql: str, parameters: SqlParameters = (), *, expected: int | None = None, timeout_s: float | None = None
    ) -> SqlResult:
        """Do one statement, once; return its result.

        Args:
            sql: Of it.
            parameters: Values of ``?`` in order, or of ``:name`` by name.
            expected: Rows that it must change or return, else nothing is done.
            timeout_s: Time limit; None = the client's.

        Raises:
            SqlError: It failed.

        """
        outcome = await self.transaction([(sql, parameters, expected)], timeout_s=timeout_s)
        return outcome.results[0]

    async def executemany(self, sql: str, many: Iterable[SqlParameters], *, timeout_s: float | None = None) -> int:
        """Do a statement for each of many parameters, as one transaction; return how many rows it changed.

        Raises:
            SqlError: One failed: none is done.

        """
        outcome = await self.transaction([(sql, one) for one in many], row_ids=False, timeout_s=timeout_s)
        return sum(result.row_count for result in outcome.results)

    async def transaction(
        self, statements: Iterable[Statement], *, row_ids: bool = True, timeout_s: float | None = None
    ) -> SqlOutcome:
        """Do all of some statements, or none; once.

        The rows that they return are at most 4 KiB in all.

        Args:
            statements: In order.
            row_ids: Tell the row id of each. Ids that follow each other, as SQLite gives them, take no room in the
                reply; some thousand that do not are more than it holds. False = only the last statement has its own.
            timeout_s: Time limit; None = the client's.

        Raises:
            SqlError: One failed: none is done; its attribute `statement` says which.

        """
        command = SqlTransaction(tuple(map(statement_of, statements)), is_brief=True, wants_row_ids=row_ids)
        payload = encode(command)
        reply = await self._service.execute(payload, timeout_s=timeout_s)
        return SqlOutcome(_results(decode_reply(reply.payload)), reply.revision)

    async def begin(self, *, timeout_s: float | None = None) -> InteractiveTransaction:
        """Begin an interactive transaction; `commit` or `rollback` ends it. `interactive` does both by itself.

        Args:
            timeout_s: Time limit of each of its calls; None = the client's.

        Raises:
            SqlError: This client, or all together, have too many open.

        """
        transaction = InteractiveTransaction(self._service, timeout_s)
        await transaction.begin()
        return transaction

    @contextlib.asynccontextmanager
    async def interactive(self, *, timeout_s: float | None = None) -> AsyncIterator[InteractiveTransaction]:
        """Run statements one after the other, all or none: committed at the end of the block, dropped if it raises.

        Args:
            timeout_s: Time limit of each of its calls; None = the client's.

        Raises:
            SqlConflictError: Another transaction has changed what it read or wrote: nothing was done, begin again.
            SqlAbortedError: It was open for too long, or its leader is gone: nothing was done, begin again.

        """
        transaction = await self.begin(timeout_s=timeout_s)
        try:
            yield transaction
        except BaseException:
            await asyncio.shield(transaction.rollback())
            raise
        if not transaction.is_over:
            await transaction.commit()

    async def retry(
        self,
        work: Callable[[InteractiveTransaction], Awaitable[T]],
        *,
        attempts: int = 10,
        timeout_s: float | None = None,
    ) -> T:
        """Run a function in an interactive transaction, from its beginning again as long as others are first.

        Args:
            work: Gets the transaction; called once for each attempt.
            attempts: At most so many.
            timeout_s: Time limit of each call of the transaction; None = the client's.

        Returns:
            What the function returned in the attempt that was committed.

        Raises:
            SqlRetryableError: The last attempt failed too.

        """
        for attempt in range(1, attempts + 1):
            try:
                async with self.interactive(timeout_s=timeout_s) as transaction:
                    return await work(transaction)  # Once it is committed.
            except SqlRetryableError:
                if attempt == attempts:
                    raise
                await asyncio.sleep(pause_s(attempt))
        raise UsageError(f"attempts {attempts}: expected at least 1")

    async def query(
        self,
        sql: str,
        parameters: SqlParameters = (),
        *,
        read: Freshness | None = None,
        timeout_s: float | None = None,
    ) -> SqlRows:
        """Return the rows of a statement that only reads; linearizable unless `read` is content with less.

        Raises:
            SqlError: It failed, takes too long, or has too many rows: `rows` reads those.

        """
        payload = encode(SqlQuery(sql, parameters_of(parameters)))
        reply = await self._service.query(payload, read=read, timeout_s=timeout_s)
        (result,) = _results(decode_reply(reply.payload))
        return SqlRows(result.columns, result.rows, reply.revision)

    async def rows(self, sql: str, parameters: SqlParameters = (), *, timeout_s: float | None = None) -> SqlRowStream:
        """Return the result of a statement that only reads, however large, to be read in slices; linearizable.

        All its rows show the commit at which it began.

        Args:
            sql: Of the statement.
            parameters: Values of ``?`` in order, or of ``:name`` by name.
            timeout_s: Time limit of each of its calls; None = the client's.

        Raises:
            SqlError: It failed, or too many are open.

        """
        return await open_rows(self._service, sql, parameters_of(parameters), timeout_s)

    def changes(
        self,
        *tables: str,
        begin: FeedBegin | None = None,
        progress_ms: int = PROGRESS_MS,
        patience_s: float | None = None,
        consumer: str = "",
    ) -> SqlChangeStream:
        """Return the changes of tables, for ever: each once, in order, with the row before and after.

            async for change in shop.changes("item"):
                print(change.revision, change.kind, change.key, change.old, change.new)

        Args:
            *tables: Names, as the tables are called when they change; none = all. They need not exist yet.
            begin: First revision wanted, inclusive, as long as the log holds it; "now" = what comes; "beginning" = the
                first revision that the log holds. None = where the consumer stands, else "now".
            progress_ms: How often `SqlChangeStream.revision` moves on though nothing in the tables changes.
            patience_s: Give up when no replica has said anything for so long; None = never.
            consumer: Name under which the log is held for this feed, until `processed` lets go of it. "" = nothing is.

        """
        register = None
        if consumer:
            consumers = self._known_consumers()

            async def register(revision: int | None) -> int | None:
                return await consumers.begin(consumer, revision)

        request = SqlFeedRequest(self._log, begin_of("now" if begin is None else begin), tables, progress_ms)
        return SqlChangeStream(
            self._service.watched_replicas, request, patience_s, register, is_where_it_stands=begin is None
        )

    async def processed(self, consumer: str, revision: int) -> None:
        """Let go of what a consumer has processed: changes up to a revision, which may be trimmed then.

        It is written down at most once a second, and when the client is closed. After a restart `changes` with the same
        name goes on behind what was written down: it may give changes again that have been processed.

        Args:
            consumer: Name of the consumer, as in `changes`.
            revision: Of the last change that need not be given again.

        Raises:
            ConsumerError: No feed of this client has that name; or another reader has it now, or an operator has
                removed it: the log is not held for it.
            MetadataError: The metadata store cannot be asked; the next call tries again.

        """
        await self._known_consumers().processed(consumer, revision)

    def _known_consumers(self) -> ClientConsumers:
        if self._consumers is None:
            raise UsageError("this client knows one replica alone: connect it without `replica` to hold the log")
        return self._consumers


def _results(reply: SqlReply) -> tuple[SqlResult, ...]:
    if reply.fault is not None:
        raise SqlError.of(reply.fault)
    return reply.results
