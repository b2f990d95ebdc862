"""Clients of a simulated cluster: sessions that send again until they know, and tell the ghosts what they were told."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence

from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.core.freshness import CLOCK_ASKED_S_MAX, END_KNOWN_MS, STALE, Freshness, ReadKind, at_least, bounded
from rsm_spark.testing.cluster import ReplicaCluster, UnreachableError
from rsm_spark.testing.counter_map import command, unpack
from rsm_spark.testing.history import CallerCall, CallerReply, Kind

_KEYS = ("a", "b")


class _Pending:
    """A command that is not answered yet."""

    def __init__(self, request: Command, key: str, *, is_conditional: bool, began_s: float) -> None:
        self.request = request
        self.key = key
        self.is_conditional = is_conditional
        self.began_s = began_s


class SessionClient:
    """One client with one session after another.

    Args:
        cluster: Whom to ask.
        rng: What to ask.
        name: For the history.

    Attributes:
        acknowledged: Commands answered OK.
        reads: Reads answered, by kind.
        is_calm: Ask for nothing new.
        history: Calls on counters, to be judged for linearizability; without those that certainly did nothing.

    """

    def __init__(self, cluster: ReplicaCluster, rng: random.Random, name: str = "client") -> None:
        self.acknowledged = 0
        self.reads = dict.fromkeys(ReadKind, 0)
        self.is_calm = False
        self.history: list[CallerCall] = []
        self._cluster = cluster
        self._ghosts = cluster.ghosts
        self._rng = rng
        self._name = name
        self._session: bytes | None = None
        self._sequence = 0
        self._answered_up_to = 0
        self._alive_s = 0.0  # When the last command of the session that was executed was sent first.
        self._seen_revision = 0
        self._read_share = rng.choice((0.1, 0.3, 0.9))
        self._old_read_share = rng.choice((0.0, 0.3, 0.8))
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
        elif self._rng.random() >= self._read_share:
            await self._write(self._rng.choice((1, 1, 1, 3)))
        elif self._rng.random() < self._old_read_share:
            await self._read_old(self._rng.choice(_KEYS))
        else:
            await self._read(self._rng.choice(_KEYS))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _ask(self, requests: list[Request]) -> Sequence[Answer] | None:
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

    # ---- sessions

    async def _open(self) -> None:
        session, began_s = self._rng.randbytes(16), self._now()
        while True:
            answers = await self._ask([OpenSession(session)])
            if answers is not None and answers[0].status is AnswerStatus.OK:
                self._session, self._sequence, self._answered_up_to = session, 0, 0
                self._alive_s = began_s
                return

    def _lose(self) -> None:
        """Take note that the session has expired: not before its time."""
        lived_s, ttl_s = self._now() - self._alive_s, self._cluster.settings.session_ttl_ms / 1000
        if lived_s < ttl_s:
            self._ghosts.fail("time-is-data", f"a session of {ttl_s:.0f} s expired {lived_s:.3f} s after its command")
        self._session = None

    # ---- reads

    async def _read(self, key: str) -> None:
        began_s = self._now()
        while True:
            floor = self._ghosts.floor(key)
            answers = await self._ask([Query(command(key))])
            if answers is not None and answers[0].status is AnswerStatus.OK:
                value = self._take_read(key, answers[0], ReadKind.LINEARIZABLE)
                self._ghosts.shown(key, value, floor, is_added=False)
                reply = CallerReply(value=value or None)
                self.history.append(CallerCall(self._name, key, Kind.GET, began_s, self._now(), reply=reply))
                return
            if self._rng.random() < 0.2:
                return

    def _take_read(self, key: str, answer: Answer, kind: ReadKind) -> int:
        value: int = unpack(answer.payload)
        self._ghosts.read(key, value, answer.revision)
        self._seen_revision = max(self._seen_revision, answer.revision)
        self.reads[kind] += 1
        return value

    async def _read_old(self, key: str) -> None:
        """Ask any replica for what it has; it must not be older than allowed."""
        rng, seen = self._rng, self._seen_revision
        freshness = rng.choice(
            (
                STALE,
                at_least(seen),
                bounded(max_lag_ms=rng.choice((100, 1_000, 10_000))),
                bounded(max_lag_revisions=rng.choice((0, 5, 100))),
            )
        )
        began_s = self._now()
        try:
            target = rng.choice(self._cluster.hosts).name
            (answer,) = await self._cluster.call(target, [Query(command(key))], 1.0, freshness)
        except UnreachableError:
            return
        if answer.status is AnswerStatus.OK:
            oldest = self._oldest_allowed(freshness, seen, began_s)
            if answer.revision < oldest:
                self._ghosts.fail("stale", f"{freshness} is answered with revision {answer.revision}, not {oldest}")
            self._take_read(key, answer, freshness.kind)

    def _oldest_allowed(self, freshness: Freshness, seen: int, began_s: float) -> int:
        """Return the revision that a read sent at `began_s` must not be older than."""
        if freshness.kind is ReadKind.SESSION:
            return seen
        # With a wrong clock a replica has only what the leader told, at most so long ago.
        is_any_clock_wrong = any(host.clock_offset_ms for host in self._cluster.hosts)
        sent_s = began_s - (CLOCK_ASKED_S_MAX if is_any_clock_wrong else 0.0)
        if freshness.max_lag_ms is not None:
            return self._ghosts.revision_at(sent_s - freshness.max_lag_ms / 1000)
        if freshness.max_lag_revisions is not None:
            return self._ghosts.revision_at(sent_s - END_KNOWN_MS / 1000) - freshness.max_lag_revisions
        return 0

    # ---- writes

    async def _write(self, count: int) -> None:
        """Send `count` commands in one message, again and again until each is answered."""
        assert self._session is not None
        floors = {key: self._ghosts.floor(key) for key in _KEYS}
        pending: list[_Pending] = []
        for _ in range(count):
            self._sequence += 1
            key, is_conditional = self._rng.choice(_KEYS), self._rng.random() < 0.3
            payload = command("add_if_odd", key) if is_conditional else command("add", key, 1)
            request = Command(self._session, self._sequence, self._answered_up_to, payload)
            pending.append(_Pending(request, key, is_conditional=is_conditional, began_s=self._now()))
        attempt = 0
        while pending:
            attempt += 1
            answers = await self._ask([one.request for one in pending])
            if answers is None:
                continue
            if attempt == 1 and all(answer.status is AnswerStatus.NOT_LEADER for answer in answers):
                if self._rng.random() < 0.5:
                    attempt = 0  # Certainly not applied: as good as never sent.
                    continue
                for one in pending:
                    self._ghosts.denied(one.request.session, one.request.sequence)
                self._answered_up_to = self._sequence  # Given up, for good.
                return
            if any(answer.status is AnswerStatus.SESSION_EXPIRED for answer in answers):
                self._lose()
                self.history += [self._call(one, math.inf, None) for one in pending]
                return
            pending = self._take(pending, answers, floors)
        self._answered_up_to = self._sequence

    def _take(self, pending: list[_Pending], answers: Sequence[Answer], floors: dict[str, int]) -> list[_Pending]:
        """Note the final answers; return what has to be sent again."""
        again: list[_Pending] = []
        for one, answer in zip(pending, answers, strict=True):
            request = one.request
            if answer.status is not AnswerStatus.OK:
                again.append(one)
                continue
            self._ghosts.told(request.session, request.sequence, answer.payload)
            self.acknowledged += 1
            self._alive_s = max(self._alive_s, one.began_s)
            self._seen_revision = max(self._seen_revision, answer.revision)
            value = unpack(answer.payload)
            if value is not None:
                self._ghosts.shown(one.key, value, floors[one.key], is_added=True)
                self.history.append(self._call(one, self._now(), CallerReply(value=value)))
        return again

    def _call(self, one: _Pending, ended_s: float, reply: CallerReply | None) -> CallerCall:
        return CallerCall(self._name, one.key, Kind.INCREMENT, one.began_s, ended_s, argument=1, reply=reply)
