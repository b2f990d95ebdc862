"""Clients of a simulated map: callers who grant, keep and attach, and watchers that go from replica to replica.

* `same-state`   a read shows what the key was at the revision of its answer
* `watch`        a watcher is told each change once, in order, as committed, without a gap; what has left the log it is
                 told that it cannot see
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from ledger.rights.principal import CLUSTER
from rsm_spark.core.commands import AnswerStatus, Command, Query
from rsm_spark.core.freshness import LINEARIZABLE, STALE, ReadKind, at_least
from rsm_spark.map.client.watch_place import WatchPlace
from rsm_spark.map.commands import (
    Branch,
    CompareRange,
    Delete,
    DeleteRange,
    Granted,
    GrantLease,
    KeepLease,
    MapCommand,
    NotFound,
    Put,
    PutExpiring,
    RevokeLease,
    WriteKey,
)
from rsm_spark.map.messages import decode_reply, decode_result, encode
from rsm_spark.map.queries import Found, Get
from rsm_spark.map.records import MAP_TABLE
from rsm_spark.runtime.change_filter import TableChange
from rsm_spark.testing.cluster import LOG, ReplicaCluster, UnreachableError
from rsm_spark.testing.sessions import SessionClient
from rsm_spark.transport import guard
from rsm_spark.transport.told_stream import FIRST_REVISION_KEY
from rsm_spark.transport.watch_codec import (
    ReceivedChanges,
    WatchRequest,
    decode_changes,
    encode_watch,
)
from rsm_spark.transport.watch_service import WatchService
from tests.sim.map_truth import MapTruth, TrueChange

__all__ = ["MapCaller", "Watcher"]

KEYS = [b"k%d" % number for number in range(6)]
_TTLS_MS = (300, 1_000, 3_000)
_SILENT_S = 4.0
_DIES = 0.3


class MapCaller(SessionClient):
    """A client of the map; `truth` hears when each command is first sent."""

    def __init__(self, cluster: ReplicaCluster, rng: random.Random, name: str, truth: MapTruth) -> None:
        super().__init__(cluster, rng, name)
        self._truth = truth
        self._leases: list[int] = []

    async def step(self) -> None:
        """Ask one thing, to its end."""
        if self._session is None:
            self._leases.clear()
            await self._open()
        elif self._rng.random() < 0.2:
            await self._get(self._rng.choice(KEYS))
        else:
            await self._send(self._draw())

    def _draw(self) -> MapCommand:
        rng, key = self._rng, self._rng.choice(KEYS)
        value = b"%s/%d" % (self._name.encode(), self._sequence)
        draw = rng.random()
        if draw < 0.15 or not self._leases:
            return GrantLease(rng.choice(_TTLS_MS)) if draw < 0.5 else Put(key, value)
        if draw < 0.35:
            return KeepLease(rng.choice(self._leases))
        if draw < 0.6:
            return PutExpiring(key, value, 0, rng.choice(self._leases))
        if draw < 0.8:
            return PutExpiring(key, value, rng.choice(_TTLS_MS), 0)
        if draw < 0.85:
            return RevokeLease(rng.choice(self._leases))
        if draw < 0.9:
            return Delete(key)
        return self._branch(key, value) if draw < 0.96 else Put(key, value)

    def _branch(self, key: bytes, value: bytes) -> Branch:
        """Write two keys if the one exists, else another two, of which one may go with a lease."""
        rng = self._rng
        one, other = rng.sample(KEYS, 2)
        exists = CompareRange(key, key + b"\0", "version", ">", 0)
        attached = WriteKey(other, value, rng.choice([0, *self._leases]))
        kept = WriteKey(other, value, 0)
        return Branch([exists], [WriteKey(one, value, 0), attached], [DeleteRange(one, None), kept])

    async def _send(self, message: MapCommand) -> None:
        assert self._session is not None
        self._sequence += 1
        request = Command(self._session, self._sequence, self._answered_up_to, encode(message))
        began_s = self._truth.sent_s[request.session, request.sequence] = self._now()
        while True:
            answers = await self._ask([request])
            if answers is None:
                continue
            (answer,) = answers
            if answer.status is AnswerStatus.SESSION_EXPIRED:
                self._lose()
                return
            if answer.status is AnswerStatus.OK:
                break
        self._ghosts.told(request.session, request.sequence, answer.payload)
        self.acknowledged += 1
        self._answered_up_to = self._sequence
        self._alive_s = max(self._alive_s, began_s)
        self._seen_revision = max(self._seen_revision, answer.revision)
        reply = decode_reply(answer.payload)
        if isinstance(reply, Granted):
            self._leases.append(reply.lease)
        elif isinstance(message, RevokeLease) or (isinstance(message, KeepLease) and isinstance(reply, NotFound)):
            self._leases.remove(message.lease)

    async def _get(self, key: bytes) -> None:
        freshness = self._rng.choice((LINEARIZABLE, STALE, at_least(self._seen_revision)))
        name = self._target if freshness.kind is ReadKind.LINEARIZABLE else self._rng.choice(self._cluster.hosts).name
        try:
            (answer,) = await self._cluster.call(name, [Query(encode(Get(key)))], 1.0, freshness)
        except UnreachableError:
            return
        if answer.status is AnswerStatus.OK:
            self.reads[freshness.kind] += 1
            found = decode_result(answer.payload)
            value = (found.value, found.revision) if isinstance(found, Found) else (None, 0)
            if value != (true := self._truth.value_at(key, answer.revision)):
                what = f"{key!r} is read as {value!r} at revision {answer.revision}, where it is {true!r}"
                self._ghosts.fail("same-state", what)


class _EndedError(Exception):
    """The replica has ended a stream."""


class _Stream:
    """One watch on one replica: the replica's side writes to it, messages arrive later, in order, until it is cut."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._last = self._from_revision = 0
        self._loop = asyncio.get_running_loop()
        self.is_cut = False
        self.ended = self._loop.create_future()
        self.heard_s = self._due_s = self._loop.time()

    async def serve(self, service: WatchService, from_revision: int) -> None:
        """Run the replica's side, in its process."""
        self._from_revision = from_revision
        guard._CALLER.set(guard._Caller(CLUSTER, lambda: CLUSTER))  # No guard stands before it here.
        try:
            await service._watch(encode_watch(self._request()), self)
        except _EndedError:
            pass

    def _request(self) -> WatchRequest:
        wants_old = self._watcher.wants_old
        return WatchRequest(LOG, MAP_TABLE, from_revision=self._from_revision, old_rows=wants_old)

    async def write(self, text: bytes) -> None:
        """Send a message; nobody may be there any more."""
        await asyncio.sleep(0)
        if self.is_cut:
            raise _EndedError
        self._later(self._arrive, text)

    async def abort(self, code: grpc.StatusCode, text: str, trailing_metadata: Sequence[Any] = ()) -> None:
        """End the stream."""
        await asyncio.sleep(0)
        self._later(self._end, code, text, dict(trailing_metadata))
        raise _EndedError

    def _later(self, action: Callable[..., None], *arguments: Any) -> None:
        watcher, now_s = self._watcher, self._loop.time()
        self._due_s = max(self._due_s + 1e-6, now_s + watcher.rng.uniform(0.0002, 0.02))
        watcher.cluster.simulation.after(self._due_s - now_s, action, *arguments)

    def _arrive(self, text: bytes) -> None:
        if not self.is_cut:
            self.heard_s = self._loop.time()
            received = decode_changes(text)
            for change in received.changes:
                if change.revision <= self._last or change.mod_revision < self._from_revision:
                    self._watcher.fail(f"is told of revision {change.revision} again, or late")
                self._last = change.revision
            self._watcher.take(received)

    def _end(self, code: grpc.StatusCode, _text: str, metadata: dict[str, str]) -> None:
        if not self.is_cut and code is grpc.StatusCode.OUT_OF_RANGE:
            self._watcher.skip(int(metadata[FIRST_REVISION_KEY]))
        if not self.ended.done():
            self.ended.set_result(None)


