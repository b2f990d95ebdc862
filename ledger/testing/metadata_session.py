"""The client's end of a session with the simulated metadata store: implements `ledger.ports.MetadataStore`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

import msgspec

from ledger.errors import (
    LedgerError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.ports import ANY_VERSION, SessionState, Versioned, Watcher
from ledger.testing.loop import SimLoop, outside
from ledger.testing.metadata_tree import Change

if TYPE_CHECKING:
    from ledger.testing.metadata import ServerSession, SimMetadata

__all__ = ["Reply", "SimMetadataSession", "Watch"]

_RECONNECT_S = (0.02, 0.5)
_REPLY_S_MIN = 2.0


class Reply(msgspec.Struct, frozen=True):
    """What the service answered: a value, or an error."""

    value: Any
    error: LedgerError | None


class Watch(msgspec.Struct, frozen=True, eq=False):
    """One wish to hear of the first change after `after_zxid`."""

    path: str
    what: Change
    after_zxid: int
    watcher: Watcher


class SimMetadataSession:
    """A session of one host; made by `SimMetadata.connect`."""

    def __init__(self, service: SimMetadata, loop: SimLoop, host: str, timeout_s: float) -> None:
        self._service = service
        self._loop = loop
        self._host = host
        self._timeout_s = timeout_s
        self._reply_s_max = max(_REPLY_S_MIN, 1.5 * timeout_s)
        self._context: Context = copy_context()
        self._rng = loop.random_for(f"metadata session of {host}")
        self._state = SessionState.SUSPENDED
        self._session: ServerSession | None = None
        self._listeners: list[Callable[[SessionState], None]] = []
        # Requests on the way, in order; answered, or failed all at once when the connection breaks.
        self._pending: list[asyncio.Future[Reply]] = []
        self._connected = asyncio.Event()
        # Messages of one connection keep their order both ways; a message of an older connection is void.
        self._connection = 0
        self._last_arrival_s = self._last_answer_s = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._is_closed = False

    # --- MetadataStore

    @property
    def session_state(self) -> SessionState:
        """See `MetadataStore`."""
        return self._state

    @property
    def session_id(self) -> int:
        """See `MetadataStore`; 0 while there is none."""
        return 0 if self._session is None else self._session.session_id

    def on_session_state(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        """See `MetadataStore`."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    async def get(self, path: str, *, watch: Watcher | None = None) -> Versioned:
        """See `MetadataStore`."""
        tree = self._service.tree

        def read(zxid: int) -> Versioned:
            node = tree.get(path, zxid)
            return Versioned(node.value, node.version)

        found: Versioned = await self._read(read, path, Change.VALUE, watch)
        return found

    async def exists(self, path: str, *, watch: Watcher | None = None) -> int | None:
        """See `MetadataStore`."""
        tree = self._service.tree

        def read(zxid: int) -> int | None:
            node = tree.find(path, zxid)
            return None if node is None else node.version

        found: int | None = await self._read(read, path, Change.VALUE, watch)
        return found

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        """See `MetadataStore`."""
        tree = self._service.tree
        found: list[str] = await self._read(
            lambda zxid: list(tree.get(path, zxid).children), path, Change.CHILDREN, watch
        )
        return found

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        """See `MetadataStore`."""

        def write() -> str:
            owner = self.session_id if ephemeral else 0
            return self._service.tree.create(path, value, owner=owner, is_sequential=sequential)

        try:
            created: str = await self._write(write)
        except NoNodeError:
            if not parents:
                raise
            parent = path.rpartition("/")[0]
            with contextlib.suppress(NodeExistsError):
                await self.create(parent, parents=True)
            created = await self._write(write)
        return created

    async def set(self, path: str, value: bytes, version: int) -> int:
        """See `MetadataStore`."""
        new_version: int = await self._write(lambda: self._service.tree.set(path, value, version))
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `MetadataStore`."""
        await self._write(lambda: self._service.tree.delete(path, version))

    async def sync(self, path: str) -> None:
        """See `MetadataStore`."""
        del path

        def arrive(session: ServerSession) -> Reply:
            self._service.sync(session)
            return Reply(None, None)

        await self._ask(arrive, None)

    async def close(self) -> None:
        """See `MetadataStore`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._listeners.clear()
        if self._keeper is not None:
            self._keeper.cancel()
        session = self._session
        if session is not None and self._service.hears(self._host):
            self._service.close_session(session)
        self._fail_pending(MetadataSessionLostError("the session was closed"))
        self._connected.set()

    # --- asking

    async def _read(
        self, reader: Callable[[int], Any], path: str, what: Change, watch: Watcher | None
    ) -> Any:
        def arrive(session: ServerSession) -> Reply:
            reply = self._service.read(session, reader)
            if watch is not None and reply.error is None:
                session.watches.append(Watch(path, what, session.view_zxid, watch))
                self._service.look_later(session)
            return reply

        return await self._ask(arrive, None)

    async def _write(self, writer: Callable[[], Any]) -> Any:
        return await self._ask(lambda session: self._service.write(session, writer), writer)

    async def _ask(self, arrive: Callable[[ServerSession], Reply], writer: Callable[[], Any] | None) -> Any:
        """Send one request and wait for its answer; `writer` is what may be applied late."""
        lost_before = self._session
        try:
            async with asyncio.timeout(self._reply_s_max):
                await self._connected.wait()
                if self._is_closed or (self._session is not lost_before and lost_before is not None):
                    raise MetadataSessionLostError("the session expired, or was closed")
                reply = await self._send(arrive, writer)
        except TimeoutError:
            raise MetadataUnavailableError(
                f"the simulated metadata store gave no reply for {self._reply_s_max:.1f} s"
            ) from None
        if reply.error is not None:
            raise reply.error
        return reply.value

    def _send(
        self, arrive: Callable[[ServerSession], Reply], writer: Callable[[], Any] | None
    ) -> asyncio.Future[Reply]:
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._pending.append(answer)
        arrival_s = max(self._last_arrival_s, self._loop.time() + self._service.draw_latency_s(self._host))
        self._last_arrival_s = arrival_s
        arguments = (self._connection, arrive, writer, answer)
        self._loop.call_at(arrival_s, self._arrive, *arguments, context=outside())
        return answer

    def _arrive(
        self,
        connection: int,
        arrive: Callable[[ServerSession], Reply],
        writer: Callable[[], Any] | None,
        answer: asyncio.Future[Reply],
    ) -> None:
        """Handle a request at the service; runs in no process."""
        service, session = self._service, self._session
        if session is None or connection != self._connection or not service.hears(self._host):
            return  # Void; the client finds out by silence.
        if not session.is_alive:
            self._later(self._disconnected, connection)
            return
        session.heard_at_s = self._loop.time()
        if service.draw(service.lost_reply_rate):
            if writer is not None and service.draw(service.late_write_rate):
                service.write_later(session, writer)
            elif service.draw(0.5):
                arrive(session)
            self._later(self._disconnected, connection)
            return
        reply = arrive(session)
        self.deliver_watches(session)
        self._later(self._answered, connection, answer, reply)

    def deliver_watches(self, session: ServerSession) -> None:
        """Send the events that are due, ahead of any later answer; runs in no process."""
        for watch in self._service.due_watches(session):
            self._later(self._seen, self._connection, watch)

    def _later(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Send to the client: in order, and only if the path is open on arrival."""
        at_s = max(self._last_answer_s, self._loop.time() + self._service.draw_latency_s(self._host))
        self._last_answer_s = at_s

        def arrive() -> None:
            if self._service.reaches(self._host):
                self._loop.call_soon(callback, *arguments, context=self._context.copy())

        self._loop.call_at(at_s, arrive, context=outside())

    # --- hearing, in the client's process

    def _answered(self, connection: int, answer: asyncio.Future[Reply], reply: Reply) -> None:
        if connection == self._connection and answer in self._pending:
            self._pending.remove(answer)
            if not answer.done():
                answer.set_result(reply)

    def _seen(self, connection: int, watch: Watch) -> None:
        if connection == self._connection:
            watch.watcher()

    def _disconnected(self, connection: int) -> None:
        if connection == self._connection and self._state is SessionState.CONNECTED:
            self._connection += 1
            self._fail_pending(MetadataUnavailableError("the connection broke: the outcome is unknown"))
            self._set_state(SessionState.SUSPENDED)

    def _fail_pending(self, error: LedgerError) -> None:
        pending, self._pending = self._pending, []
        for answer in pending:
            if not answer.done():
                answer.set_result(Reply(None, error))

    def _set_state(self, state: SessionState) -> None:
        self._state = state
        if state is SessionState.CONNECTED:
            self._connected.set()
        elif not self._is_closed:
            self._connected.clear()
        watches: list[Watch] = []
        if self._session is not None:
            watches, self._session.watches = self._session.watches, []
        for listener in list(self._listeners):
            listener(state)
        for watch in watches:
            watch.watcher()

    # --- keeping the session, in the client's process

    async def open(self) -> None:
        """Connect for the first time."""
        while not await self._reach():
            await asyncio.sleep(self._rng.uniform(*_RECONNECT_S))
        self._session = self._service.open_session(self, self._timeout_s)
        self._set_state(SessionState.CONNECTED)
        self._keeper = self._loop.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            if self._state is not SessionState.CONNECTED:
                await asyncio.sleep(self._rng.uniform(*_RECONNECT_S))
                await self._reconnect()
                continue
            await asyncio.sleep(self._timeout_s / 3)
            connection = self._connection
            try:
                async with asyncio.timeout(self._timeout_s / 3):
                    await self._send(lambda _session: Reply(None, None), None)
            except TimeoutError:
                self._disconnected(connection)

    async def _reconnect(self) -> None:
        if not await self._reach():
            return
        session = self._session
        assert session is not None
        if not session.is_alive:
            self._connection += 1
            self._fail_pending(MetadataSessionLostError("the session expired"))
            self._set_state(SessionState.LOST)
            self._session = self._service.open_session(self, self._timeout_s)
        else:
            session.heard_at_s = self._loop.time()
        self._set_state(SessionState.CONNECTED)

    async def _reach(self) -> bool:
        """Make a connection; False if nobody answers."""
        service = self._service
        await asyncio.sleep(service.draw_latency_s(self._host))
        if not service.hears(self._host):
            return False
        await asyncio.sleep(service.draw_latency_s(self._host))
        return service.reaches(self._host)
