"""A session with ZooKeeper on the event loop: kazoo's threads end here.

kazoo calls back on threads of its own; each callback is handed to the loop by `call_soon_threadsafe`, so users see
one thread. kazoo reports a lost session only once it has reconnected: until then the state is SUSPENDED.

No call can hold up the event loop. While ZooKeeper is away, calls wait here, up to the time that a reply may take, and
then fail without having been sent; kazoo is not called. A bounded number is on its way at once, and a bounded number
waits. A client whose thread has ended, or which stands still, is replaced: the session counts as lost from then until
another one has begun, as after an expiry.
"""

# Longer than 400 lines: calls, states and the replacement of a broken client are one session to its users.

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.protocol.states import KazooState

from ledger.errors import LedgerError, MetadataSessionLostError, MetadataUnavailableError, NoNodeError
from ledger.ports import ANY_VERSION, NodeChange, SessionState, Versioned, Watcher
from ledger.tls import ClientContexts, TlsSettings
from ledger.zookeeper.auth import AclRule, login_of
from ledger.zookeeper.call_gate import CallGate
from ledger.zookeeper.kazoo_link import KazooLink
from ledger.zookeeper.reach import why_unreached
from ledger.zookeeper.tls_file import tls_of
from ledger.zookeeper.translated import translated

_LOGGER = logging.getLogger(__name__)
CALLS_MAX = 128
"""Calls on their way to ZooKeeper at once, fewer than kazoo's wake-up pair has room for; the others wait."""
WAITING_MAX = 1_024
"""Calls that wait, for one on its way to end or for ZooKeeper to come back; one more fails at once."""
_STUCK_S_MIN = 30.0
_REBUILD_PAUSE_S_MIN = 1.0
_REBUILD_PAUSE_S_MAX = 30.0
_LOOK_S = 1.0
_STOP_S = 2.0
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


async def connect(
    hosts: Sequence[str],
    *,
    session_timeout_ms: int = 10_000,
    connect_timeout_s: float = 15.0,
    reach_timeout_s: float | None = None,
    auth: tuple[str, str] | None = None,
    tls: TlsSettings | None = None,
) -> ZooKeeperSession:
    """Connect to ZooKeeper.

    Args:
        hosts: Servers as "host:port"; one of them is used.
        session_timeout_ms: Asked for; the server grants 2 to 20 of its ticks.
        connect_timeout_s: For the first connection.
        reach_timeout_s: For a server to take a connection at all, where that is worth telling sooner; None = as long.
        auth: (scheme, credential), for example ("digest", "user:secret"); None means what the file holds that
            `RSM_ZK_AUTH_FILE` names, if it names one. See `ledger.zookeeper.auth` for the ACLs that follow.
        tls: Connections are encrypted, by these files; None means those that the file holds that `RSM_ZK_TLS_FILE`
            names, if it names one. See `ledger.zookeeper.tls_file`.

    Raises:
        UsageError: The file with the log-in, or one for TLS, cannot be used.
        MetadataUnavailableError: No server answered in time.

    """
    loop = asyncio.get_running_loop()
    session = ZooKeeperSession(hosts, loop, session_timeout_ms, auth=auth or login_of(), tls=tls or tls_of())
    try:
        await session.start(connect_timeout_s, reach_timeout_s)
    except BaseException:
        await session.close()
        raise
    return session


