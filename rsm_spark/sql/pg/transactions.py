"""Interactive transactions of PostgreSQL's clients: here if this replica leads, else over a link to the leader.

The leader bounds how many transactions one caller has open. Here it is told who that is; over a link it sees this
replica alone, so there one caller has half of what this replica may have.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from rsm_spark.client.leader_links import LeaderLinks
from rsm_spark.client.service_client import Reply, ServiceClient
from rsm_spark.core.commands import AnswerStatus, Query
from rsm_spark.core.freshness import Freshness
from rsm_spark.errors import NotReadyError, OverloadedError, RsmError
from rsm_spark.sql.bounded_service import BoundedService
from rsm_spark.sql.client.transaction import InteractiveTransaction
from rsm_spark.sql.errors import SqlAbortedError
from rsm_spark.sql.messages import SqlResult
from rsm_spark.sql.pg.faults import OVERLOADED, PgFault
from rsm_spark.sql.pg.tasks import PgCaller, RunStep
from rsm_spark.sql.reads import SqlReads


class _LocalLeader:
    """Requests of a transaction to this replica, which leads; its COMMIT is a command of its caller's session.

    Args:
        reads: Of the replica.
        owner: Whose the transaction is.
        link: To the leader, wherever it is then.

    """

    def __init__(self, reads: SqlReads, owner: str, link: ServiceClient) -> None:
        self._reads = reads
        self._owner = owner
        self._link = link

    @property
    def steady_read(self) -> Freshness:
        return self._link.steady_read

    async def execute(self, command: bytes, *, timeout_s: float | None = None) -> Reply:
        return await self._link.execute(command, timeout_s=timeout_s)

    async def query(
        self,
        query: bytes,
        *,
        read: Freshness | None = None,  # noqa: ARG002 - the kernel confirms what needs it
        timeout_s: float | None = None,  # noqa: ARG002 - statements have their own
    ) -> Reply:
        (answer,) = await self._reads.submit([Query(query)], owner=self._owner)
        match answer.status:
            case AnswerStatus.OK:
                return Reply(answer.payload, answer.revision)
            case AnswerStatus.NOT_LEADER | AnswerStatus.OUTCOME_UNKNOWN:
                raise SqlAbortedError("this replica does not lead any more", kind="aborted")
            case AnswerStatus.OVERLOADED:
                raise OverloadedError("the queues of this replica are full")
            case AnswerStatus.NOT_READY:
                raise NotReadyError("this replica has no whole state now")
            case status:
                raise RsmError(f"it was refused: {status.name} {answer.payload.decode(errors='replace')}")


class PgTransaction:
    """An interactive transaction, and what it holds.

    Args:
        transaction: It has begun.
        held: Closed with it.

    """

    def __init__(self, transaction: InteractiveTransaction, held: contextlib.AsyncExitStack) -> None:
        self._transaction = transaction
        self._held = held

    async def step(self, task: RunStep) -> tuple[SqlResult, ...]:
        """Run statements.

        Raises:
            SqlError: One failed.
            RsmError: There is no answer.

        """
        return tuple(await self._transaction.execute_all(task.statements))

    async def end(self, *, is_kept: bool) -> int:
        """Commit it, or drop it; return the revision after it, 0 = it is dropped.

        Raises:
            SqlError: It cannot be committed.
            RsmError: There is no answer.

        """
        try:
            if is_kept:
                return await self._transaction.commit()
            await self._transaction.rollback()
            return 0
        finally:
            await self._held.aclose()


class PgTransactions:
    """See the module.

    Args:
        reads: Of the replica.
        links: To the leader.
        open_max: Transactions that the leader lets one caller have open.

    """

    def __init__(self, reads: SqlReads, links: LeaderLinks, open_max: int) -> None:
        self._reads = reads
        self._links = links
        self._linked_max = max(1, open_max // 2)
        # Over links, by owner; none is 0.
        self._linked: dict[str, int] = {}

    async def begin(self, caller: PgCaller, *, is_leader: bool) -> PgTransaction:
        """Begin one.

        Args:
            caller: Whose it is.
            is_leader: This replica leads.

        Raises:
            PgFault: The owner has too many open.
            SqlError: Too many are open.
            RsmError: There is no answer.

        """
        owner = caller.turns_as
        async with contextlib.AsyncExitStack() as stack:
            if not is_leader:
                await stack.enter_async_context(self._room(owner))
            link = await stack.enter_async_context(self._links.of(owner))
            leader = _LocalLeader(self._reads, owner, link) if is_leader else link
            transaction = InteractiveTransaction(BoundedService(leader, caller.rights))
            await transaction.begin()
            return PgTransaction(transaction, stack.pop_all())

    @contextlib.asynccontextmanager
    async def _room(self, owner: str) -> AsyncIterator[None]:
        count = self._linked.get(owner, 0)
        if count >= self._linked_max:
            raise PgFault(OVERLOADED, f"{count} transactions of this client are open here: end one first")
        self._linked[owner] = count + 1
        try:
            yield
        finally:
            self._linked[owner] -= 1
            if not self._linked[owner]:
                del self._linked[owner]