class Watcher:
    """Watches the whole map from its first revision on, wherever it is served.

    Args:
        cluster: The replicas.
        services: The watch service of each running one.
        truth: What is to be seen.
        first_retained: Returns the first revision that the log still has.
        rng: Decides when it moves on.
        name: For what is broken.

    Attributes:
        seen_count: Changes seen.
        skipped_count: Times that it was told that something had left the log.
        wants_old: It asks for old values.

    """

    wants_old = False

    def __init__(
        self,
        cluster: ReplicaCluster,
        services: dict[str, WatchService],
        truth: MapTruth,
        first_retained: Callable[[], int],
        rng: random.Random,
        name: str,
    ) -> None:
        self.cluster = cluster
        self.rng = rng
        self.seen_count = 0
        self.skipped_count = 0
        self._services = services
        self._truth = truth
        self._first_retained = first_retained
        self._name = name
        self._pause_s = rng.choice((0.3, 0.3, 20.0))  # In the long one, what it has not seen may leave the log.
        self._place = WatchPlace(1)
        self._at = 0  # Changes of the truth that are behind it.
        # Told, and not yet known to be true: who reads the log may be ahead of every replica.
        self._ahead: deque[TrueChange] = deque()

    @property
    def is_at_end(self) -> bool:
        """Whether it has seen all that there is, and nothing else."""
        self._compare()
        return not self._ahead and self._at == len(self._truth.changes)

    async def run(self) -> None:
        """Watch, until cancelled."""
        while True:
            host = self.rng.choice(self.cluster.hosts)
            service = self._services.get(host.name)
            if service is not None and host.is_up and host.name in self.cluster.replicas:
                stream = _Stream(self)
                host.spawn(stream.serve(service, self._place.next_revision))
                await self._stay(stream, self.rng.expovariate(1 / 5.0))
                stream.is_cut = True
                if self.rng.random() < _DIES:
                    self._go_on_elsewhere()
            await asyncio.sleep(self.rng.uniform(0.01, self._pause_s))

    async def _stay(self, stream: _Stream, most_s: float) -> None:
        """Listen until the stream ends, is silent, or it is time to go elsewhere."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + most_s
        while not stream.ended.done() and loop.time() < min(until_s, stream.heard_s + _SILENT_S):
            await asyncio.wait([stream.ended], timeout=0.2)

    def _go_on_elsewhere(self) -> None:
        """Go on as another process: it knows the last revision that was told as a whole, and nothing else."""
        self._place = WatchPlace(self._place.next_revision)
        known, truth = self._place.revision, self._truth.changes
        while self._ahead and self._ahead[-1].mod_revision > known:
            self._ahead.pop()
        while self._at and truth[self._at - 1].mod_revision > known:
            self._at -= 1

    def take(self, received: ReceivedChanges) -> None:
        """Take a message."""
        for change, _ in self._place.take(received):
            self._ahead.append(TrueChange(*change[:4], change.mod_revision))
            self.note(change)
        self._compare()

    def note(self, change: TableChange) -> None:
        """Hear of a change that was told, before it is compared."""

    def _compare(self) -> None:
        """Compare what it was told with what is known to be true by now."""
        truth = self._truth.changes
        while self._at < len(truth) and self._ahead:
            told = self._ahead.popleft()
            if truth[self._at] != told:
                self.fail(f"is told {told}, what follows is {truth[self._at]}")
            self._at += 1
            self.seen_count += 1
        if self._at < len(truth) and truth[self._at].mod_revision <= self._place.revision:
            known = self._place.revision
            self.fail(f"is told that there is nothing up to revision {known}, there is {truth[self._at]}")

    def skip(self, first: int) -> None:
        """Go on where the log begins: what was before is gone."""
        wanted = self._place.next_revision
        if not wanted < first <= self._first_retained():
            self.fail(f"at {wanted} is sent on to {first}, the log begins at {self._first_retained()}")
        self._compare()
        self.skipped_count += 1
        self._place.begin_behind(first - 1)
        while self._at < len(self._truth.changes) and self._truth.changes[self._at].mod_revision < first:
            self._at += 1

    def fail(self, what: str) -> None:
        """Say what is broken."""
        self.cluster.ghosts.fail("watch", f"{self._name} {what}")
