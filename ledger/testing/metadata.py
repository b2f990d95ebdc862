"""The metadata store in virtual time: what ZooKeeper promises, and all the trouble it is allowed to make.

One leader decides on writes; each session talks to one of three followers that lag. Reads may be stale until `sync`;
a session reads its own writes and never goes back in time while it stays with one server. A connection may break
with requests under way: they end in `MetadataUnavailableError`, though some of them are applied, now or a moment
later. A session that is not heard of for its time-out expires, and its ephemeral nodes go.

Hosts reach it under the name `METADATA_HOST`: block that on the network to cut one of them off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledger.testing.hosts import FIRST_WALL_CLOCK_MS
from ledger.testing.loop import SimLoop
from ledger.testing.metadata_session import SimMetadataSession
from ledger.testing.metadata_tree import Leader, TreeReplica, TreeWrite
from ledger.testing.network import SimNetwork

METADATA_HOST = "metadata"
_REPLICA_COUNT = 3
_FIRST_SESSION_ID = 0x1000


@dataclass(frozen=True)
class MetadataRates:
    """Rates of the metadata store's faults.

    Attributes:
        lost_reply_rate: Probability that the connection breaks when a request has been applied.
        lost_request_rate: Probability that the connection breaks when a request arrives.
        late_rate: Probability that a request whose connection broke is applied a moment later all the same.
        lost_watch_rate: Probability that a watch is never heard of.
        lag_rate: Probability that a follower learns of a change only after up to `lag_s_max`.
        lag_s_max: See `lag_rate`.

    """

    lost_reply_rate: float = 0.0
    lost_request_rate: float = 0.0
    late_rate: float = 0.3
    lost_watch_rate: float = 0.0
    lag_rate: float = 0.2
    lag_s_max: float = 1.0


@dataclass
class _ServerSession:
    """Session as the servers know it."""

    timeout_s: float
    heard_at: float


class SimMetadata:
    """The servers. `connect` opens a session for the host that is running.

    Attributes:
        leader: What is committed, for tests to look at.
        is_available: Whether there is a quorum; see `set_available`.
        write_s: (least, most) time that the servers' disks take for a write, and for the beginning of a session: what
            the session asks behind it waits, its pings too, and a client that hears nothing leaves its server.
        on_change: Called with each committed change, in their order: what the truth is, whoever has heard of it.

    """

    def __init__(self, loop: SimLoop, network: SimNetwork, rates: MetadataRates | None = None) -> None:
        self.loop = loop
        self.network = network
        self.rates = rates or MetadataRates()
        self.rng = loop.random_for("metadata")
        self.leader = Leader()
        self.replicas = [TreeReplica() for _ in range(_REPLICA_COUNT)]
        self.is_available = True
        self.write_s: tuple[float, float] = (0.0, 0.0)
        self.on_change: list[Callable[[TreeWrite], None]] = []
        self._next_session_id = _FIRST_SESSION_ID
        self._sessions: dict[int, _ServerSession] = {}
        self._written_at: dict[str, float] = {}
        self._connected: list[SimMetadataSession] = []

    # --- for tests and faults

    async def connect(self, *, session_timeout_ms: int = 10_000) -> SimMetadataSession:
        """Open a session that lives and dies with the process that is running.

        Raises:
            MetadataUnavailableError: No server answered in time.

        """
        session = SimMetadataSession(self, session_timeout_ms / 1000)
        self._connected.append(session)
        await session.start()
        return session

    def set_available(self, is_available: bool) -> None:
        """Take the quorum away, or give it back: then all sessions are counted as just heard."""
        self.is_available = is_available
        if is_available:
            for session in self._sessions.values():
                session.heard_at = self.loop.time()

    def expire(self, session_id: int) -> None:
        """End a session as if it had not been heard of; its client learns of it when it next asks."""
        if self._sessions.pop(session_id, None) is None:
            return
        self.loop.note(b"expired %d" % session_id)
        for path in self.leader.owned_by(session_id):
            self.commit(self.leader.delete(path, -1))

    def session_ids(self) -> list[int]:
        """Return the sessions that live, oldest first."""
        return list(self._sessions)

    def drop_connections(self, host: str | None = None) -> None:
        """Break the connections of one host, or of all: the sessions go on."""
        for session in self._connected:
            if host is None or session.host == host:
                session.drop()

    # --- what sessions ask

    def open_session(self, timeout_s: float) -> int:
        self._next_session_id += 1
        self._sessions[self._next_session_id] = _ServerSession(timeout_s, self.loop.time())
        self._look_after(self._next_session_id)
        return self._next_session_id

    def close_session(self, session_id: int) -> None:
        """End a session at its client's wish."""
        self.expire(session_id)

    def hear(self, session_id: int) -> bool:
        """Take note that a session's client is alive; return whether the session is."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.heard_at = self.loop.time()
        return True

    def write_time_s(self) -> float:
        """Draw how long a write that comes now takes."""
        return self.rng.uniform(*self.write_s) if self.write_s[1] else 0.0

    def is_reachable(self, host: str) -> bool:
        """Return whether a host's packets arrive and there is a quorum."""
        return self.is_available and not self.network.is_blocked(host, METADATA_HOST)

    def is_heard_by(self, host: str) -> bool:
        """Return whether packets to a host arrive."""
        return not self.network.is_blocked(METADATA_HOST, host)

    def modified_ms(self, path: str) -> int:
        """Return when a node was last written: the servers' clock is right.

        Raises:
            NoNodeError: It does not exist.

        """
        self.leader.node(path)
        return FIRST_WALL_CLOCK_MS + int(self._written_at.get(path, 0.0) * 1000)

    def commit(self, changes: list[TreeWrite]) -> None:
        """Send committed changes to the followers; each applies them in order, sooner or later."""
        for change in changes:
            self.loop.note(change.path.encode())
            self._written_at[change.path] = self.loop.time()
            for listener in self.on_change:
                listener(change)
        for replica in self.replicas:
            replica.pending += changes
            delay_s = self.network.delay_s()
            if self.rng.random() < self.rates.lag_rate:
                delay_s += self.rng.uniform(0.0, self.rates.lag_s_max)
            # Counted from the front: a later, faster message brings what came before it along.
            self.network.later(delay_s, _catch_up, replica, changes[-1])

    def forget(self, session: SimMetadataSession) -> None:
        """Drop a closed session."""
        if session in self._connected:
            self._connected.remove(session)

    def _look_after(self, session_id: int) -> None:
        """Expire a session that was not heard of, or look again when it could be."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        left_s = session.heard_at + session.timeout_s - self.loop.time()
        if left_s <= 0 and self.is_available:
            self.expire(session_id)
        else:
            self.network.later(max(left_s, session.timeout_s / 10), self._look_after, session_id)


def _catch_up(replica: TreeReplica, change: TreeWrite) -> None:
    for index, pending in enumerate(replica.pending):
        if pending is change:
            replica.catch_up(index + 1)
            return
