"""Open interactive transactions of one replica: whose they are, how long they may be open, and who runs when.

    BEGIN     the kernel confirms that this replica leads; the commit that stands then is held
    step      statements run on a thread, on connections of the transaction alone; nobody waits for them
    end       the client ends it, or its time does; nothing of it is anywhere then
    COMMIT    is a command, and not asked here: the kernel's leader runs the statements again (`SqlMachine.decide`)

So a transaction that is lost here has done nothing, and its client begins again. See
docs/decisions/0027-interactive-transactions-are-run-twice.md.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence

from rsm_spark.errors import InvalidCommandError
from rsm_spark.sql.engine.faults import SqlFaultError
from rsm_spark.sql.engine.held_transaction import HeldTransaction
from rsm_spark.sql.limits import WAL_PAGES_MAX, SqlSettings
from rsm_spark.sql.messages import SqlEnd, SqlFault, SqlStart, SqlStatement, SqlStep, SqlStepReply, StepOutcome
from rsm_spark.sql.owner_turns import OwnerTurns
from rsm_spark.sql.system_tables import HeldCommit, SystemRows
from rsm_spark.sql.table_rights import TableRights

_ID_BYTES = 16
_ENDED_MAX = 1_024
_YOUNG_S = 1.0
"""A transaction that is not older is not ended for the WAL's sake."""


class OpenSqlTransaction:
    """One open transaction.

    Args:
        name: 16 bytes, drawn by its client.
        owner: Whose it is: a principal, or an address.
        held: What it reads and has changed.
        began_s: Time of the event loop.

    """

    __slots__ = (
        "began_s", "has_thread", "held", "is_running", "name", "number", "over", "owner", "reply", "timer", "used_s",
    )  # fmt: skip

    def __init__(self, name: bytes, owner: str, held: HeldTransaction, began_s: float) -> None:
        self.name = name
        self.owner = owner
        self.held = held
        self.began_s = self.used_s = began_s
        self.is_running = self.has_thread = False
        self.number = 0  # Of the last step.
        self.reply: asyncio.Future[SqlStepReply] | None = None  # To it.
        self.over: SqlFault | None = None
        self.timer: asyncio.TimerHandle | None = None


