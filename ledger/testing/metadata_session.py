"""One client's session with the simulated metadata store: what `ledger.zookeeper.session` is to ZooKeeper."""

# Longer than 400 lines: the client's side of a connection and the server's share its requests.

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ledger.errors import LedgerError, MetadataSessionLostError, MetadataUnavailableError
from ledger.ports import ANY_VERSION, NodeChange, SessionState, Versioned, Watcher
from ledger.testing.loop import current_process
from ledger.testing.metadata_tree import Tree, TreeReplica, TreeWrite

if TYPE_CHECKING:
    # The store makes its sessions, and each one asks it: two halves of one store.
    from ledger.testing.metadata import SimMetadata


_CONNECT_S_MAX = 15.0
_RETRANSMIT_S = 0.2
_LATE_S_MAX = 0.3
_INSTANT_S = 1e-9

Operation = Callable[[], tuple[Any, list[TreeWrite]]]
"""Runs at the server; returns the answer and what it committed."""


class _Request:
    """One request on its way. `watch` is left at the server asked if the operation succeeds there.

    `durable_at` is when a write is on the servers' disks; None = it is no write, or has not arrived.
    """

    def __init__(self, what: str, operation: Operation, future: asyncio.Future[Any]) -> None:
        self.what = what
        self.operation = operation
        self.future = future
        self.watch: tuple[str, str, Callable[[], None]] | None = None
        self.is_write = False
        self.durable_at: float | None = None
        self.is_applied = False
        self.answer: Any = None