class ZooKeeperSession:
    """A `MetadataStore` over kazoo; made by `connect`.

    Args:
        hosts: Servers as "host:port".
        loop: The event loop that it is used on.
        session_timeout_ms: Asked for.
        auth: (scheme, credential), if there is a log-in.
        tls: Files for encrypted connections; None = they are plain.
        stuck_s: How long a client may show no sign of life while something is waited for; None = three time-outs, and
            30 s at least.

    """

    def __init__(
        self,
        hosts: Sequence[str],
        loop: asyncio.AbstractEventLoop,
        session_timeout_ms: int,
        *,
        auth: tuple[str, str] | None = None,
        tls: TlsSettings | None = None,
        stuck_s: float | None = None,
    ) -> None:
        self._hosts = list(hosts)
        self._loop = loop
        self._asked_ms = session_timeout_ms
        self._auth = auth
        self._tls = None if tls is None else ClientContexts(tls)
        self._stuck_s = stuck_s or max(_STUCK_S_MIN, 3 * session_timeout_ms / 1000)
        self._reply_s_max = max(2.0, 1.5 * session_timeout_ms / 1000)
        self._state = SessionState.SUSPENDED
        self._left_at_s = loop.time()  # when ZooKeeper was last connected
        self._listeners: list[Callable[[SessionState], None]] = []
        self._acl_rule = AclRule(has_login=auth is not None)
        self._gate = CallGate(loop, let_through_max=CALLS_MAX, waiting_max=WAITING_MAX)
        self._watches: dict[Callable[[], None], None] = {}
        self._first: asyncio.Future[None] = loop.create_future()
        self._is_closed = False
        self._looking: asyncio.TimerHandle | None = None
        self._looked_at_s = time.monotonic()
        self._rebuild_pause_s = _REBUILD_PAUSE_S_MIN
        self._rebuild_at_s = 0.0
        self._endings: set[asyncio.Task[None]] = set()
        self._link = self._new_link()

    @property
    def session_state(self) -> SessionState:
        """State of the session as last heard."""
        return self._state

    @property
    def session_id(self) -> int:
        """Id of the present session, 0 while there is none."""
        return self._link.session_id

    @property
    def granted_timeout_ms(self) -> int:
        """Silence after which the server ends the session, as it last granted; 0 before the first connection."""
        return self._link.granted_ms

    async def start(self, timeout_s: float, reach_timeout_s: float | None = None) -> None:
        """Connect for the first time.

        Args:
            timeout_s: For the connection.
            reach_timeout_s: See `connect`.

        Raises:
            MetadataUnavailableError: No server answered in time.

        """
        self._link.start()
        self._look()
        try:
            async with asyncio.timeout(timeout_s):
                if reach_timeout_s is not None:
                    await self._check_reach(reach_timeout_s)
                await self._first
        except TimeoutError:
            raise self._unanswered(f"for {timeout_s:.0f} s{self._refusal()}") from None

    async def _check_reach(self, limit_s: float) -> None:
        """Connect beside the client, which tries one server after the other, if it has had no answer for a while."""
        began_s = self._loop.time()
        await asyncio.wait([self._first], timeout=limit_s / 3)
        if self._first.done():
            return
        reason = await why_unreached(self._hosts, max(0.0, began_s + limit_s - self._loop.time()))
        if reason:
            raise self._unanswered(f"({reason})")

    def _unanswered(self, how: str) -> MetadataUnavailableError:
        return MetadataUnavailableError(
            f"no ZooKeeper answered at {', '.join(self._hosts)} {how}: check the metadata URI and that the server runs "
            "(`rsm up` starts one for development)"
        )

    def _refusal(self) -> str:
        return f" ({self._link.refusal})" if self._link.refusal else ""

    def _new_link(self) -> KazooLink:
        return KazooLink(
            self._hosts,
            self._loop,
            session_timeout_ms=self._asked_ms,
            auth=self._auth,
            tls=self._tls,
            on_answer=self._answered,
            on_state=self._heard_on_thread,
            on_fault=self._fault_on_thread,
        )

    def on_session_state(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call `listener` on the event loop at every change of state; return what unsubscribes it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    async def get(self, path: str, *, watch: Watcher | None = None) -> Versioned:
        """Read a node; see `MetadataStore.get`."""
        value, stat = await self._watched("get", path, "get_async", watch)
        return Versioned(value or b"", stat.version)

    async def exists(self, path: str, *, watch: Watcher | None = None) -> int | None:
        """Return a node's version, or None; see `MetadataStore.exists`."""
        stat = await self._watched("exists", path, "exists_async", watch)
        return None if stat is None else int(stat.version)

    async def modified_ms(self, path: str) -> int:
        """Return when a node was last written; see `MetadataStore.modified_ms`."""
        stat = await self._call("stat", path, "exists_async", path)
        if stat is None:
            raise NoNodeError(f"ZooKeeper has no node {path}")
        return int(stat.mtime)

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        """Return the names of the children, sorted; see `MetadataStore.children`."""
        return sorted(await self._watched("list", path, "get_children_async", watch))

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
        acl = await self._acl_for(path)
        created = await self._call("create", path, "create_async", path, value, acl, ephemeral, sequential, parents)
        return str(created)

    async def _acl_for(self, path: str) -> list[Any]:
        """Return the ACL for a new node; asks once for each tree, and only with a log-in."""
        tree = self._acl_rule.tree_to_ask_for(path)
        if tree is not None:
            try:
                acls, _stat = await self._call("look at", tree, "get_acls_async", tree)
            except NoNodeError:
                acls = None
            self._acl_rule.learn(tree, acls)
        return self._acl_rule.acl_of(path)

    async def set(self, path: str, value: bytes, version: int) -> int:
        """Compare-and-set a node; see `MetadataStore.set`."""
        stat = await self._call("write", path, "set_async", path, value, version)
        return int(stat.version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node; see `MetadataStore.delete`."""
        await self._call("delete", path, "delete_async", path, version)

    async def change(self, changes: Sequence[NodeChange]) -> None:
        """Make several changes at once, or none; see `MetadataStore.change`."""
        steps = [(one, await self._acl_for(one.path) if one.version is None else None) for one in changes]
        results = await self._call("change", ", ".join(one.path for one in changes), "change_async", steps)
        for one, result in zip(changes, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                raise translated(result, "change", one.path) from result

    async def sync(self, path: str) -> None:
        """Wait until the server asked has caught up; see `MetadataStore.sync`."""
        await self._call("sync", path, "sync_async", path)

    async def close(self) -> None:
        """End the session; its ephemeral nodes go at once, or with its time-out if ZooKeeper is away."""
        self._is_closed = True
        self._listeners.clear()
        self._watches.clear()
        if self._looking is not None:
            self._looking.cancel()
        self._gate.refuse_all(lambda: MetadataSessionLostError("the ZooKeeper session was closed"))
        self._link.fail_unanswered("the session was closed")
        await self._link.stop(_STOP_S)

    async def _call(self, verb: str, path: str, call: str, *arguments: Any) -> Any:
        if self._is_closed:
            raise MetadataSessionLostError(f"cannot {verb} {path}: the ZooKeeper session was closed")
        try:
            async with asyncio.timeout(self._reply_s_max):
                await self._gate.enter(lambda: self._away(verb, path))
                return await self._link.call(call, arguments)
        except TimeoutError:
            if self._state is not SessionState.CONNECTED:
                raise self._away(verb, path) from None
            raise MetadataUnavailableError(
                f"ZooKeeper gave no reply to {verb} {path} for {self._reply_s_max:.1f} s"
            ) from None
        except LedgerError:
            raise
        except Exception as error:
            raise translated(error, verb, path) from error

    def _answered(self, link: KazooLink) -> None:
        if link is self._link:
            self._gate.leave()

    def _away(self, verb: str, path: str) -> MetadataUnavailableError:
        if self._state is SessionState.CONNECTED:
            return MetadataUnavailableError(
                f"cannot {verb} {path}: {self._gate.let_through} calls to ZooKeeper have no reply yet, and "
                f"{self._gate.waiting} wait"
            )
        return MetadataUnavailableError(
            f"ZooKeeper is away: {', '.join(self._hosts)}, for {self._loop.time() - self._left_at_s:.1f} s"
            f"{self._refusal()}; {verb} {path} may not have been sent. Check that its servers run; this process goes "
            "on trying"
        )

    async def _watched(self, verb: str, path: str, call: str, watcher: Watcher | None) -> Any:
        """Make a call that leaves a watch; one that fails leaves none."""
        if watcher is None:
            return await self._call(verb, path, call, path)

        def fire() -> None:
            if fire in self._watches:
                del self._watches[fire]
                watcher()

        def fired_on_thread(_event: Any) -> None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(fire)

        self._watches[fire] = None
        try:
            return await self._call(verb, path, call, path, fired_on_thread)
        except BaseException:
            self._watches.pop(fire, None)
            raise

    def _heard_on_thread(self, link: KazooLink, state: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._heard, link, _STATES[state])

    def _heard(self, link: KazooLink, state: SessionState) -> None:
        if link is not self._link or self._is_closed or state is self._state:
            return
        if self._state is SessionState.CONNECTED:
            self._left_at_s = self._loop.time()
        if not self._first.done():
            if state is SessionState.CONNECTED:
                self._began()
            return
        self._change(state)

    def _began(self) -> None:
        self._state = SessionState.CONNECTED
        self._first.set_result(None)
        self._gate.open()
        granted_ms = self._link.granted_ms
        _LOGGER.log(
            logging.INFO if granted_ms == self._asked_ms else logging.WARNING,
            "ZooKeeper session 0x%x opened, time-out granted: %d ms, asked for: %d ms",
            self.session_id,
            granted_ms,
            self._asked_ms,
        )

    def _change(self, state: SessionState) -> None:
        self._state = state
        _LOGGER.log(
            logging.INFO if state is SessionState.CONNECTED else logging.WARNING,
            "ZooKeeper session 0x%x is %s",
            self.session_id,
            state.value,
        )
        if state is SessionState.CONNECTED:
            self._gate.open()
            self._rebuild_pause_s = _REBUILD_PAUSE_S_MIN
        else:
            self._gate.shut()
            for fire in list(self._watches):
                fire()
        for listener in list(self._listeners):
            listener(state)

    # --- a client that does not work any more is replaced

    def _fault_on_thread(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Replace the client if it is broken; again after a while."""
        if self._is_closed:
            return
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self._loop.call_later(_LOOK_S, self._look)
        now_s = time.monotonic()
        if now_s - self._looked_at_s > 5 * _LOOK_S:
            self._link.answered(now_s)  # This process was stopped, and so was the client.
        self._looked_at_s = now_s
        fault = self._link.fault(now_s, stuck_s=self._stuck_s, is_waited_for=self._gate.let_through > 0)
        if fault and now_s >= self._rebuild_at_s:
            self._rebuild(fault, now_s)

    def _rebuild(self, fault: str, now_s: float) -> None:
        _LOGGER.error(
            "ZooKeeper session: %s; a new client begins a new session, the old one counts as lost. Its next "
            "replacement is due in %.0f s at the earliest",
            fault,
            self._rebuild_pause_s,
        )
        self._rebuild_at_s = now_s + self._rebuild_pause_s
        self._rebuild_pause_s = min(2 * self._rebuild_pause_s, _REBUILD_PAUSE_S_MAX)
        try:
            link = self._new_link()
            link.start()
        except Exception:
            _LOGGER.exception("ZooKeeper session: a new client cannot be made")
            return
        old, self._link = self._link, link
        ending = self._loop.create_task(old.stop(_STOP_S))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        self._gate.restart()
        old.fail_unanswered(fault)
        if self._first.done() and self._state is not SessionState.LOST:
            if self._state is SessionState.CONNECTED:
                self._left_at_s = self._loop.time()
            self._change(SessionState.LOST)
