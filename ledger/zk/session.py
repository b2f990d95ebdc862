"""A session with ZooKeeper on the event loop: kazoo's threads end here.

kazoo calls back on threads of its own; each callback is handed to the loop by `call_soon_threadsafe`, so users see
one thread. kazoo reports a lost session only once it has reconnected: until then the state is SUSPENDED.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from ledger.errors import (
    BadVersionError,
    LedgerError,
    MetadataError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.ports import ANY_VERSION, SessionState, Versioned, Watcher
from ledger.zk.auth import AUTH_FILE_VARIABLE, AclRule, login_of

__all__ = ["ZooKeeperSession", "connect"]

_LOG = logging.getLogger(__name__)
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
_DEFINITE: tuple[tuple[type[Exception], type[MetadataError]], ...] = (
    (kazoo_errors.NoNodeError, NoNodeError),
    (kazoo_errors.NodeExistsError, NodeExistsError),
    (kazoo_errors.NotEmptyError, NodeExistsError),
    (kazoo_errors.BadVersionError, BadVersionError),
    (kazoo_errors.SessionExpiredError, MetadataSessionLostError),
    (kazoo_errors.ConnectionLoss, MetadataUnavailableError),
    (kazoo_errors.OperationTimeoutError, MetadataUnavailableError),
    (kazoo_errors.ConnectionClosedError, MetadataSessionLostError),
)


async def connect(
    hosts: Sequence[str],
    *,
    session_timeout_ms: int = 10_000,
    connect_timeout_s: float = 15.0,
    auth: tuple[str, str] | None = None,
) -> ZooKeeperSession:
    """Connect to ZooKeeper.

    Args:
        hosts: Servers as "host:port"; one of them is used.
        session_timeout_ms: Asked for; the server grants 2 to 20 of its ticks.
        connect_timeout_s: For the first connection.
        auth: (scheme, credential), for example ("digest", "user:secret"); None means what the file holds that
            `RSM_ZK_AUTH_FILE` names, if it names one. See `ledger.zk.auth` for the ACLs that follow.

    Raises:
        UsageError: The file with the log-in cannot be used.
        MetadataUnavailableError: No server answered in time.

    """
    login = auth or login_of()
    client = KazooClient(
        hosts=",".join(hosts),
        timeout=session_timeout_ms / 1000,
        auth_data=[login] if login else None,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
        command_retry=KazooRetry(max_tries=0),
        logger=_kazoo_log(),
    )
    session = ZooKeeperSession(client, asyncio.get_running_loop(), session_timeout_ms, has_login=login is not None)
    started = client.start_async()
    if not await asyncio.to_thread(started.wait, connect_timeout_s):
        await session.close()
        raise MetadataUnavailableError(
            f"no ZooKeeper answered at {', '.join(hosts)} for {connect_timeout_s:.0f} s: check the metadata URI and "
            "that the server runs (`rsm up` starts one for development)"
        )
    session.started()
    return session


def _kazoo_log() -> logging.Logger:
    """Return a logger that keeps kazoo's line per failed attempt to itself: what matters is told by the session."""
    log = _LOG.getChild("kazoo")
    if log.level == logging.NOTSET:
        log.setLevel(logging.CRITICAL)
    return log


