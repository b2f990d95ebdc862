"""Replicas without a ledger: the real machine, the real session table, a shared log in memory.

`Group` is the committed log; any number of `ReplicaDouble`s answer from it, the one that leads executes. What a test
wants to go wrong it says on the double: `lose_answers`, `refuse`, `gate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness, ReadKind
from rsm_spark.core.records import CommandHead
from rsm_spark.core.sessions import SessionTable, SessionVerdict
from rsm_spark.map.machine import MapMachine
from rsm_spark.transport.server import ReplicaServer


class Group:
    """Machine and sessions of one log, as every replica of it has them."""

    def __init__(self) -> None:
        self.machine = MapMachine()
        self.sessions = SessionTable()
        self.revision = 0
        self.executed: list[tuple[bytes, int, bytes]] = []

    def execute(self, request: Request) -> Answer:  # type: ignore[return]
        match request:
            case OpenSession(session):
                if self.sessions.get(session) is None:
                    self.revision += 1
                    self.sessions.open(session, 0, self.revision)
                return Answer(AnswerStatus.OK, self.revision, b"")
            case Query(payload):
                return Answer(AnswerStatus.OK, self.revision, self.machine.query(payload, self.revision))
            case Command(session, sequence, answered_up_to, payload):
                return self._command(session, sequence, answered_up_to, payload)

    def _command(self, session: bytes, sequence: int, answered_up_to: int, payload: bytes) -> Answer:
        verdict, reply = self.sessions.judge(session, sequence, answered_up_to)
        match verdict:
            case SessionVerdict.REPEATED:
                return Answer(AnswerStatus.OK, self.revision, reply)
            case SessionVerdict.FORGOTTEN:
                return Answer(AnswerStatus.OUTCOME_UNKNOWN, self.revision, b"")
            case SessionVerdict.GAP:
                return Answer(AnswerStatus.SEQUENCE_GAP, self.revision, b"")
            case SessionVerdict.EXPIRED:
                return Answer(AnswerStatus.SESSION_EXPIRED, self.revision, b"")
        decision = self.machine.decide(payload, self.revision + 1, 0)
        head = CommandHead(session, sequence, answered_up_to, max(1, len(decision.records)), decision.reply)
        self.revision += 1
        self.sessions.answer(head, 0, self.revision)
        for index, (record_type, fields) in enumerate(decision.records):
            self.revision += index > 0
            self.machine.apply(record_type, fields, self.revision)
        self.executed.append((session, sequence, payload))
        return Answer(AnswerStatus.OK, self.revision, decision.reply)


class ReplicaDouble:
    """One replica.

    Attributes:
        leads: Whether it executes.
        leader_address: What NOT_LEADER answers name.
        refuse: Called with each request; an answer status other than None is given instead of executing.
        gate: Answers wait for it.

    """

    def __init__(self, group: Group, *, leads: bool = True) -> None:
        self.group = group
        self.leads = leads
        self.leader_address: str | None = None
        self.refuse: Callable[[Request], AnswerStatus | None] = lambda _request: None
        self.gate: asyncio.Event | None = None
        self.submissions: list[list[Request]] = []
        self.reads: list[Freshness] = []
        self.owners: set[str] = set()

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE, owner: str = ""
    ) -> asyncio.Future[Sequence[Answer]]:
        self.owners.add(owner)
        self.submissions.append(list(requests))
        self.reads.append(freshness)
        answers = [self._answer(request, freshness) for request in requests]
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Answer]] = loop.create_future()
        if self.gate is None:
            loop.call_soon(self._settle, future, answers)
        else:
            task = loop.create_task(self._wait(future, answers, self.gate))
            future.add_done_callback(lambda _, task=task: None)
        return future

    def _answer(self, request: Request, freshness: Freshness) -> Answer:
        refused = self.refuse(request)
        if refused is not None:
            return Answer(refused, self.group.revision, b"")
        is_local = freshness.kind is not ReadKind.LINEARIZABLE and isinstance(request, Query)
        if not self.leads and not is_local:
            return Answer(AnswerStatus.NOT_LEADER, self.group.revision, b"")
        return self.group.execute(request)

    async def _wait(
        self, future: asyncio.Future[Sequence[Answer]], answers: Sequence[Answer], gate: asyncio.Event
    ) -> None:
        await gate.wait()
        self._settle(future, answers)

    @staticmethod
    def _settle(future: asyncio.Future[Sequence[Answer]], answers: Sequence[Answer]) -> None:
        if not future.done():
            future.set_result(answers)


class Finder:
    """Names whatever address the test sets, and tells watchers; and the framed ports of these servers."""

    def __init__(self, address: str | None = None, *servers: ReplicaServer) -> None:
        self.address = address
        self.trouble = ""
        self.framed = {server.address: server.framed_address for server in servers}
        self._watchers: list[Callable[[], None]] = []

    async def find(self, on_change: Callable[[], None]) -> str | None:
        self._watchers.append(on_change)
        return self.address

    async def find_framed(self, address: str) -> str:
        return self.framed.get(address, "")

    def move(self, address: str | None) -> None:
        self.address = address
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()


async def serve(double: ReplicaDouble, log: str = "orders", port: int = 0) -> ReplicaServer:
    server = ReplicaServer(log, port=port)
    await server.start(double, lambda: b'{"role":"leader"}')
    return server
