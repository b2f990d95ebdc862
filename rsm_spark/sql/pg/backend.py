"""SQL tables behind PostgreSQL's protocol, on any replica: writes go to the leader, reads where their level lets them.

A linearizable read is answered here if this replica leads, else by the leader; one that is content with less is
answered here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rsm_spark.client.leader_links import LeaderLinks
from rsm_spark.core.freshness import LINEARIZABLE, Freshness, ReadKind, at_least
from rsm_spark.errors import InvalidCommandError, NotLeaderError
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.sql.bounded_service import BoundedService
from rsm_spark.sql.client.row_stream import SqlRowStream
from rsm_spark.sql.engine.reader import ColumnsQuery
from rsm_spark.sql.messages import SqlQuery, SqlReply, SqlResult, SqlSlice, SqlTransaction, decode_reply, encode
from rsm_spark.sql.pg.catalog import PgCatalog
from rsm_spark.sql.pg.catalog_functions import CatalogAsker
from rsm_spark.sql.pg.catalog_schema import SCHEMA_SQL, TABLES_SQL, shown_rows
from rsm_spark.sql.pg.dialect import SpelledStatement
from rsm_spark.sql.pg.faults import OVERLOADED, TOO_LARGE, PgFault, fault_of
from rsm_spark.sql.pg.lexing import LexedStatement, statements_of
from rsm_spark.sql.pg.rows_left import LinkedRows, LocalRows
from rsm_spark.sql.pg.statements import PgStatement, statement_of
from rsm_spark.sql.pg.tasks import DescribeRows, PgCaller, ReadRows, RowsRead, RunWrites, WritesDone
from rsm_spark.sql.pg.transactions import PgTransaction, PgTransactions
from rsm_spark.sql.reader_pool import ReaderPool
from rsm_spark.sql.reads import SqlReads
from rsm_spark.sql.table_rights import within
from rsm_spark.transport.caller_turns import CallerTurns

TEXT_BYTES_MAX: Final = 256 * 1024
TRANSLATED_CHARS_MAX: Final = 4_096
"""A text of which sqlglot would have to read more letters goes to SQLite as it came, but for its parameters: it takes
20 µs for each. Of many rows of values it reads one."""
_AT_ONCE_CHARS_MAX: Final = 1_000
"""A text of so many letters is cut into statements where it came, if it needs no more."""
_KNOWN_MAX: Final = 1_000
_SCHEMA_ROWS_MAX: Final = 50_000
_ANY_QUERY: Final = SqlQuery("SELECT 1")


class PgBackend:
    """See the module.

    Args:
        replica: Of the tables.
        reads: Of the replica.
        pool: Its connections that read.
        links: To the leader; closed with it.
        log: Name of the log.
        transactions_max: That the leader lets one caller have open.

    Attributes:
        log: The same.

    """

    def __init__(
        self,
        replica: Replica,
        reads: SqlReads,
        pool: ReaderPool,
        links: LeaderLinks,
        log: str,
        transactions_max: int,
    ) -> None:
        self.log = log
        self._replica = replica
        self._reads = reads
        self._pool = pool
        self._links = links
        self._transactions = PgTransactions(reads, links, transactions_max)
        self._turns = CallerTurns()
        self._catalog = PgCatalog(log)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rsm-pg-texts")
        # The one that was used longest ago first; all short.
        self._known: OrderedDict[str, tuple[PgStatement, ...]] = OrderedDict()

    async def stop(self) -> None:
        """Give up what is under way."""
        await self._links.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # ---- texts

    async def translate(self, sql: str, owner: str) -> tuple[PgStatement, ...]:
        """Return the statements of a text, as SQLite gets them.

        Args:
            sql: The text.
            owner: Whose it is: owners take turns.

        Raises:
            PgFault: It cannot be cut into statements.

        """
        known = self._known.get(sql)
        if known is not None:
            self._known.move_to_end(sql)
            return known
        if len(sql) > TEXT_BYTES_MAX:
            raise PgFault(TOO_LARGE, f"a text has at most {TEXT_BYTES_MAX} letters: send its statements one by one")
        if len(sql) <= _AT_ONCE_CHARS_MAX:
            lexed = statements_of(sql)
            if not any(one.is_foreign or one.is_of_system for one in lexed):
                return self._learn(sql, tuple(statement_of(one, one.sql) for one in lexed))
        async with self._turns.of(owner):
            found = await asyncio.get_running_loop().run_in_executor(self._thread, _translated, sql)
        return self._learn(sql, found)

    def _learn(self, sql: str, found: tuple[PgStatement, ...]) -> tuple[PgStatement, ...]:
        if len(sql) <= TRANSLATED_CHARS_MAX:
            self._known[sql] = found
            if len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        return found

    # ---- rows

    async def read(self, task: ReadRows, caller: PgCaller) -> RowsRead:
        """Return the rows of a query, or the first of them.

        Raises:
            PgFault: It failed.
            RsmError: It cannot be answered now.

        """
        if task.is_system:
            return await self._of_system(task, caller)
        owner, rights = caller
        query = SqlQuery(task.sql, task.values)
        level = task.level
        if level.kind is not ReadKind.LINEARIZABLE or self._replica.role is ReplicaRole.LEADER:
            try:
                found = await self._reads.rows(query, level, owner, is_shown_all=task.is_shown_all, rights=rights)
            except NotLeaderError:
                pass  # Another one leads since then.
            except asyncio.QueueFull:
                raise PgFault(OVERLOADED, "too many reads wait: try again") from None
            else:
                first = _checked_slice(found.slice)
                left = None if first.is_last else LocalRows(self._reads, found.name, caller)
                return RowsRead(SqlResult(first.columns, first.rows), found.revision, left)
        async with contextlib.AsyncExitStack() as stack:
            client = BoundedService(await stack.enter_async_context(self._links.of(owner)), rights)
            stream = SqlRowStream(client)
            try:
                await stream.open(task.sql, task.values)
            except InvalidCommandError:
                # An older leader answers whole results alone.
                reply = await client.query(encode(query))
                return RowsRead(_first(decode_reply(reply.payload)), reply.revision)
            rows = await stream.next_rows()
            linked = None if stream.is_last else LinkedRows(stream, stack.pop_all())
            return RowsRead(SqlResult(stream.columns, rows), stream.revision, linked)

    async def _of_system(self, task: ReadRows, caller: PgCaller) -> RowsRead:
        schema, revision = await self._schema(task.level, caller)
        asker = CatalogAsker(task.user, dict(task.settings), caller.rights, may_write=task.may_write)
        async with self._turns.of(caller.turns_as):
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(
                self._thread, self._catalog.answer, task.sql, task.values, schema, asker
            )
        return RowsRead(result, revision)

    async def _schema(self, level: Freshness, caller: PgCaller) -> tuple[list[tuple[Any, ...]], int]:
        """Return the rows that tell of all tables to which a caller has a right, and the revision that they show."""
        try:
            rows, revision = await self._all_rows(SCHEMA_SQL, level, caller.turns_as)
        except PgFault:
            rows, revision = await self._all_rows(TABLES_SQL, level, caller.turns_as)
        return rows if caller.rights is None else shown_rows(rows, caller.rights.may_see), revision

    async def _all_rows(self, sql: str, level: Freshness, owner: str) -> tuple[list[tuple[Any, ...]], int]:
        found = await self.read(ReadRows(sql, (), level), PgCaller(owner, None))
        rows, left = list(found.result.rows), found.left
        try:
            while left is not None:
                more = await left.next()
                rows += more.rows
                if len(rows) > _SCHEMA_ROWS_MAX:
                    raise PgFault(TOO_LARGE, f"the tables have more than {_SCHEMA_ROWS_MAX} columns and indexes")
                if more.is_last:
                    break
        finally:
            if left is not None:
                await left.close()
        return rows, found.revision

    async def describe(self, task: DescribeRows, caller: PgCaller) -> tuple[tuple[str, str], ...]:
        """Return name and declared type of the columns of a statement.

        Raises:
            PgFault: It is wrong.
            RsmError: It cannot be answered now.

        """
        owner, rights = caller
        if task.is_system:
            schema, _ = await self._schema(LINEARIZABLE, caller)
            async with self._turns.of(owner):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, self._catalog.columns, task.sql, schema)
        try:
            found = await self._pool.read(ColumnsQuery(task.sql), owner, rights=rights)
            if found.reply.fault is not None and self._replica.role is not ReplicaRole.LEADER:
                # What it names may have been made just now.
                async with self._links.of(owner) as client:
                    newest = await client.query(encode(_ANY_QUERY))
                await self._reads.rows(_ANY_QUERY, at_least(newest.revision), owner)  # It is one row.
                found = await self._pool.read(ColumnsQuery(task.sql), owner, rights=rights)
        except asyncio.QueueFull:
            raise PgFault(OVERLOADED, "too many reads wait: try again") from None
        return _first(found.reply).columns

    async def begin(self, caller: PgCaller) -> PgTransaction:
        """Begin an interactive transaction at the leader.

        Raises:
            PgFault: The owner has too many open.
            SqlError: Too many are open.
            RsmError: There is no answer.

        """
        return await self._transactions.begin(caller, is_leader=self._replica.role is ReplicaRole.LEADER)

    async def write(self, task: RunWrites, caller: PgCaller) -> WritesDone:
        """Have the leader do statements, all or none, once.

        Raises:
            PgFault: One failed.
            RsmError: There is no answer.

        """
        # Nothing of PostgreSQL's protocol tells a row id.
        command = encode(SqlTransaction(task.statements, is_brief=True, wants_row_ids=False))
        with self._links.of(caller.turns_as) as link:
            reply = await link.execute(within(caller.rights, command))
        return WritesDone(_checked(decode_reply(reply.payload)).results, reply.revision)


def _translated(sql: str) -> tuple[PgStatement, ...]:
    """Return the statements of a text; on the thread for that."""
    found = statements_of(sql)
    spellings = [SpelledStatement(one) for one in found]
    if sum(one.chars for one in spellings) > TRANSLATED_CHARS_MAX:
        return tuple(statement_of(one, one.sql) for one in found)
    return tuple(_respelled(one, spelling.sql()) for one, spelling in zip(found, spellings, strict=True))


def _respelled(lexed: LexedStatement, sql: str) -> PgStatement:
    if lexed.is_of_system:  # Some of its functions say the same always, and are gone by now.
        lexed = lexed._replace(is_of_system=any(one.is_of_system for one in statements_of(sql)))
    return statement_of(lexed, sql)


def _checked_slice(found: SqlSlice) -> SqlSlice:
    if found.fault is not None:
        raise fault_of(found.fault)
    return found


def _checked(reply: SqlReply) -> SqlReply:
    if reply.fault is not None:
        raise fault_of(reply.fault)
    return reply


def _first(reply: SqlReply) -> SqlResult:
    return _checked(reply).results[0]
