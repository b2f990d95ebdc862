"""SQL tables in the process of one of their replicas: read from its own file, at SQLite's speed.

    async with await SqlReplica.open("shop", Path("/var/lib/shop-a")) as shop:
        await shop.client.execute("INSERT INTO item (name) VALUES (?)", ("pen",))     # through the leader
        (await shop.query("SELECT name FROM item")).rows                              # what was acknowledged before
        shop.read("SELECT name FROM item WHERE id = ?", (1,)).rows                    # what this replica has now

`read` blocks, for as long as SQLite takes: any thread may call it, each has a connection of its own. `query` first has
the replica be as fresh as is asked for, and then reads on another thread. Neither holds up what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from ledger.client.client import LedgerClient
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.core.freshness import INDEXED, Freshness, ReadKind
from rsm_spark.errors import NotLeaderError, NotReadyError, RsmError
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.sql.client.client import SqlClient, SqlRows
from rsm_spark.sql.client.statements import parameters_of
from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.errors import SqlError
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlParameters, SqlQuery
from rsm_spark.sql.service import SqlService
from rsm_spark.sql.system_tables import SystemAsker, SystemRows

_RETRY_S: Final = 0.05
_PROGRAM: Final = SystemAsker("", sees_all=True)
"""The program is the replica: nothing is kept from it."""


class _OwnReader(NamedTuple):
    """Connection of one thread; whoever closes it waits for what it reads."""

    reader: SqlReader
    lock: threading.Lock


class SqlReplica:
    """See the module; made by `open`.

    Args:
        service: A replica that serves.
        client: Of the same log.
        settings: Limits of reads.

    Attributes:
        service: The same.
        client: Writes, transactions, and reads wherever they are answered; closed with it.

    """

    def __init__(self, service: SqlService, client: SqlClient, settings: SqlSettings) -> None:
        self.service = service
        self.client = client
        self._settings = settings
        self._own = threading.local()
        self._readers: list[_OwnReader] = []
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(settings.readers, thread_name_prefix="rsm-sql-embedded")
        self._is_closed = False
        self._held = contextlib.AsyncExitStack()

    @classmethod
    async def open(
        cls,
        log: str,
        data_dir: Path,
        metadata_uri: str | None = None,
        *,
        settings: StoreSettings | None = None,
        sql: SqlSettings | None = None,
    ) -> Self:
        """Start a replica of a log's tables in this process, and return it.

        Args:
            log: Name of the log.
            data_dir: The replica's own folder.
            metadata_uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
            settings: Of the replica and its ports; None = the defaults. Its log and folder are those given here.
            sql: Limits of the tables.

        Raises:
            RsmError: The state cannot be loaded, or a port is taken.
            LedgerError: Metadata store or bookies cannot be asked.

        """
        sql = sql or SqlSettings()
        settings = settings or StoreSettings(log=log, data_dir=data_dir)
        async with contextlib.AsyncExitStack() as held:
            ledgers = await held.enter_async_context(await LedgerClient.connect(metadata_uri))
            service = await held.enter_async_context(SqlService(ledgers, settings, sql))
            client = await SqlClient.connect(
                log, metadata_uri, security=settings.security, rsm_root=settings.replica.rsm_root
            )
            await held.enter_async_context(client)
            made = cls(service, client, sql)
            made._held = held.pop_all()
            return made
        raise AssertionError

    def read(self, sql: str, parameters: SqlParameters = ()) -> SqlRows:
        """Return the rows of a statement that only reads, as of the last commit of this replica; blocks.

        System tables it has not: to make them others are asked, which takes the event loop. `query` has them.

        Raises:
            SqlError: It failed, takes too long, or has too many rows.
            RsmError: The file failed, or this was closed.

        """
        return self._read(sql, parameters, None)

    def _read(self, sql: str, parameters: SqlParameters, system: SystemRows | None) -> SqlRows:
        own: _OwnReader | None = getattr(self._own, "reader", None)
        if own is None:
            own = self._own.reader = self._new_reader()
        with own.lock:
            if self._is_closed:
                raise RsmError("the tables are closed")
            own.reader.begin()
            found = own.reader.read(SqlQuery(sql, parameters_of(parameters)), system)
        if found.reply.fault is not None:
            raise SqlError.of(found.reply.fault)
        (result,) = found.reply.results
        return SqlRows(result.columns, result.rows, found.revision)

    def _new_reader(self) -> _OwnReader:
        with self._lock:
            if self._is_closed:
                raise RsmError("the tables are closed")
            made = SqlReader(self.service.machine.path, self._settings, time.monotonic)
            own = _OwnReader(made, threading.Lock())
            self._readers.append(own)
        return own

    async def query(
        self, sql: str, parameters: SqlParameters = (), *, read: Freshness = INDEXED, timeout_s: float = TIMEOUT_S
    ) -> SqlRows:
        """Return the rows of a statement that only reads, from this replica's file; system tables are there too.

        Args:
            sql: Of the statement.
            parameters: Values of ``?`` in order, or of ``:name`` by name.
            read: How fresh they must be. `INDEXED`: all that was acknowledged before, on any replica.
            timeout_s: While nobody leads, or this replica does not know the leader yet, it is asked again for so long.

        Raises:
            SqlError: It failed, takes too long, or has too many rows.
            TooStaleError, NotLeaderError, NotReadyError: This replica is not so fresh now.
            RsmError: The metadata store cannot be asked, for a system table.

        """
        revision = await self._confirmed(read, asyncio.get_running_loop().time() + timeout_s)
        system = await self.service.reads.system_rows(sql, _PROGRAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._read, sql, parameters, system)
        if found.revision < revision:
            raise NotReadyError("another state took the place of the one that was to be read")
        return found

    async def _confirmed(self, read: Freshness, end_s: float) -> int:
        while True:
            if self._is_closed:
                raise RsmError("the tables are closed")
            try:
                return await self.service.reads.confirmed(read, "")
            except (NotLeaderError, NotReadyError):
                # Of any other level the answer would be the same.
                if read.kind is not ReadKind.INDEXED or asyncio.get_running_loop().time() >= end_s:
                    raise
            await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        """Read no more, disconnect, and stop the replica; it does nothing the second time."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed:
            return
        try:
            await asyncio.to_thread(self._end_reads)
        finally:
            await self._held.aclose()

    def _end_reads(self) -> None:
        for reader, _ in self._readers:
            reader.interrupt(reader.number)
        self._threads.shutdown(cancel_futures=True)
        for reader, lock in self._readers:
            with lock:
                reader.close()

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
