"""Callers of simulated replicas that run interactive transactions, and what they saw; with planted bugs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from math import inf
from typing import Any

from rsm_spark.core.commands import Answer, AnswerStatus, Command, Query
from rsm_spark.sql.engine.faults import SqlFaultError
from rsm_spark.sql.engine.held_transaction import HeldTransaction
from rsm_spark.sql.messages import SqlCommit, SqlStatement, SqlTransaction, decode_reply, encode
from rsm_spark.testing.cluster import UnreachableError
from rsm_spark.testing.list_append import AppendOutcome, AppendTransaction, ListRead, ListWrite
from rsm_spark.testing.simulating import _Caller

KEYS = "pqr"
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS list (k TEXT PRIMARY KEY, v TEXT)",
    "INSERT OR IGNORE INTO list VALUES ('p', ''), ('q', ''), ('r', '')",
)


class AbortedError(Exception):
    """The transaction is over; nothing was done."""


class TransactionCaller(_Caller):
    """Runs transactions on lists, one after the other; each COMMIT is sent until its outcome is known.

    Attributes:
        history: What they saw; of all callers.
        name: Its own.

    """

    history: list[AppendTransaction]
    name: str

    async def _execute(self, session: bytes) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        steps: list[Any] = []
        undone: list[Any] = []
        fate = AppendOutcome.FAILED
        try:
            payload = await self._transaction(session, steps, undone)
            fate = AppendOutcome.OK if payload is None else await self._commit(session, payload)
        except (AbortedError, SqlFaultError):
            self.counts["aborted"] += 1
        ended_s = inf if fate is AppendOutcome.UNKNOWN else loop.time()
        self.counts[fate] += 1
        history = self.history
        history.append(AppendTransaction(len(history), tuple(steps), began_s, ended_s, fate))
        history.append(AppendTransaction(len(history), tuple(undone), began_s, loop.time(), AppendOutcome.FAILED))

    async def _transaction(self, session: bytes, steps: list[Any], undone: list[Any]) -> bytes | None:
        """Run a transaction; return its COMMIT, None if it has only read."""
        target = self._target
        await self._begin(session)
        replica = self._cluster.replicas.get(target)
        if replica is None or not replica._context.state_is_confirmed:
            raise AbortedError
        held: HeldTransaction = replica._context.machine.hold()  # type: ignore[attr-defined]
        tx = _Running(held, lambda: self._cluster.replicas.get(target) is replica, self._rng)
        try:
            await self._work(tx, steps, undone)
            return encode(SqlCommit(tuple(tx.statements), tuple(tx.told))) if held.has_written else None
        finally:
            held.close()

    async def _begin(self, _session: bytes) -> None:
        """Have it confirmed that the replica leads."""
        try:
            (answer,) = await self._cluster.call(self._target, [Query(b"")], 1.0)
        except UnreachableError:
            answer = Answer(AnswerStatus.NOT_LEADER, 0, b"")
        if answer.status is not AnswerStatus.OK:
            self._target = self._rng.choice(self._cluster.hosts).name
            await asyncio.sleep(self._rng.uniform(0.01, 0.2))
            raise AbortedError

    async def _work(self, tx: _Running, steps: list[Any], undone: list[Any]) -> None:
        rng = self._rng
        if rng.random() < 0.25:
            for key in KEYS:
                (text,) = await tx.read(key)
                steps.append(ListRead(key, tuple(text.split())))
            return
        for place in range(rng.randint(1, 4)):
            key, value = rng.choice(KEYS), f"{self.name}.{len(self.history)}.{place}"
            draw = rng.random()
            if draw < 0.4:
                (text,) = await tx.read(key)
                steps.append(ListRead(key, tuple(text.split())))
            elif draw < 0.6:
                (text,) = await tx.read(key)
                steps += [ListRead(key, tuple(text.split())), ListWrite(key, value)]
                await tx.run("UPDATE list SET v = ? WHERE k = ?", (f"{text} {value}", key))
            elif draw < 0.85:
                steps.append(ListWrite(key, value))
                await tx.run("UPDATE list SET v = v || ' ' || ? WHERE k = ?", (value, key))
            else:
                undone.append(ListWrite(key, value))
                await tx.run("SAVEPOINT s")
                await tx.run("UPDATE list SET v = v || ' ' || ? WHERE k = ?", (value, key))
                await tx.run("ROLLBACK TO s")

    async def _commit(self, session: bytes, payload: bytes) -> AppendOutcome:
        self._sequence += 1
        command = Command(session, self._sequence, self._sequence - 1, payload)
        answer = await self._settled(command)
        if answer.status is AnswerStatus.SESSION_EXPIRED:
            self._session = None
            return AppendOutcome.UNKNOWN
        if answer.status is AnswerStatus.OK:
            self._cluster.ghosts.told(session, self._sequence, answer.payload)
        self.counts["acknowledged"] += 1
        self.counts["refused"] += answer.status is not AnswerStatus.OK
        fault = decode_reply(answer.payload).fault
        assert fault is None or fault.kind == "conflict", fault
        return AppendOutcome.OK if fault is None else AppendOutcome.FAILED


class _Running:
    """A transaction that runs at a replica, as long as that is alive."""

    def __init__(self, held: HeldTransaction, is_alive: Callable[[], bool], rng: random.Random) -> None:
        self._held = held
        self._is_alive = is_alive
        self._rng = rng
        self.statements: list[SqlStatement] = []
        self.told: list[bytes] = []

    async def run(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        await asyncio.sleep(self._rng.expovariate(30.0))
        if not self._is_alive():
            raise AbortedError
        statement = SqlStatement(sql, parameters)
        (outcome,) = self._held.step([statement])
        if outcome.result is None:
            raise AbortedError  # The tables were not there when it began.
        self.statements.append(statement)
        self.told.append(outcome.told)
        return list(outcome.result.rows)

    async def read(self, key: str) -> tuple[str]:
        return (await self.run("SELECT v FROM list WHERE k = ?", (key,)))[0]


def schema_command(_rng: random.Random) -> bytes:
    return encode(SqlTransaction(tuple(map(SqlStatement, SCHEMA))))


class SendsAnew(TransactionCaller):
    """Planted: sends a COMMIT whose reply was lost with another number."""

    async def _settled(self, request: Any) -> Answer:
        while type(request) is Command:
            try:
                (answer,) = await self._cluster.call(self._target, [request], 0.3)
                if answer.status in (AnswerStatus.OK, AnswerStatus.SESSION_EXPIRED):
                    return answer
            except UnreachableError:
                self._sequence += 1
                request = Command(request.session, self._sequence, self._sequence - 1, request.payload)
            self._target = self._rng.choice(self._cluster.hosts).name
            await asyncio.sleep(self._rng.uniform(0.01, 0.3))
        return await super()._settled(request)


class BeginsUnproven(TransactionCaller):
    """Planted: begins at a replica that does not know whether it still leads."""

    async def _begin(self, _session: bytes) -> None:
        self._target = self._rng.choice(self._cluster.hosts).name