class TransactionDesk:
    """See the module. For one event loop.

    Args:
        hold: Begins a transaction on the last commit.
        wal_pages: Says how many pages SQLite's WAL has.
        settings: Limits.

    """

    def __init__(
        self, hold: Callable[[], HeldTransaction], wal_pages: Callable[[], int], settings: SqlSettings
    ) -> None:
        self._hold = hold
        self._wal_pages = wal_pages
        self._settings = settings
        self._open: dict[bytes, OpenSqlTransaction] = {}
        self._ended: OrderedDict[bytes, SqlFault] = OrderedDict()  # Why, of those that ended last.
        self._threads: OwnerTurns[list[StepOutcome]] = OwnerTurns(
            settings.transactions_running, settings.transactions_max, "rsm-sql-transaction"
        )
        self._tasks: set[asyncio.Task[SqlStepReply]] = set()

    @property
    def open_count(self) -> int:
        """Open transactions."""
        return len(self._open)

    def begin(self, request: SqlStart, owner: str, rights: TableRights | None = None) -> SqlStepReply:
        """Begin a transaction on the last commit; beginning it again is answered the same way.

        Args:
            request: Its name.
            owner: Whose it is.
            rights: Tables that the owner has; None = all.

        Raises:
            InvalidCommandError: Its name is none.
            NotReadyError: There is no commit yet.

        """
        name, settings = request.transaction, self._settings
        if len(name) != _ID_BYTES:
            raise InvalidCommandError(f"the name of a transaction has {_ID_BYTES} bytes, not {len(name)}")
        found = self._open.get(name)
        if found is not None and found.owner == owner:
            return SqlStepReply()
        own = sum(one.owner == owner for one in self._open.values())
        own_max = settings.transactions_max // 4
        if found is not None or own >= own_max or len(self._open) >= settings.transactions_max:
            text = f"{own} transactions of this client are open, {len(self._open)} in all: end one first"
            return SqlStepReply(over=SqlFault("limit", text))
        if self._wal_pages() >= WAL_PAGES_MAX:
            self._end_old_ones()
        held = self._hold()
        held.rights = rights
        one = OpenSqlTransaction(name, owner, held, asyncio.get_running_loop().time())
        self._open[name] = one
        self._arm(one)
        return SqlStepReply()

    def revision_of(self, request: SqlStart) -> int:
        """Return the revision that an open transaction reads."""
        return self._open[request.transaction].held.revision

    def held_commits(self) -> list[HeldCommit]:
        """Return what `rsm_locks` shows of them."""
        return [
            HeldCommit(
                "transaction",
                one.name,
                one.owner,
                one.began_s,
                one.used_s,
                _waits_for(one),
                one.held.revision,
                one.held.has_written,
            )
            for one in self._open.values()
        ]

    async def step(
        self, request: SqlStep, owner: str, system: SystemRows | None = None, rights: TableRights | None = None
    ) -> SqlStepReply:
        """Run the next statements of a transaction; the same step again is answered the same way.

        Args:
            request: The statements.
            owner: Whose the transaction is.
            system: Rows of the system tables that they name; None = there are none.
            rights: Tables that the owner has now; None = all. If it had others before, the transaction is over.

        """
        one = self._open.get(request.transaction)
        if one is None or one.owner != owner:
            unknown = SqlFault("aborted", "this replica has no such transaction: it was begun at a former leader")
            return SqlStepReply(over=self._ended.get(request.transaction, unknown))
        if one.held.rights != rights:
            self._finish(one, SqlFault("aborted", "the rights of its client are others since it began"))
            return SqlStepReply(over=one.over)
        if request.number != one.number or one.reply is None:
            if request.number != one.number + 1 or one.is_running:
                self._finish(one, SqlFault("aborted", f"step {request.number} came after step {one.number}"))
                return SqlStepReply(over=one.over)
            one.number, one.is_running = request.number, True
            task = asyncio.get_running_loop().create_task(self._run(one, request.statements, system))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            one.reply = task
        return await asyncio.shield(one.reply)

    async def _run(
        self, one: OpenSqlTransaction, statements: Sequence[SqlStatement], system: SystemRows | None
    ) -> SqlStepReply:
        def _begin() -> Callable[[], list[StepOutcome]]:
            one.has_thread = True
            return functools.partial(one.held.step, statements, system)

        outcomes: list[StepOutcome] = []
        fault: SqlFault | None = None
        try:
            outcomes = await self._threads.run(one.owner, _begin)
        except SqlFaultError as error:
            fault = error.fault
        except asyncio.QueueFull:
            fault = SqlFault("aborted", "too many transactions wait for a thread")
        except asyncio.CancelledError:
            one.held.stop()  # Its thread may still run: its connections end with the process.
            raise
        one.is_running = one.has_thread = False
        one.used_s = asyncio.get_running_loop().time()
        if one.over is not None:
            one.held.close()
        elif fault is not None:
            self._finish(one, fault)
        if one.over is not None:
            return SqlStepReply(over=one.over)
        return SqlStepReply(tuple(outcomes), None, one.held.has_written)

    def end(self, request: SqlEnd, owner: str) -> SqlStepReply:
        """Forget a transaction, and what it changed."""
        one = self._open.get(request.transaction)
        if one is not None and one.owner == owner:
            self._finish(one, SqlFault("aborted", "its client has ended it"))
        return SqlStepReply()

    def _finish(self, one: OpenSqlTransaction, fault: SqlFault) -> None:
        one.over = fault
        del self._open[one.name]
        self._ended[one.name] = fault
        if len(self._ended) > _ENDED_MAX:
            self._ended.popitem(last=False)
        if one.timer is not None:
            one.timer.cancel()
        if one.is_running:
            one.held.stop()  # Closed when it has stopped.
        else:
            one.held.close()

    def _arm(self, one: OpenSqlTransaction) -> None:
        """Look at it again when its time may be over; while it runs it does not wait for its client."""
        settings, now_s = self._settings, asyncio.get_running_loop().time()
        waits_from_s = now_s if one.is_running else one.used_s
        next_s = min(
            waits_from_s + settings.transaction_idle_ms / 1000, one.began_s + settings.transaction_ms_max / 1000
        )
        one.timer = asyncio.get_running_loop().call_at(next_s, self._on_time, one)

    def _on_time(self, one: OpenSqlTransaction) -> None:
        now_s, settings = asyncio.get_running_loop().time(), self._settings
        if now_s >= one.began_s + settings.transaction_ms_max / 1000:
            text = f"the transaction was open for longer than {settings.transaction_ms_max / 1000:g} s"
            self._finish(one, SqlFault("aborted", text))
        elif not one.is_running and now_s >= one.used_s + settings.transaction_idle_ms / 1000:
            text = (
                f"the transaction has waited for its client for longer than {settings.transaction_idle_ms / 1000:g} s"
            )
            self._finish(one, SqlFault("aborted", text))
        else:
            self._arm(one)

    def _end_old_ones(self) -> None:
        """Have SQLite's WAL begin anew: whoever holds a commit of it keeps it from that."""
        now_s = asyncio.get_running_loop().time()
        for one in [one for one in self._open.values() if now_s - one.began_s > _YOUNG_S]:
            self._finish(one, SqlFault("aborted", "SQLite's WAL has grown while the transaction was open"))

    def close(self) -> None:
        """End all of them."""
        for one in list(self._open.values()):
            self._finish(one, SqlFault("aborted", "this replica is being stopped"))
        self._threads.close()


def _waits_for(one: OpenSqlTransaction) -> str | None:
    if not one.is_running:
        return "its client"
    return None if one.has_thread else "a thread"
