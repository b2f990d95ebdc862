"""Clients of a simulated cluster: sessions that send again until they know, and tell the ghosts what they were told."""

from __future__ import annotations

import asyncio
import random

from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.testing.cluster import ReplicaCluster, UnreachableError
from rsm_spark.testing.counter_map import command, unpack

__all__ = ["SessionClient"]

_KEYS = ("a", "b")


class SessionClient:
    """One client with one session after another.

    Args:
        cluster: Whom to ask.
        rng: What to ask.

    Attributes:
        acknowledged: Commands answered OK.
        is_calm: Ask for nothing new.

    """

    def __init__(self, cluster: ReplicaCluster, rng: random.Random) -> None:
        self.acknowledged = 0
        self.is_calm = False
        self._cluster = cluster
        self._ghosts = cluster.ghosts
        self._rng = rng
        self._session: bytes | None = None
        self._sequence = 0
        self._answered_up_to = 0
        self._read_share = rng.choice((0.1, 0.3, 0.9))
        self._target = rng.choice(cluster.hosts).name

    async def run(self) -> None:
        """Ask until calm."""
        while not self.is_calm:
            await self.step()
            await asyncio.sleep(self._rng.expovariate(8.0))

    async def step(self) -> None:
        """Ask one thing, to its end."""
        if self._session is None:
            await self._open()
            return
        kind = self._rng.random()
        if kind < self._read_share:
            await self._read(self._rng.choice(_KEYS))
        else:
            await self._write(self._rng.choice((1, 1, 1, 3)))

    async def _ask(self, requests: list[Request]) -> list[Answer] | None:
        """Send once to whom it believes to lead; None if there was no answer."""
        try:
            answers = await self._cluster.call(self._target, requests, self._rng.choice((0.3, 1.0, 5.0)))
        except UnreachableError:
            answers = None
        if answers is None or any(a.status is AnswerStatus.NOT_LEADER for a in answers):
            replica = self._cluster.replicas.get(self._target)
            leader = replica.leader.replica_id if replica is not None and replica.leader is not None else None
            names = [host.name for host in self._cluster.hosts]
            self._target = leader if leader in names and self._rng.random() < 0.7 else self._rng.choice(names)
            await asyncio.sleep(self._rng.uniform(0.01, 0.3))
        return answers

    async def _open(self) -> None:
        session = self._rng.randbytes(16)
        while True:
            answers = await self._ask([OpenSession(session)])
            if answers is not None and answers[0].status is AnswerStatus.OK:
                self._session, self._sequence, self._answered_up_to = session, 0, 0
                return

    async def _read(self, key: str) -> None:
        while True:
            floor = self._ghosts.floor(key)
            answers = await self._ask([Query(command(key))])
            if answers is not None and answers[0].status is AnswerStatus.OK:
                self._ghosts.shown(key, unpack(answers[0].payload), floor, is_added=False)
                return
            if self._rng.random() < 0.2:
                return

    async def _write(self, count: int) -> None:
        """Send `count` commands in one message, again and again until each is answered."""
        assert self._session is not None
        floors = {key: self._ghosts.floor(key) for key in _KEYS}
        pending: list[tuple[Command, str, bool]] = []
        for _ in range(count):
            self._sequence += 1
            key, is_conditional = self._rng.choice(_KEYS), self._rng.random() < 0.3
            payload = command("add_if_odd", key) if is_conditional else command("add", key, 1)
            pending.append((Command(self._session, self._sequence, self._answered_up_to, payload), key, is_conditional))
        attempt = 0
        while pending:
            attempt += 1
            answers = await self._ask([request for request, _, _ in pending])
            if answers is None:
                continue
            if attempt == 1 and all(answer.status is AnswerStatus.NOT_LEADER for answer in answers):
                if self._rng.random() < 0.5:
                    attempt = 0  # Certainly not applied: as good as never sent.
                    continue
                for request, _, _ in pending:
                    self._ghosts.denied(request.session, request.sequence)
                self._answered_up_to = self._sequence  # Given up, for good.
                return
            if any(answer.status is AnswerStatus.SESSION_EXPIRED for answer in answers):
                self._session = None
                return
            pending = self._take(pending, answers, floors)
        self._answered_up_to = self._sequence

    def _take(
        self, pending: list[tuple[Command, str, bool]], answers: list[Answer], floors: dict[str, int]
    ) -> list[tuple[Command, str, bool]]:
        """Note the final answers; return what has to be sent again."""
        again: list[tuple[Command, str, bool]] = []
        for (request, key, is_conditional), answer in zip(pending, answers, strict=True):
            if answer.status is not AnswerStatus.OK:
                again.append((request, key, is_conditional))
                continue
            self._ghosts.told(request.session, request.sequence, answer.payload)
            self.acknowledged += 1
            value = unpack(answer.payload)
            if value is not None:
                self._ghosts.shown(key, value, floors[key], is_added=True)
        return again
