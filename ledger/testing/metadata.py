"""A simulated ZooKeeper: the service, its sessions and its faults. The client's end is `metadata_session`.

What it keeps to, as ZooKeeper does: writes are linearizable; one session's requests are applied and answered in
their order; a session never sees the tree go back, sees its own writes, and sees a watch's event before the state
that caused it. What may go wrong: a reply is lost with the write applied, not applied, or applied seconds later; the
server asked lags behind until `sync`; watches come late or die with the connection; sessions expire with their
ephemeral nodes, and the client learns of it only once it is connected again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ledger.errors import LedgerError
from ledger.testing.loop import current_process, outside
from ledger.testing.metadata_session import Reply, SimMetadataSession, Watch
from ledger.testing.metadata_tree import MetadataTree
from ledger.testing.simulation import Simulation

__all__ = ["ServerSession", "SimMetadata"]

_LATE_WRITE_S = (0.0, 3.0)


@dataclass(slots=True, eq=False)
class ServerSession:
    """What the service knows of one session.

    Attributes:
        session_id: From 1.
        timeout_s: Silence after which it expires.
        heard_at_s: Loop time of the last request that arrived.
        is_alive: False once expired or closed.
        view_zxid: What the server that this session uses has applied; never goes back.
        watches: Not yet fired, in the order of their setting.

    """

    session_id: int
    timeout_s: float
    heard_at_s: float
    is_alive: bool = True
    view_zxid: int = 0
    watches: list[Watch] = field(default_factory=list)


class SimMetadata:
    """The service. Hosts reach it under `name`: cut paths to and from it as between hosts.

    Attributes:
        tree: The nodes; tests may read and write them directly.
        lost_reply_rate: Share of requests whose connection breaks instead of an answer.
        late_write_rate: Share of those that are applied only later.
        lag_s: Most that the server asked is behind.
        watch_delay_s: Most that a watch's event is held up beside that.
        is_available: False: no server answers anybody, and no session expires.

    """

    def __init__(self, simulation: Simulation, name: str = "zookeeper") -> None:
        self.simulation = simulation
        self.name = name
        self.tree = MetadataTree()
        self.lost_reply_rate = 0.0
        self.late_write_rate = 0.3
        self.lag_s = 0.0
        self.watch_delay_s = 0.0
        self.is_available = True
        self.sessions: dict[int, ServerSession] = {}
        self.clients: dict[int, SimMetadataSession] = {}
        self._rng = simulation.random("metadata")
        self._loop = simulation.loop
        # (time, zxid) of each write, ascending in both.
        self._commits: list[tuple[float, int]] = [(0.0, 0)]

    # --- what programs use

    async def connect(self, *, session_timeout_ms: int = 10_000) -> SimMetadataSession:
        """Open a session from the host whose code this is; waits until the service answers."""
        process = current_process()
        assert process is not None, "only a process of a simulated host can connect"
        session = SimMetadataSession(self, self._loop, process.name, session_timeout_ms / 1000)
        await session.open()
        return session

    # --- faults

    def expire(self, session_id: int) -> None:
        """Expire a session now; its client hears of it at its next contact."""
        session = self.sessions.get(session_id)
        if session is not None and session.is_alive:
            self._end(session)

    def set_available(self, is_available: bool) -> None:
        """Stop or restart all servers; whoever leads afterwards gives every session its full time again."""
        self.is_available = is_available
        if is_available:
            for session in self.sessions.values():
                session.heard_at_s = self._loop.time()

    def make_healthy(self) -> None:
        """End all faults."""
        self.lost_reply_rate = self.lag_s = self.watch_delay_s = 0.0
        if not self.is_available:
            self.set_available(True)

    # --- called by sessions, in no process

    def hears(self, host: str) -> bool:
        """Whether what this host sends arrives."""
        return self.is_available and self.simulation.network.is_open(host, self.name)

    def reaches(self, host: str) -> bool:
        """Whether what is sent to this host arrives."""
        return self.is_available and self.simulation.network.is_open(self.name, host)

    def draw_latency_s(self, host: str) -> float:
        """Draw how long the next message travels."""
        return self.simulation.network.draw_latency_s(host, self.name)

    def draw(self, rate: float) -> bool:
        """Draw whether something happens that happens at this rate."""
        return rate > 0 and self._rng.random() < rate

    def open_session(self, client: SimMetadataSession, timeout_s: float) -> ServerSession:
        """Start a session."""
        session = ServerSession(len(self.sessions) + 1, timeout_s, self._loop.time(), view_zxid=self.tree.zxid)
        self.sessions[session.session_id] = session
        self.clients[session.session_id] = client
        self._loop.call_later(timeout_s, self._check_expiry, session, context=outside())
        return session

    def close_session(self, session: ServerSession) -> None:
        """End a session at its client's wish."""
        if session.is_alive:
            self._end(session)

    def read(self, session: ServerSession, reader: Callable[[int], Any]) -> Reply:
        """Answer from what the session's server has applied."""
        self.advance(session)
        return self._reply(lambda: reader(session.view_zxid))

    def write(self, session: ServerSession, writer: Callable[[], Any]) -> Reply:
        """Apply a write; the session's server has applied it when it answers."""
        before = self.tree.zxid
        reply = self._reply(writer)
        if self.tree.zxid != before:
            self._committed()
            session.view_zxid = self.tree.zxid
        return reply

    def write_later(self, session: ServerSession, writer: Callable[[], Any]) -> None:
        """Apply a write whose client has been told that the connection broke."""

        def apply() -> None:
            if session.is_alive:
                self.write(session, writer)

        self._loop.call_later(self._rng.uniform(*_LATE_WRITE_S), apply, context=outside())

    def sync(self, session: ServerSession) -> None:
        """Let the session's server catch up."""
        session.view_zxid = self.tree.zxid

    def advance(self, session: ServerSession) -> None:
        """Let the session's server apply what it may have received by now."""
        at_s = self._loop.time() - (self._rng.uniform(0.0, self.lag_s) if self.lag_s else 0.0)
        place = bisect_right(self._commits, at_s, key=lambda commit: commit[0]) - 1
        session.view_zxid = max(session.view_zxid, self._commits[max(place, 0)][1])

    def due_watches(self, session: ServerSession) -> list[Watch]:
        """Take the watches whose change the session's server has applied."""
        due = [
            watch
            for watch in session.watches
            if (at := self.tree.first_change_after(watch.after_zxid, watch.path, watch.what)) is not None
            and at <= session.view_zxid
        ]
        session.watches = [watch for watch in session.watches if watch not in due]
        return due

    def look_later(self, session: ServerSession) -> None:
        """Have the session's watches checked once its server has caught up with what is written now."""
        if session.watches:
            delay_s = self.lag_s + self._rng.uniform(0.0, self.watch_delay_s)
            self._loop.call_later(delay_s, self._look, session, context=outside())

    # --- inside

    def _look(self, session: ServerSession) -> None:
        if session.is_alive:
            self.advance(session)
            self.clients[session.session_id].deliver_watches(session)

    def _reply(self, action: Callable[[], Any]) -> Reply:
        try:
            return Reply(action(), None)
        except LedgerError as error:
            return Reply(None, error)

    def _committed(self) -> None:
        self._commits.append((self._loop.time(), self.tree.zxid))
        for session in self.sessions.values():
            if session.is_alive:
                self.look_later(session)

    def _check_expiry(self, session: ServerSession) -> None:
        if not session.is_alive:
            return
        left_s = session.heard_at_s + session.timeout_s - self._loop.time()
        if not self.is_available:
            left_s = session.timeout_s
        if left_s > 0:
            self._loop.call_later(left_s, self._check_expiry, session, context=outside())
        else:
            self._end(session)

    def _end(self, session: ServerSession) -> None:
        session.is_alive = False
        session.watches.clear()
        self._loop.note(b"session %d ended" % session.session_id)
        before = self.tree.zxid
        self.tree.end_session(session.session_id)
        if self.tree.zxid != before:
            self._committed()
