"""Registration of a bookie: its ephemeral node, and the cookie that ties its id to its disks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ledger.errors import (
    CookieMismatchError,
    LedgerError,
    MetadataError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.ports import MetadataStore, SessionState
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie, decode_cookie, encode_bookie_service_info, encode_cookie

_LOGGER = logging.getLogger(__name__)
_LEAVE_S_MAX = 1.0
_RETRY_S = 0.5


async def read_cookie(store: MetadataStore, root: str, bookie_id: str) -> Cookie | None:
    """Return the cookie that this bookie id was first registered with, or None."""
    try:
        value, _version = await store.get(paths.cookie_path(root, bookie_id))
    except NoNodeError:
        return None
    return decode_cookie(value)


async def had_cookie(store: MetadataStore, root: str, bookie_id: str) -> bool:
    """Return whether a bookie of this id once had a cookie, though it may have been deleted since."""
    path = paths.former_bookie_path(root, bookie_id)
    await store.sync(path)
    return await store.exists(path) is not None


async def remember_cookie(store: MetadataStore, root: str, bookie_id: str) -> None:
    """Have `had_cookie` say yes from now on, whatever becomes of the cookie."""
    path = paths.former_bookie_path(root, bookie_id)
    if await store.exists(path) is None:
        with contextlib.suppress(NodeExistsError):
            await store.create(path, parents=True)


async def create_cookie(store: MetadataStore, root: str, bookie_id: str, cookie: Cookie) -> None:
    """Tie a new bookie id to its disks.

    Raises:
        CookieMismatchError: The id has another cookie already.

    """
    try:
        await store.create(paths.cookie_path(root, bookie_id), encode_cookie(cookie), parents=True)
    except NodeExistsError:
        if await read_cookie(store, root, bookie_id) != cookie:
            raise CookieMismatchError(
                f"bookie {bookie_id}: the id is registered with other disks; start it on those, or choose another "
                "id (--bookie-id, or else the address)"
            ) from None


class BookieRegistration:
    """Keeps one bookie registered for as long as it serves, through lost sessions.

    Args:
        store: The metadata store.
        root: BookKeeper's root node.
        bookie_id: Name that clients use: "host:port", or one of its own.
        host: Where it listens.
        port: Where it listens.
        holder: Mark of its disks, by which a later process of them knows this one; "" = none.
        is_read_only: Begin as read-only.
        foreign_node_s_max: How long an ephemeral node of a former session may keep the place.

    """

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        bookie_id: str,
        *,
        host: str,
        port: int,
        holder: str = "",
        is_read_only: bool = False,
        foreign_node_s_max: float = 30.0,
    ) -> None:
        self._store = store
        self._root = root
        self._bookie_id = bookie_id
        self._value = encode_bookie_service_info(host, port, holder)
        self._foreign_node_s_max = foreign_node_s_max
        self._is_read_only = is_read_only
        self._session_id = -1  # of the session that holds our node
        self._unsure_session_id = -1  # of the session in which a create got no reply
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # look at the nodes again
        self._settled = asyncio.Event()  # the nodes are as they should be
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def is_registered(self) -> bool:
        """Its node stands, as far as is known: it belongs to the session that goes on."""
        state = self._store.session_state
        if state is SessionState.SUSPENDED:
            return self._session_id != -1
        return state is SessionState.CONNECTED and self._session_id == self._store.session_id

    async def register(self) -> None:
        """Register and stay registered; returns once the node stands.

        Raises:
            CookieMismatchError: Another live bookie holds the id.
            MetadataError: The metadata store does not answer.

        """
        await self._settle()
        self._unsubscribe = self._store.on_session_state(self._heard)
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def set_read_only(self, is_read_only: bool) -> None:
        """Move between writable and read-only; returns once done, which takes the metadata store's answer."""
        if is_read_only == self._is_read_only:
            return
        self._is_read_only = is_read_only
        self._settled.clear()
        self._changed.set()
        await self._settled.wait()

    async def unregister(self) -> None:
        """Leave: no client chooses this bookie for a new ledger from now on, at the latest when the session ends."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S_MAX):
                for is_read_only in (False, True):
                    with contextlib.suppress(MetadataError):
                        await self._store.delete(self._path(is_read_only))

    def _path(self, is_read_only: bool) -> str:
        path = paths.read_only_path if is_read_only else paths.available_path
        return path(self._root, self._bookie_id)

    async def _settle(self) -> None:
        """Make the node that should stand, then remove the other one: clients always find one of them."""
        is_read_only = self._is_read_only
        await self._claim(self._path(is_read_only))
        with contextlib.suppress(NoNodeError):
            await self._store.delete(self._path(not is_read_only))
        if is_read_only == self._is_read_only:
            self._settled.set()

    async def _claim(self, path: str) -> None:
        """Create the ephemeral node and watch it; wait for one that a former session of this id has left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._foreign_node_s_max
        while True:
            try:
                if await self._create(path) and await self._store.exists(path, watch=self._changed.set) is not None:
                    self._session_id = self._store.session_id
                    return
                await self._wait_until_gone(path, min(deadline - loop.time(), 1.0))
            except (MetadataUnavailableError, MetadataSessionLostError):
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_RETRY_S)
            if loop.time() >= deadline:
                raise CookieMismatchError(
                    f"bookie {self._bookie_id}: {path} has belonged to another session for "
                    f"{self._foreign_node_s_max:.0f} s: another process serves under this "
                    "id; stop it, or choose another id (--bookie-id, or else the address)"
                )

    async def _create(self, path: str) -> bool:
        """Create the node; return False if it is somebody else's.

        One that exists may wrongly be taken for ours after a lost reply; the watch tells when it goes.
        """
        session_id = self._store.session_id
        try:
            await self._store.create(path, self._value, ephemeral=True, parents=True)
        except NodeExistsError:
            return session_id in (self._session_id, self._unsure_session_id)
        except MetadataUnavailableError:
            self._unsure_session_id = session_id
            raise
        return True

    async def _wait_until_gone(self, path: str, limit_s: float) -> None:
        _LOGGER.info("waiting for a former registration of %s to vanish", self._bookie_id)
        gone = asyncio.Event()
        if await self._store.exists(path, watch=gone.set) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await gone.wait()

    def _heard(self, state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:
            self._changed.set()

    async def _keep(self) -> None:
        """Put the nodes right whenever the session, the wish or the node itself changes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._store.session_state is not SessionState.CONNECTED:
                continue
            held = self._session_id
            try:
                await self._settle()
            except LedgerError as error:
                _LOGGER.warning("bookie %s could not register again, trying on: %s", self._bookie_id, error)
                await asyncio.sleep(_RETRY_S)
                self._changed.set()
            else:
                if held != self._session_id:
                    _LOGGER.warning("bookie %s registered again after a lost session", self._bookie_id)