class ZooKeeperSession:
    """A `MetadataStore` over one kazoo client; made by `connect`."""

    def __init__(
        self,
        client: KazooClient,
        loop: asyncio.AbstractEventLoop,
        session_timeout_ms: int,
        *,
        has_login: bool = False,
    ) -> None:
        self._client = client
        self._loop = loop
        self._reply_s_max = max(2.0, 1.5 * session_timeout_ms / 1000)
        self._state = SessionState.SUSPENDED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._asked_ms = session_timeout_ms
        self._granted_ms = 0
        self._acl_rule = AclRule(has_login=has_login)
        self._hear_of_grants()
        client.add_listener(self._heard_on_thread)

    @property
    def session_state(self) -> SessionState:
        """State of the session as last heard."""
        return self._state

    @property
    def session_id(self) -> int:
        """Id of the present session, 0 while there is none."""
        identity = self._client.client_id
        return int(identity[0]) if identity else 0

    def started(self) -> None:
        """Take the first connection as made, without waiting for the callback that tells of it."""
        self._state = SessionState.CONNECTED
        _LOG.log(
            logging.INFO if self._granted_ms == self._asked_ms else logging.WARNING,
            "ZooKeeper session 0x%x opened, time-out granted: %d ms, asked for: %d ms",
            self.session_id,
            self._granted_ms,
            self._asked_ms,
        )

    @property
    def granted_timeout_ms(self) -> int:
        """Silence after which the server ends the session, as it last granted; 0 before the first connection."""
        return self._granted_ms

    def _hear_of_grants(self) -> None:
        """Take note of the time-out that the server grants, which kazoo keeps to itself."""
        connection = self._client._connection
        invoke = connection._invoke

        def invoke_on_thread(*arguments: Any, **options: Any) -> Any:
            answer = invoke(*arguments, **options)
            if isinstance(answer, tuple):
                self._granted_ms = getattr(answer[0], "time_out", self._granted_ms)
            return answer

        connection._invoke = invoke_on_thread

    def on_session_state(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call `listener` on the event loop at every change of state; return what unsubscribes it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    async def get(self, path: str, *, watch: Watcher | None = None) -> Versioned:
        """Read a node; see `MetadataStore.get`."""
        value, stat = await self._call("get", path, self._client.get_async, path, self._watch(watch))
        return Versioned(value or b"", stat.version)

    async def exists(self, path: str, *, watch: Watcher | None = None) -> int | None:
        """Return a node's version, or None; see `MetadataStore.exists`."""
        stat = await self._call("exists", path, self._client.exists_async, path, self._watch(watch))
        return None if stat is None else int(stat.version)

    async def modified_ms(self, path: str) -> int:
        """Return when a node was last written; see `MetadataStore.modified_ms`."""
        stat = await self._call("stat", path, self._client.exists_async, path)
        if stat is None:
            raise NoNodeError(f"ZooKeeper has no node {path}")
        return int(stat.mtime)

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        """Return the names of the children, sorted; see `MetadataStore.children`."""
        call = self._client.get_children_async
        return sorted(await self._call("list", path, call, path, self._watch(watch)))

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        """Create a node; see `MetadataStore.create`."""
        call = self._client.create_async
        acl = await self._acl_for(path)
        created = await self._call("create", path, call, path, value, acl, ephemeral, sequential, parents)
        return str(created)

    async def _acl_for(self, path: str) -> list[Any]:
        """Return the ACL for a new node; asks once for each tree, and only with a log-in."""
        tree = self._acl_rule.tree_to_ask_for(path)
        if tree is not None:
            try:
                acls, _stat = await self._call("look at", tree, self._client.get_acls_async, tree)
            except NoNodeError:
                acls = None
            self._acl_rule.learn(tree, acls)
        return self._acl_rule.acl_of(path)

    async def set(self, path: str, value: bytes, version: int) -> int:
        """Compare-and-set a node; see `MetadataStore.set`."""
        stat = await self._call("write", path, self._client.set_async, path, value, version)
        return int(stat.version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node; see `MetadataStore.delete`."""
        await self._call("delete", path, self._client.delete_async, path, version)

    async def sync(self, path: str) -> None:
        """Wait until the server asked has caught up; see `MetadataStore.sync`."""
        await self._call("sync", path, self._client.sync_async, path)

    async def close(self) -> None:
        """End the session; its ephemeral nodes go at once."""
        self._listeners.clear()
        self._client.remove_listener(self._heard_on_thread)
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    async def _call(self, verb: str, path: str, call: Callable[..., Any], *arguments: Any) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def done_on_thread(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(_settle, future, result)

        try:
            call(*arguments).rawlink(done_on_thread)
            async with asyncio.timeout(self._reply_s_max):
                return await future
        except TimeoutError:
            raise MetadataUnavailableError(
                f"ZooKeeper gave no reply to {verb} {path} for {self._reply_s_max:.1f} s"
            ) from None
        except LedgerError:
            raise
        except Exception as error:
            raise _translated(error, verb, path) from error

    def _watch(self, watcher: Watcher | None) -> Callable[[Any], None] | None:
        if watcher is None:
            return None
        has_fired = False

        def fire() -> None:
            nonlocal has_fired
            if not has_fired:
                has_fired = True
                watcher()

        def fired_on_thread(_event: Any) -> None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(fire)

        return fired_on_thread

    def _heard_on_thread(self, state: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._heard, _STATES[state])

    def _heard(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        _LOG.log(
            logging.INFO if state is SessionState.CONNECTED else logging.WARNING,
            "ZooKeeper session 0x%x is %s",
            self.session_id,
            state.value,
        )
        for listener in list(self._listeners):
            listener(state)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return  # timed out or cancelled: whoever asked has been told that the outcome is unknown
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _translated(error: Exception, verb: str, path: str) -> MetadataError:
    for foreign, ours in _DEFINITE:
        if isinstance(error, foreign):
            return ours(f"ZooKeeper, {verb} {path}: {type(error).__name__} {error}".rstrip())
    if isinstance(error, (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.InvalidACLError)):
        return MetadataError(
            f"ZooKeeper does not let us {verb} {path} ({type(error).__name__}): name a file with this cluster's log-in "
            f"in {AUTH_FILE_VARIABLE}"
        )
    return MetadataError(f"ZooKeeper, {verb} {path}: {type(error).__name__} {error}".rstrip())
