"""Reads of SQL tables: the kernel says when, other connections read.

A query goes to the kernel first, empty: its answer comes when the state is as fresh as the client wants it, and is
confirmed. By then the file has it too, and a reading connection sees that commit or a later one. So reads are as
linearizable as any query of the kernel, run beside each other, and never hold up what is written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rsm_spark.core.commands import Answer, AnswerStatus, Query, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.errors import NotLeaderError, NotReadyError, RsmError, TooStaleError
from rsm_spark.sql.engine.reader import ColumnsQuery, ReadReply, SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import (
    SqlEnd,
    SqlQuery,
    SqlStep,
    decode_query,
    decode_transaction_request,
    encode,
    is_of_transaction,
)
from rsm_spark.sql.owner_turns import OwnerTurns
from rsm_spark.sql.transactions import TransactionDesk
from rsm_spark.transport.request_admission import Backend

_EMPTY = Query(b"")
_NONE = Answer(AnswerStatus.REFUSED, 0, b"")


class ReaderPool:
    """Connections that read, each on a thread; owners in turns, one has at most half of them.

    Args:
        path: Of the file; it is there.
        settings: Limits.
        clock_s: Monotonic seconds.

    """

    def __init__(self, path: Path, settings: SqlSettings, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._idle = [SqlReader(path, settings, clock_s) for _ in range(settings.readers)]
        self._all = list(self._idle)
        self._threads: OwnerTurns[ReadReply] = OwnerTurns(
            settings.readers, settings.waiting_reads_max, "rsm-sql-reader"
        )

    @property
    def waiting_count(self) -> int:
        """Reads without a connection."""
        return self._threads.waiting_count

    def read(self, query: SqlQuery | ColumnsQuery, owner: str) -> asyncio.Future[ReadReply]:
        """Return the future of a reply; to cancel it ends the read.

        Raises:
            asyncio.QueueFull: Too many wait.

        """
        running: list[tuple[SqlReader, int]] = []
        loop = asyncio.get_running_loop()

        def _begin() -> Callable[[], ReadReply]:
            reader = self._idle.pop()
            running.append((reader, reader.begin()))

            def _read() -> ReadReply:
                try:
                    return reader.read(query)
                finally:
                    loop.call_soon_threadsafe(self._idle.append, reader)

            return _read

        def _on_done(future: asyncio.Future[ReadReply]) -> None:
            if future.cancelled() and running:
                reader, number = running[0]
                reader.interrupt(number)

        future = self._threads.run(owner, _begin)
        future.add_done_callback(_on_done)
        return future

    def close(self) -> None:
        """End all reads and close the connections."""
        for reader in self._all:
            reader.interrupt(reader.number)
        self._threads.close()
        for reader in self._all:
            reader.close()


class SqlReads:
    """Takes the clients' requests for a replica, and has its queries read.

    Args:
        replica: Of the tables.
        pool: Reads them.
        desk: Has its interactive transactions; None = it takes none.

    """

    def __init__(self, replica: Backend, pool: ReaderPool, desk: TransactionDesk | None = None) -> None:
        self._replica = replica
        self._pool = pool
        self._desk = desk
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
        places = [place for place, request in enumerate(requests) if not _is_of_transaction(request)]
        asked = [_EMPTY if type(requests[place]) is Query else requests[place] for place in places]
        confirmed = self._replica.submit(asked, freshness=freshness, owner=owner) if asked else None
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[list[Answer]] = loop.create_future()
        task = loop.create_task(self._answer_all(requests, places, confirmed, owner, answered))
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

    async def _answer_all(
        self,
        requests: Sequence[Request],
        places: Sequence[int],
        confirmed: asyncio.Future[list[Answer]] | None,
        owner: str,
        answered: asyncio.Future[list[Answer]],
    ) -> None:
        answers: list[Answer] = [_NONE] * len(requests)
        steps = [place for place in range(len(requests)) if _is_of_transaction(requests[place])]

        async def _step(place: int) -> None:
            answers[place] = await self._of_transaction(requests[place], owner)

        async def _read() -> None:
            found = await confirmed if confirmed is not None else []
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
            wanted = [
                place for place in places if type(requests[place]) is Query and answers[place].status is AnswerStatus.OK
            ]
            read = await asyncio.gather(
                *(self._read(requests[place], answers[place].revision, owner) for place in wanted)
            )
            for place, answer in zip(wanted, read, strict=True):
                answers[place] = answer

        try:
            await asyncio.gather(_read(), *map(_step, steps))
        except Exception as error:  # noqa: BLE001 - whoever waits for the answers hears it
            if not answered.done():
                answered.set_exception(error)
        else:
            if not answered.done():
                answered.set_result(answers)

    async def _of_transaction(self, request: Request, owner: str) -> Answer:
        assert type(request) is Query
        try:
            wanted = decode_transaction_request(request.payload)
            if self._desk is None:
                return Answer(AnswerStatus.REFUSED, 0, b"there are no interactive transactions here")
            if isinstance(wanted, SqlStep):
                return Answer(AnswerStatus.OK, 0, encode(await self._desk.step(wanted, owner)))
            if isinstance(wanted, SqlEnd):
                return Answer(AnswerStatus.OK, 0, encode(self._desk.end(wanted, owner)))
            (leads,) = await self._replica.submit([_EMPTY], freshness=LINEARIZABLE, owner=owner)
            if leads.status is not AnswerStatus.OK:
                return leads
            reply = self._desk.begin(wanted, owner)
        except NotReadyError:
            return Answer(AnswerStatus.NOT_READY, 0, b"")
        except RsmError as error:
            return Answer(AnswerStatus.REFUSED, 0, str(error).encode())
        revision = leads.revision
        if reply.over is None:
            revision = self._desk.revision_of(wanted)
            if revision < leads.revision:
                self._desk.end(SqlEnd(wanted.transaction), owner)
                return Answer(AnswerStatus.NOT_READY, revision, b"")  # Another state took its place meanwhile.
        return Answer(AnswerStatus.OK, revision, encode(reply))

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


def _is_of_transaction(request: Request) -> bool:
    return type(request) is Query and is_of_transaction(request.payload)
