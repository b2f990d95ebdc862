"""The map behind etcd's API, on any replica: writes go to the leader, reads are answered here.

A read asks the leader for its revision first, one question for all reads that wait, and is answered from the state of
this replica once it has applied that much: on the leader too, where the state as it is may be ahead of what is
confirmed; the history of the map takes that back.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

from rsm_spark.client.leader_links import links_of
from rsm_spark.core.commands import AnswerStatus, Query
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.member import Member
from rsm_spark.map import commands as c
from rsm_spark.map import queries as q
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.etcd_pb2 import ResponseHeader
from rsm_spark.map.etcd.events import EventCache
from rsm_spark.map.etcd.key_texts import KeyTexts, field_text
from rsm_spark.map.etcd.view import MapView
from rsm_spark.map.key_history import KeyHistory
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.messages import decode_reply, decode_result, encode
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.transport.near_stream import NearReplica
from rsm_spark.transport.security import Security

CALL_S_MAX = 30.0
_WHAT_REVISION = encode(q.Get(b"\0"))


class EtcdBackend:
    """See the module.

    Args:
        replica: Of the map.
        machine: Its machine; gets a history.
        feed: Of its records.
        discovery: Finds the other replicas.
        log: Name of the log.
        security: Of this replica: how it calls the leader.
        past: Opens what the history does not remember; None = nobody does.
        near: The same replica, as its own client; None = its port is used.

    Attributes:
        replica: The same.
        feed: The same.
        events: Of the entries of the feed.
        discovery: The same.
        log: The same.
        past: The same.

    """

    def __init__(
        self,
        replica: Replica,
        machine: MapMachine,
        feed: ChangeFeed,
        discovery: Discovery,
        log: str,
        security: Security,
        past: PastRows | None = None,
        near: NearReplica | None = None,
    ) -> None:
        self.replica = replica
        self.feed = feed
        self.discovery = discovery
        self.log = log
        self.past = past
        self._machine = machine
        self._history = machine.history = KeyHistory()
        self.events = EventCache(lambda: self._history)
        self._links = links_of(discovery, log, security, CALL_S_MAX, near)
        self._texts = KeyTexts()
        self._member_id = 0
        self._cluster_id = 0
        # Header of the last answer in bytes: its revision and term, and itself.
        self._header: tuple[int, int, bytes] = (-1, -1, b"")
        # Reads that the next question is for.
        self._asking: asyncio.Future[int] | None = None
        self._asker: asyncio.Task[None] | None = None
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def start(self) -> None:
        """Begin; the replica has its state."""
        status = self.replica.status()
        self._member_id = member_number(status.replica_id)
        self._cluster_id = int(status.log_id[:16], 16)
        self._history.begin(self.replica.revision)
        self.replica.on_applied(self._on_applied)

    async def stop(self) -> None:
        """Give up what is under way."""
        if self._asker is not None:
            self._asker.cancel()
        for waiting in self._waiting:
            waiting.cancel()
        await self._links.close()

    # ---- what it is

    @property
    def revision(self) -> int:
        """Last revision that is confirmed here."""
        return self.replica.revision

    @property
    def logged_ms(self) -> int:
        """Logged time of the last confirmed entry: the leader's clock, half a second old at most if it is heard."""
        return self.replica.logged_ms

    @property
    def compacted(self) -> int:
        """Revision below which nobody may ask; 0 = none."""
        return self._machine.compacted

    @property
    def alarms(self) -> list[q.AlarmShown]:
        """Alarms that are raised, as this replica has them."""
        return self._machine.alarms.shown

    @property
    def key_count(self) -> int:
        return len(self._machine)

    def header(self, revision: int | None = None) -> ResponseHeader:
        """Return the header of an answer that shows a revision; None = that of this replica."""
        return ResponseHeader(
            cluster_id=self._cluster_id,
            member_id=self._member_id,
            revision=self.revision if revision is None else revision,
            raft_term=self.replica.leader_epoch,
        )

    def header_text(self, revision: int | None = None) -> bytes:
        """Return the same as the first field of an answer, in bytes."""
        shown, term = self.revision if revision is None else revision, self.replica.leader_epoch
        if self._header[:2] != (shown, term):
            self._header = (shown, term, field_text(1, self.header(shown).SerializeToString()))
        return self._header[2]

    async def members(self) -> list[Member]:
        """Return the live replicas.

        Raises:
            MetadataError: Nobody can say.

        """
        return await self.discovery.members()

    # ---- asking

    async def execute(self, command: c.MapCommand, owner: str) -> Any:
        """Have the leader carry out a command, once; return its reply.

        Args:
            command: What to do.
            owner: Whose command it is.

        Raises:
            EtcdError: Something that it relies on is not so, or the map refuses it.
            RsmError: There is no answer.

        """
        async with self._links.of(owner) as client:
            return checked((await client.execute(encode(command))).payload)

    async def execute_many(self, commands: Sequence[c.MapCommand], owner: str) -> list[Any]:
        """Have the leader carry out commands that travel together; return their replies as they are."""
        async with self._links.of(owner) as client:
            replies = await client.execute_many([encode(one) for one in commands])
        return [decode_reply(reply.payload) for reply in replies]

    async def query(self, query: q.MapQuery) -> tuple[Any, int]:
        """Return the leader's answer to a query, and its revision.

        Raises:
            RsmError: There is none.

        """
        payload, revision = await self._query(encode(query))
        return decode_result(payload), revision

    async def _query(self, payload: bytes) -> tuple[bytes, int]:
        if self.replica.role is ReplicaRole.LEADER:
            (answer,) = await self.replica.submit([Query(payload)])
            if answer.status is AnswerStatus.OK:
                return answer.payload, answer.revision
        async with self._links.of("") as client:
            return await client.query(payload)

    async def linearizable(self) -> int:
        """Return a revision that is not before any write that was answered when this was called; applied here.

        Raises:
            RsmError: There is no leader, or this replica is far behind.

        """
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_future()
            if self._asker is None or self._asker.done():
                self._asker = asyncio.get_running_loop().create_task(self._ask())
        revision = await asyncio.shield(self._asking)
        await self.applied(revision)
        return revision

    async def _ask(self) -> None:
        """Ask for all that wait, as long as somebody does."""
        while (asking := self._asking) is not None:
            self._asking = None
            try:
                _, revision = await self._query(_WHAT_REVISION)
            except Exception as error:  # noqa: BLE001 - those who wait are told
                asking.set_exception(error)
                asking.exception()  # They may have gone.
            else:
                asking.set_result(revision)

    async def applied(self, revision: int) -> None:
        """Wait until this replica has applied so much.

        Raises:
            EtcdError: It takes too long.

        """
        if self.revision >= revision:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = revision
        try:
            async with asyncio.timeout(CALL_S_MAX):
                await waiting
        except TimeoutError:
            raise e.unavailable(e.BEHIND) from None
        finally:
            del self._waiting[waiting]

    def _on_applied(self, revision: int) -> None:
        self._history.begin(revision)
        for waiting, wanted in self._waiting.items():
            if wanted <= revision and not waiting.done():
                waiting.set_result(None)

    # ---- the map at a revision

    def view(self, revision: int) -> MapView:
        """Return the map at a revision that a client asks for.

        Raises:
            EtcdError: It is compacted, forgotten, or has not come yet.

        """
        if revision > self.revision:
            raise e.future()
        if revision < self._machine.compacted:
            raise e.compacted()
        return self.view_before(revision, again=revision != self.revision)

    def is_forgotten(self, revision: int) -> bool:
        """Return whether a revision may be asked for, but is from before what the history remembers."""
        floor = self._history.floor
        return floor is not None and self._machine.compacted <= revision < floor

    def view_before(self, revision: int, *, again: bool = False) -> MapView:
        """Return the map at a revision, as far as it is remembered, compacted or not.

        Raises:
            EtcdError: It is forgotten, or this replica has no state now.

        """
        if not self.replica.has_state:
            raise e.unavailable(e.NO_LEADER)
        floor = self._history.floor
        if floor is None:  # It has just been built anew.
            raise e.unavailable(e.NO_LEADER)
        if revision < floor:
            raise e.compacted()
        return MapView(self._machine, revision, self._history.overlay(revision, again=again), self._texts)

    def keys_of_lease(self, lease: int) -> list[bytes]:
        """Return the keys that are attached to a lease, as this replica has them."""
        return list(self._machine.keys_of_lease(lease))


def checked(payload: bytes) -> Any:
    """Return a reply that is no refusal.

    Raises:
        EtcdError: It is one.

    """
    reply = decode_reply(payload)
    if isinstance(reply, c.Unfulfilled):
        raise e.unmet(reply.what)
    if isinstance(reply, c.MapRefused):
        raise e.refused(reply.reason)
    return reply


def member_number(replica_id: str) -> int:
    """Return the number by which etcd's clients know a replica."""
    return int.from_bytes(hashlib.sha256(replica_id.encode()).digest()[:8], "big")