class SimMetadataSession:
    """A `MetadataStore`; made by `SimMetadata.connect`. Requests of a session are served in their order."""

    def __init__(self, servers: SimMetadata, timeout_s: float) -> None:
        process = current_process()
        self.host = process.name if process else "outside"
        self._process = process
        self._context = copy_context()
        self._servers = servers
        self._loop = servers.loop
        self._rng = servers.rng
        self._timeout_s = timeout_s
        self._reply_s_max = max(2.0, 1.5 * timeout_s)
        self._session_id = 0
        self._state = SessionState.SUSPENDED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._replica: TreeReplica | None = None  # the server that it is connected to
        self._heard_at = 0.0
        self._reply_at = 0.0
        self._seen_count = 0  # of changes: it connects to no server that knows less
        self._waiting: deque[_Request] = deque()  # for a connection
        self._sent: deque[_Request] = deque()
        self._is_serving = False
        self._watches: dict[int, Callable[[], None]] = {}
        self._next_watch = 0
        self._is_closed = False
        self._started: asyncio.Future[None] = self._loop.create_future()

    # --- MetadataStore

    @property
    def session_state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_session_state(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    async def get(self, path: str, *, watch: Watcher | None = None) -> Versioned:
        value: Versioned = await self._call(f"get {path}", lambda: (self._read().get(path), []), "data", path, watch)
        return value

    async def exists(self, path: str, *, watch: Watcher | None = None) -> int | None:
        operation: Operation = lambda: (self._read().exists(path), [])  # noqa: E731
        version: int | None = await self._call(f"exists {path}", operation, "data", path, watch)
        return version

    async def modified_ms(self, path: str) -> int:
        modified: int = await self._call(f"stat {path}", lambda: (self._servers.modified_ms(path), []))
        return modified

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        names: list[str] = await self._call(
            f"list {path}", lambda: (self._read().names(path), []), "children", path, watch
        )
        return names

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        def operation() -> tuple[str, list[TreeWrite]]:
            owner = self._session_id if ephemeral else 0
            return self._servers.leader.create(path, value, owner=owner, sequential=sequential, parents=parents)

        created: str = await self._call(f"create {path}", operation, is_write=True)
        return created

    async def set(self, path: str, value: bytes, version: int) -> int:
        written: int = await self._call(
            f"write {path}", lambda: self._servers.leader.set(path, value, version), is_write=True
        )
        return written

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(f"delete {path}", lambda: (None, self._servers.leader.delete(path, version)), is_write=True)

    async def change(self, changes: Sequence[NodeChange]) -> None:
        await self._call(
            f"change {', '.join(one.path for one in changes)}",
            lambda: (None, self._servers.leader.change(changes)),
            is_write=True,
        )

    async def sync(self, path: str) -> None:
        def operation() -> tuple[None, list[TreeWrite]]:
            if self._replica is not None:
                self._replica.catch_up()
            return None, []

        await self._call(f"sync {path}", operation)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._listeners.clear()
        self._watches.clear()
        await asyncio.sleep(self._servers.network.delay_s())
        if self._replica is not None and self._servers.is_reachable(self.host):
            self._servers.close_session(self._session_id)
        self._replica = None
        self._servers.forget(self)
        self._fail_all(MetadataSessionLostError("simulated metadata: the session is closed"))

    # --- the client's side of the connection

    async def start(self) -> None:
        """Wait for the first connection."""
        self._servers.network.later(self._servers.network.delay_s(), self._beat)
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                await self._started
        except TimeoutError:
            await self.close()
            raise MetadataUnavailableError(
                f"simulated metadata: no server answered {self.host} for {_CONNECT_S_MAX:.0f} s"
            ) from None

    def drop(self) -> None:
        """Break the connection; what is under way may or may not be applied."""
        if self._replica is None:
            return
        self._replica = None
        lost = [*self._sent, *self._waiting]
        for request in self._sent:
            if request.is_applied:
                continue
            if request.durable_at is not None:  # It is on its way to the disks, whoever waits for it.
                self._servers.network.later(max(0.0, request.durable_at - self._loop.time()), self._apply_late, request)
            elif self._rng.random() < self._servers.rates.late_rate:
                self._servers.network.later(self._rng.uniform(0.0, _LATE_S_MAX), self._apply_late, request)
        self._sent.clear()
        self._waiting.clear()
        for request in lost:
            self._answer(request.future, MetadataUnavailableError(f"simulated metadata, {request.what}: no reply"))
        self._tell(SessionState.SUSPENDED)
        watches, self._watches = self._watches, {}
        for fire in watches.values():
            self._loop.call_soon(fire, context=self._context)

    async def _call(
        self,
        what: str,
        operation: Operation,
        kind: str = "",
        path: str = "",
        watch: Watcher | None = None,
        *,
        is_write: bool = False,
    ) -> Any:
        if self._is_closed:
            raise MetadataSessionLostError(f"simulated metadata, {what}: the session is closed")
        request = _Request(what, operation, self._loop.create_future())
        request.is_write = is_write
        if watch is not None:
            request.watch = (kind, path, watch)
        self._send(request)
        try:
            async with asyncio.timeout(self._reply_s_max):
                return await request.future
        except TimeoutError:
            raise MetadataUnavailableError(
                f"simulated metadata gave no reply to {what} for {self._reply_s_max:.1f} s"
            ) from None

    def _send(self, request: _Request) -> None:
        if self._replica is None:
            self._waiting.append(request)
            return
        self._sent.append(request)
        if not self._is_serving:
            self._is_serving = True
            self._servers.network.later(self._servers.network.delay_s(), self._serve)

    def _beat(self) -> None:
        """Ping, or try to connect; belongs to no process."""
        process, servers = self._process, self._servers
        if self._is_closed or (process is not None and not process.is_alive):
            return
        network, now = servers.network, self._loop.time()
        again_s = self._timeout_s / 3 * self._rng.uniform(0.8, 1.0)
        if process is None or not process.is_paused:
            is_reachable = servers.is_reachable(self.host)
            is_answered = is_reachable and servers.is_heard_by(self.host)
            if self._replica is None:
                again_s = self._begin_to_connect(again_s) if is_answered else self._rng.uniform(0.05, 1.0)
            elif is_reachable and not servers.hear(self._session_id):
                self._lose_session()
                again_s = self._rng.uniform(0.05, 1.0)
            elif is_answered and not self._waits_for_disks:
                self._heard_at = now
            elif now - self._heard_at >= self._timeout_s * 2 / 3:
                self.drop()
        network.later(again_s, self._beat)

    @property
    def _waits_for_disks(self) -> bool:
        """True if the oldest request under way, and with it all behind it, waits for a write of the servers."""
        durable_at = self._sent[0].durable_at if self._sent else None
        return durable_at is not None and durable_at > self._loop.time()

    def _begin_to_connect(self, again_s: float) -> float:
        """Connect, now or when a new session is on the servers' disks; return when to look again."""
        wait_s = 0.0 if self._session_id else self._servers.write_time_s()
        if wait_s >= self._timeout_s:
            return self._timeout_s + self._rng.uniform(0.05, 1.0)  # It has given up by then, and asks anew.
        if wait_s:
            self._servers.network.later(wait_s, self._connect)
            return wait_s + again_s
        self._connect()
        return again_s

    def _connect(self) -> None:
        process = self._process
        if self._replica is not None or self._is_closed or (process is not None and not process.is_alive):
            return
        servers = self._servers
        if self._session_id and not servers.hear(self._session_id):
            self._lose_session()
        if not self._session_id:
            self._session_id = servers.open_session(self._timeout_s)
        self._replica = self._rng.choice(servers.replicas)
        self._replica.catch_up(max(0, self._seen_count - self._replica.applied_count))
        self._heard_at = self._loop.time()
        self._tell(SessionState.CONNECTED)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._send(request)
        self._answer(self._started, None)

    def _lose_session(self) -> None:
        """Learn that the session has expired; the next connection begins another one."""
        self.drop()
        self._session_id = 0
        for request in self._waiting:
            self._answer(request.future, MetadataSessionLostError(f"simulated metadata, {request.what}: expired"))
        self._waiting.clear()
        self._tell(SessionState.LOST)

    def _tell(self, state: SessionState) -> None:
        self._loop.call_soon(self._change_state, state, context=self._context)

    def _change_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for listener in list(self._listeners):
            listener(state)

    def _fail_all(self, error: LedgerError) -> None:
        for request in [*self._sent, *self._waiting]:
            self._answer(request.future, error)
        self._sent.clear()
        self._waiting.clear()

    # --- the server's side

    def _serve(self) -> None:
        """Serve the oldest request under way, then the next."""
        self._is_serving = False
        servers, network = self._servers, self._servers.network
        if not self._sent or self._replica is None:
            return
        if not servers.is_reachable(self.host):
            self._serve_later(_RETRANSMIT_S)
            return
        if self._rng.random() < servers.rates.lost_request_rate:
            self.drop()
            return
        if not servers.hear(self._session_id):
            self._lose_session()
            return
        request = self._sent[0]
        if request.is_write and request.durable_at is None:
            wait_s = servers.write_time_s()
            request.durable_at = self._loop.time() + wait_s
            if wait_s:
                self._serve_later(wait_s)
                return
        if not request.is_applied:
            request.answer = self._apply(request)
            request.is_applied = True
            if self._rng.random() < servers.rates.lost_reply_rate:
                self.drop()
                return
        if not servers.is_heard_by(self.host):
            self._serve_later(_RETRANSMIT_S)
            return
        self._sent.popleft()
        # Replies keep their order: simultaneous timers do not.
        self._reply_at = max(self._reply_at + _INSTANT_S, self._loop.time() + network.delay_s())
        network.later(self._reply_at - self._loop.time(), self._deliver, request)
        if self._sent:
            self._serve_later(0.0)

    def _serve_later(self, delay_s: float) -> None:
        self._is_serving = True
        self._servers.network.later(delay_s, self._serve)

    def _apply(self, request: _Request) -> Any:
        replica = self._replica
        assert replica is not None
        try:
            answer, changes = request.operation()
        except LedgerError as error:
            return error
        if changes:
            self._servers.commit(changes)
            replica.catch_up()  # a server answers a write when it has applied it
        self._seen_count = max(self._seen_count, replica.applied_count)
        if request.watch is not None:
            self._leave_watch(replica, *request.watch)
        return answer

    def _apply_late(self, request: _Request) -> None:
        if self._servers.hear(self._session_id):
            with contextlib.suppress(LedgerError):
                _, changes = request.operation()
                if changes:
                    self._servers.commit(changes)

    def _leave_watch(self, replica: TreeReplica, kind: str, path: str, watcher: Watcher) -> None:
        self._next_watch += 1
        number = self._next_watch
        self._watches[number] = watcher
        by_path = replica.data_watches if kind == "data" else replica.child_watches
        by_path.setdefault(path, []).append(lambda: self._fire(number))

    def _fire(self, number: int) -> None:
        self._servers.network.later(self._servers.network.delay_s(), self._deliver_watch, number)

    def _deliver_watch(self, number: int) -> None:
        if not self._servers.is_heard_by(self.host):
            return  # when the connection ends, all watches fire
        watcher = self._watches.pop(number, None)
        if watcher is not None and self._rng.random() >= self._servers.rates.lost_watch_rate:
            self._loop.call_soon(watcher, context=self._context)

    def _deliver(self, request: _Request) -> None:
        lost = MetadataUnavailableError(f"simulated metadata, {request.what}: the reply was lost")
        self._answer(request.future, lost if self._replica is None else request.answer)

    def _answer(self, future: asyncio.Future[Any], answer: Any) -> None:
        self._loop.call_soon(_settle, future, answer, context=self._context)

    def _read(self) -> Tree:
        if self._replica is None:
            raise MetadataUnavailableError("simulated metadata: a read whose connection is gone")
        return self._replica.tree


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
