"""Reads of SQL tables: the kernel says when, other connections read.

A query goes to the kernel first, empty: its answer comes when the state is as fresh as the client wants it, and is
confirmed. By then the file has it too, and a reading connection sees that commit or a later one. So reads are as
linearizable as any query of the kernel, run beside each other, and never hold up what is written.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rsm_spark.core.commands import Answer, AnswerStatus, Query, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.errors import NotLeaderError, NotReadyError, RsmError, TooStaleError
from rsm_spark.sql.engine.reader import ColumnsQuery, ReadReply, SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlQuery, decode_query, encode
from rsm_spark.transport.request_admission import Backend

_EMPTY = Query(b"")


class _WaitingRead:
    """A read that has no connection yet."""

    __slots__ = ("future", "owner", "query")

    def __init__(self, query: SqlQuery | ColumnsQuery, owner: str, future: asyncio.Future[ReadReply]) -> None:
        self.query = query
        self.owner = owner
        self.future = future


class ReaderPool:
    """Connections that read, each on a thread; owners in turns, one has at most half of them.

    Args:
        path: Of the file; it is there.
        settings: Limits.
        clock_s: Monotonic seconds.

    """

    def __init__(self, path: Path, settings: SqlSettings, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._idle = [SqlReader(path, settings, clock_s) for _ in range(settings.readers)]
        self._all = list(self._idle)
        self._threads = ThreadPoolExecutor(settings.readers, thread_name_prefix="rsm-sql-reader")
        # In order of turns. Invariant: no line is empty.
        self._waiting: dict[str, deque[_WaitingRead]] = {}
        self._running: dict[str, int] = {}
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        """Reads without a connection."""
        return sum(map(len, self._waiting.values()))

    def read(self, query: SqlQuery | ColumnsQuery, owner: str) -> asyncio.Future[ReadReply]:
        """Return the future of a reply; to cancel it ends the read.

        Raises:
            asyncio.QueueFull: Too many wait.

        """
        line = self._waiting.get(owner, deque())
        count_max = self._settings.waiting_reads_max
        if self.waiting_count >= count_max or len(line) >= max(1, count_max // 2):
            raise asyncio.QueueFull
        future: asyncio.Future[ReadReply] = asyncio.get_running_loop().create_future()
        waiting = _WaitingRead(query, owner, future)
        line.append(waiting)
        self._waiting[owner] = line
        future.add_done_callback(functools.partial(self._on_done, waiting))
        self._start()
        return future

    def _on_done(self, waiting: _WaitingRead, _future: asyncio.Future[ReadReply]) -> None:
        """Leave the line, if it was given up there."""
        line = self._waiting.get(waiting.owner)
        if line is not None and waiting in line:
            line.remove(waiting)
            if not line:
                del self._waiting[waiting.owner]

    def _start(self) -> None:
        """Give idle connections to owners in turns."""
        most = max(1, self._settings.readers // 2)
        for owner in list(self._waiting):
            if not self._idle or self._is_closed:
                return
            if self._running.get(owner, 0) >= most:
                continue
            line = self._waiting.pop(owner)
            waiting = line.popleft()
            if line:
                self._waiting[owner] = line  # Behind the others.
            if not waiting.future.done():
                self._run(waiting, self._idle.pop())

    def _run(self, waiting: _WaitingRead, reader: SqlReader) -> None:
        loop = asyncio.get_running_loop()
        self._running[waiting.owner] = self._running.get(waiting.owner, 0) + 1
        number = reader.begin()
        waiting.future.add_done_callback(lambda future: reader.interrupt(number) if future.cancelled() else None)
        ended = loop.run_in_executor(self._threads, reader.read, waiting.query)
        ended.add_done_callback(functools.partial(self._on_end, waiting, reader))

    def _on_end(self, waiting: _WaitingRead, reader: SqlReader, ended: asyncio.Future[ReadReply]) -> None:
        self._idle.append(reader)
        left = self._running[waiting.owner] - 1
        if left:
            self._running[waiting.owner] = left
        else:
            del self._running[waiting.owner]
        error = None if ended.cancelled() else ended.exception()
        if not waiting.future.done() and not ended.cancelled():
            if error is None:
                waiting.future.set_result(ended.result())
            else:
                waiting.future.set_exception(error)
        self._start()

    def close(self) -> None:
        """End all reads and close the connections."""
        self._is_closed = True
        for reader in self._all:
            reader.interrupt(reader.number)
        for line in self._waiting.values():
            for waiting in line:
                waiting.future.cancel()
        self._waiting.clear()
        self._threads.shutdown(wait=True)
        for reader in self._all:
            reader.close()


class SqlReads:
    """Takes the clients' requests for a replica, and has its queries read.

    Args:
        replica: Of the tables.
        pool: Reads them.

    """

    def __init__(self, replica: Backend, pool: ReaderPool) -> None:
        self._replica = replica
        self._pool = pool
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def leader_address(self) -> str | None:
        """Advertised address of the leader, as far as known."""
        return self._replica.leader_address

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE, owner: str = ""
    ) -> asyncio.Future[list[Answer]]:
        """Take requests and return one future of their answers, in order; see `Replica.submit`."""
        if not any(type(request) is Query for request in requests):
            return self._replica.submit(requests, freshness=freshness, owner=owner)
        asked = [_EMPTY if type(request) is Query else request for request in requests]
        confirmed = self._replica.submit(asked, freshness=freshness, owner=owner)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[list[Answer]] = loop.create_future()
        task = loop.create_task(self._read_all(requests, confirmed, owner, answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answered.add_done_callback(lambda future: task.cancel() if future.cancelled() else None)
        return answered

    async def rows(self, query: SqlQuery, freshness: Freshness, owner: str) -> ReadReply:
        """Answer a query of this process itself; to cancel it ends the read.

        Args:
            query: The query.
            freshness: How fresh the state must be.
            owner: Who takes turns with others.

        Raises:
            NotLeaderError: It is linearizable, and another replica leads.
            TooStaleError: The state is not fresh enough.
            NotReadyError: There is no whole state now.
            QueueFull: Too many wait.
            RsmError: There is no answer.

        """
        (answer,) = await self._replica.submit([_EMPTY], freshness=freshness, owner=owner)
        match answer.status:
            case AnswerStatus.OK:
                pass
            case AnswerStatus.NOT_LEADER | AnswerStatus.OUTCOME_UNKNOWN:
                raise NotLeaderError("another replica leads", leader=self.leader_address)
            case AnswerStatus.TOO_STALE:
                lag = f"{answer.payload.decode()} ms old" if answer.payload else "of unknown age"
                raise TooStaleError(f"the state of this replica is not fresh enough: it is {lag}")
            case AnswerStatus.OVERLOADED:
                raise asyncio.QueueFull
            case AnswerStatus.NOT_READY:
                raise NotReadyError("this replica has no whole state now")
            case status:
                raise RsmError(f"the read was refused: {status.name} {answer.payload.decode(errors='replace')}")
        found = await self._pool.read(query, owner)
        if found.revision < answer.revision:
            raise NotReadyError("another state took the place of the one that was to be read")
        return found

    async def _read_all(
        self,
        requests: Sequence[Request],
        confirmed: asyncio.Future[list[Answer]],
        owner: str,
        answered: asyncio.Future[list[Answer]],
    ) -> None:
        try:
            answers = await confirmed
            places = [place for place, request in enumerate(requests) if type(request) is Query]
            wanted = [place for place in places if answers[place].status is AnswerStatus.OK]
            read = await asyncio.gather(
                *(self._read(requests[place], answers[place].revision, owner) for place in wanted)
            )
            for place, answer in zip(wanted, read, strict=True):
                answers[place] = answer
        except Exception as error:  # noqa: BLE001 - whoever waits for the answers hears it
            if not answered.done():
                answered.set_exception(error)
        else:
            if not answered.done():
                answered.set_result(answers)

    async def _read(self, request: Request, revision: int, owner: str) -> Answer:
        assert type(request) is Query
        try:
            query = decode_query(request.payload)
            found = await self._pool.read(query, owner)
        except RsmError as error:
            return Answer(AnswerStatus.REFUSED, revision, str(error).encode())
        except asyncio.QueueFull:
            return Answer(AnswerStatus.OVERLOADED, revision, b"")
        if found.revision < revision:
            return Answer(AnswerStatus.NOT_READY, found.revision, b"")  # Another state took its place meanwhile.
        return Answer(AnswerStatus.OK, found.revision, encode(found.reply))
