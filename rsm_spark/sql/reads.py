"""Reads of SQL tables: the kernel says when, other connections read.

A query goes to the kernel first, empty: its answer comes when the state is as fresh as the client wants it, and is
confirmed. By then the file has it too, and a reading connection sees that commit or a later one. So reads are as
linearizable as any query of the kernel, run beside each other, and never hold up what is written. One that is over at
once is read where it came, see `rsm_spark.sql.quick_reads`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

import msgspec

from ledger.rights.principal import Principal
from rsm_spark.core.commands import Answer, AnswerStatus, Command, Query, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.core.writer_marks import decode_mark, encode_mark, is_marked
from rsm_spark.errors import InvalidCommandError, NotLeaderError, NotReadyError, RsmError, TooStaleError
from rsm_spark.sql.denials import Refused, denial, nobody_is_told
from rsm_spark.sql.engine.reader import SliceReply
from rsm_spark.sql.messages import (
    SqlEnd,
    SqlQuery,
    SqlReply,
    SqlResult,
    SqlRowsEnd,
    SqlRowsQuery,
    SqlSlice,
    SqlSliceRequest,
    SqlStart,
    SqlStep,
    decode_query,
    decode_transaction_request,
    encode,
    is_of_transaction,
)
from rsm_spark.sql.quick_reads import QuickReads
from rsm_spark.sql.reader_pool import ReaderPool
from rsm_spark.sql.row_desk import RowDesk
from rsm_spark.sql.system_desk import SystemDesk
from rsm_spark.sql.system_tables import SystemAsker, SystemRows, sees_all, system_names
from rsm_spark.sql.table_rights import TableRights, opened, rights_of, within
from rsm_spark.sql.transactions import TransactionDesk
from rsm_spark.transport.guard import caller_or_nobody, calling_source
from rsm_spark.transport.request_admission import Backend

_STATEMENT = "SQL: statement"
_EMPTY = Query(b"")
_NONE = Answer(AnswerStatus.REFUSED, 0, b"")


class SqlReads:
    """Takes the clients' requests for a replica, and has its queries read.

    Args:
        replica: Of the tables.
        pool: Reads them.
        desk: Has its interactive transactions; None = it takes none.
        results: Has its results that are read in slices; None = it has none.
        system: Tells of the log and its replicas; None = there are no system tables.
        quick: Answers what is over at once; None = the pool reads all.

    Attributes:
        on_refused: Told of statements that callers over guarded ports had no right to.

    """

    def __init__(
        self,
        replica: Backend,
        pool: ReaderPool,
        desk: TransactionDesk | None = None,
        results: RowDesk | None = None,
        system: SystemDesk | None = None,
        quick: QuickReads | None = None,
    ) -> None:
        self._quick = quick
        self._replica = replica
        self._pool = pool
        self._desk = desk
        self._results = results
        self._system = system
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_refused: Refused = nobody_is_told

    @property
    def leader_address(self) -> str | None:
        """Advertised address of the leader, as far as known."""
        return self._replica.leader_address

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE, owner: str = ""
    ) -> asyncio.Future[Sequence[Answer]]:
        """Take requests and return one future of their answers, in order; see `Replica.submit`.

        What a caller with some tables alone has sent over a guarded port is done within its rights, and what another
        replica has sent within the rights that it says.
        """
        principal = caller_or_nobody()
        rights = rights_of(principal)
        if rights is None or principal is None:
            return self._submit(requests, freshness, owner, principal)
        bounded = [_within(rights, request) for request in requests]
        answered = self._submit(bounded, freshness, owner, principal)
        answered.add_done_callback(functools.partial(self._tell_denied, principal, calling_source(), requests))
        return answered

    def _tell_denied(
        self, principal: Principal, source: str, requests: Sequence[Request], answered: asyncio.Future[Sequence[Answer]]
    ) -> None:
        if answered.cancelled() or answered.exception() is not None:
            return
        for request, answer in zip(requests, answered.result(), strict=True):
            why = denial(request, answer)
            if why:
                self.on_refused(principal, _STATEMENT, source, why)

    def _submit(
        self, requests: Sequence[Request], freshness: Freshness, owner: str, principal: Principal | None
    ) -> asyncio.Future[Sequence[Answer]]:
        if not any(type(request) is Query for request in requests):
            return self._replica.submit(requests, freshness=freshness, owner=owner)
        places = [place for place, request in enumerate(requests) if not _is_of_transaction(request)]
        asked = [_EMPTY if type(requests[place]) is Query else requests[place] for place in places]
        confirmed = self._replica.submit(asked, freshness=freshness, owner=owner) if asked else None
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Sequence[Answer]] = loop.create_future()
        asker = SystemAsker(owner, principal is not None and sees_all(principal))
        task = loop.create_task(self._answer_all(requests, places, confirmed, freshness, asker, answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answered.add_done_callback(lambda future: task.cancel() if future.cancelled() else None)
        return answered

    async def rows(
        self,
        query: SqlQuery,
        freshness: Freshness,
        owner: str,
        *,
        is_shown_all: bool = False,
        rights: TableRights | None = None,
    ) -> SliceReply:
        """Answer a query of this process itself, in slices; to cancel it ends the read.

        Args:
            query: The query.
            freshness: How fresh the state must be.
            owner: Who takes turns with others.
            is_shown_all: System tables tell it who the others are.
            rights: Tables that its client has; None = all.

        Returns:
            The first slice; the others are asked for at the desk of results.

        Raises:
            NotLeaderError: It is linearizable, and another replica leads.
            TooStaleError: The state is not fresh enough.
            NotReadyError: There is no whole state now.
            QueueFull: Too many wait.
            RsmError: There is no answer.

        """
        assert self._results is not None
        revision = await self.confirmed(freshness, owner)
        quick = self._read_quickly(query, revision, owner, rights)
        if quick is not None:
            return quick
        system = await self.system_rows(query.sql, SystemAsker(owner, is_shown_all))
        found = await self._results.read(query, owner, system=system, rights=rights)
        if found.revision < revision:
            self.close_rows(found.name, owner)
            raise NotReadyError("another state took the place of the one that was to be read")
        return found

    async def confirmed(self, freshness: Freshness, owner: str) -> int:
        """Wait until the state is so fresh, and return its revision: who reads now sees that one or a later one.

        Args:
            freshness: How fresh it must be.
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
                return answer.revision
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

    def _read_quickly(
        self, query: SqlQuery, revision: int, owner: str, rights: TableRights | None
    ) -> SliceReply | None:
        """Return all rows of a query, of this revision or a later one; None = it is to be read on a thread."""
        found = None if self._quick is None else self._quick.read(query, owner, rights)
        return None if found is None or found.revision < revision else found

    async def system_rows(self, sql: str, asker: SystemAsker) -> SystemRows | None:
        """Return the rows of the system tables that a statement names; None = it names none.

        Raises:
            RsmError: The metadata store cannot be asked.

        """
        names = system_names(sql)
        return await self._system.rows(names, asker) if names and self._system is not None else None

    async def next_rows(self, name: bytes, number: int, owner: str, rights: TableRights | None = None) -> SqlSlice:
        """Return the next slice of a result; see `RowDesk.next`."""
        assert self._results is not None
        return await self._results.next(SqlSliceRequest(name, number), owner, rights)

    def close_rows(self, name: bytes, owner: str) -> None:
        """Forget a result of which there is more."""
        assert self._results is not None
        self._results.close_result(SqlRowsEnd(name), owner)

    async def _answer_all(
        self,
        requests: Sequence[Request],
        places: Sequence[int],
        confirmed: asyncio.Future[Sequence[Answer]] | None,
        freshness: Freshness,
        asker: SystemAsker,
        answered: asyncio.Future[Sequence[Answer]],
    ) -> None:
        answers: list[Answer] = [_NONE] * len(requests)
        steps = [place for place in range(len(requests)) if _is_of_transaction(requests[place])]

        async def _step(place: int) -> None:
            answers[place] = await self._of_several(requests[place], freshness, asker)

        async def _read() -> None:
            found = await confirmed if confirmed is not None else []
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
            wanted = [
                place for place in places if type(requests[place]) is Query and answers[place].status is AnswerStatus.OK
            ]
            read = await asyncio.gather(
                *(self._read(requests[place], answers[place].revision, asker) for place in wanted)
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

    async def _of_several(self, request: Request, freshness: Freshness, asker: SystemAsker) -> Answer:
        """Answer one of several requests of a transaction, or of a result in slices."""
        assert type(request) is Query
        try:
            rights, payload = opened(request.payload)
            wanted = decode_transaction_request(payload)
            if isinstance(wanted, SqlRowsQuery | SqlSliceRequest | SqlRowsEnd):
                return await self._of_result(wanted, freshness, asker, rights)
            return await self._of_transaction(wanted, asker, rights)
        except NotReadyError:
            return Answer(AnswerStatus.NOT_READY, 0, b"")
        except asyncio.QueueFull:
            return Answer(AnswerStatus.OVERLOADED, 0, b"")
        except RsmError as error:
            return Answer(AnswerStatus.REFUSED, 0, str(error).encode())

    async def _of_transaction(
        self, wanted: SqlStart | SqlStep | SqlEnd, asker: SystemAsker, rights: TableRights | None
    ) -> Answer:
        owner = asker.owner
        if self._desk is None:
            return Answer(AnswerStatus.REFUSED, 0, b"there are no interactive transactions here")
        if isinstance(wanted, SqlStep):
            system = await self.system_rows(" ".join(one.sql for one in wanted.statements), asker)
            return Answer(AnswerStatus.OK, 0, encode(await self._desk.step(wanted, owner, system, rights)))
        if isinstance(wanted, SqlEnd):
            return Answer(AnswerStatus.OK, 0, encode(self._desk.end(wanted, owner)))
        (leads,) = await self._replica.submit([_EMPTY], freshness=LINEARIZABLE, owner=owner)
        if leads.status is not AnswerStatus.OK:
            return leads
        reply = self._desk.begin(wanted, owner, rights)
        revision = leads.revision
        if reply.over is None:
            revision = self._desk.revision_of(wanted)
            if revision < leads.revision:
                self._desk.end(SqlEnd(wanted.transaction), owner)
                return Answer(AnswerStatus.NOT_READY, revision, b"")  # Another state took its place meanwhile.
        return Answer(AnswerStatus.OK, revision, encode(reply))

    async def _of_result(
        self,
        wanted: SqlRowsQuery | SqlSliceRequest | SqlRowsEnd,
        freshness: Freshness,
        asker: SystemAsker,
        rights: TableRights | None,
    ) -> Answer:
        owner = asker.owner
        if self._results is None:
            return Answer(AnswerStatus.REFUSED, 0, b"results are not read in slices here")
        if isinstance(wanted, SqlSliceRequest):
            return Answer(AnswerStatus.OK, 0, encode(await self._results.next(wanted, owner, rights)))
        if isinstance(wanted, SqlRowsEnd):
            return Answer(AnswerStatus.OK, 0, encode(self._results.close_result(wanted, owner)))
        (fresh,) = await self._replica.submit([_EMPTY], freshness=freshness, owner=owner)
        if fresh.status is not AnswerStatus.OK:
            return fresh
        quick = self._read_quickly(SqlQuery(wanted.sql, wanted.parameters), fresh.revision, owner, rights)
        if quick is not None:
            return Answer(AnswerStatus.OK, quick.revision, encode(quick.slice))
        found = await self._results.open(wanted, owner, await self.system_rows(wanted.sql, asker), rights)
        if found.revision < fresh.revision:
            self._results.close_result(SqlRowsEnd(wanted.name), owner)
            return Answer(AnswerStatus.NOT_READY, found.revision, b"")  # Another state took its place meanwhile.
        return Answer(AnswerStatus.OK, found.revision, encode(found.slice))

    async def _read(self, request: Request, revision: int, asker: SystemAsker) -> Answer:
        assert type(request) is Query
        try:
            rights, payload = opened(request.payload)
            query = decode_query(payload)
            quick = self._read_quickly(query, revision, asker.owner, rights)
            if quick is not None:
                reply = SqlReply((SqlResult(quick.slice.columns, quick.slice.rows),))
                return Answer(AnswerStatus.OK, quick.revision, encode(reply))
            system = await self.system_rows(query.sql, asker)
            found = await self._pool.read(query, asker.owner, system, rights)
        except RsmError as error:
            return Answer(AnswerStatus.REFUSED, revision, str(error).encode())
        except asyncio.QueueFull:
            return Answer(AnswerStatus.OVERLOADED, revision, b"")
        if found.revision < revision:
            return Answer(AnswerStatus.NOT_READY, found.revision, b"")  # Another state took its place meanwhile.
        return Answer(AnswerStatus.OK, found.revision, encode(found.reply))


def _is_of_transaction(request: Request) -> bool:
    if type(request) is not Query:
        return False
    try:
        _, payload = opened(request.payload)
    except InvalidCommandError:
        return True  # It is answered with this error.
    return is_of_transaction(payload)


def _within(rights: TableRights, request: Request) -> Request:
    """Return a request that is done within rights; a writer's command stays one."""
    if isinstance(request, Query):
        return Query(within(rights, request.payload))
    if not isinstance(request, Command):
        return request
    payload = request.payload
    if not is_marked(payload):
        return msgspec.structs.replace(request, payload=within(rights, payload))
    mark = decode_mark(payload)
    if mark.payload:
        mark = msgspec.structs.replace(mark, payload=within(rights, mark.payload))
    return msgspec.structs.replace(request, payload=encode_mark(mark))
