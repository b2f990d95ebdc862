"""How a bookie makes itself known: its ephemeral node, and the cookie that ties its id to its disks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ledger.errors import (
    CookieMismatchError,
    LedgerError,
    MetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.ports import MetadataStore, SessionState
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie, decode_cookie, encode_bookie_service_info, encode_cookie

__all__ = ["BookieRegistration", "create_cookie", "read_cookie"]

_LOG = logging.getLogger(__name__)
_RETRY_S = 0.5


async def read_cookie(store: MetadataStore, root: str, bookie_id: str) -> Cookie | None:
    """Return the cookie that this bookie id was first registered with, or None."""
    try:
        value, _version = await store.get(paths.cookie_path(root, bookie_id))
    except NoNodeError:
        return None
    return decode_cookie(value)


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
                f"bookie {bookie_id}: the id is registered with other disks; start it on those, or choose another port"
            ) from None


class BookieRegistration:
    """Keeps one bookie registered for as long as it serves, through lost sessions.

    Args:
        store: The metadata store.
        root: BookKeeper's root node.
        bookie_id: "host:port", which clients use as its name.
        host: Where it listens.
        port: Where it listens.
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
        foreign_node_s_max: float = 30.0,
    ) -> None:
        self._store = store
        self._root = root
        self._bookie_id = bookie_id
        self._value = encode_bookie_service_info(host, port)
        self._foreign_node_s_max = foreign_node_s_max
        self._is_read_only = False
        self._session_id = -1  # of the session that holds our node
        self._unsure_session_id = -1  # of the session in which a create got no reply
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None

    async def register(self) -> None:
        """Register as writable and stay registered; returns once the node stands.

        Raises:
            CookieMismatchError: Another live bookie holds the id.

        """
        await self._claim()
        self._unsubscribe = self._store.on_session_state(self._heard)
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def set_read_only(self, is_read_only: bool) -> None:
        """Move between writable and read-only; the new node is made before the old one goes."""
        if is_read_only == self._is_read_only:
            return
        self._is_read_only = is_read_only
        await self._claim()
        with contextlib.suppress(NoNodeError):
            await self._store.delete(self._path(not is_read_only))

    async def unregister(self) -> None:
        """Leave: no client chooses this bookie for a new ledger from now on."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for is_read_only in (False, True):
            with contextlib.suppress(MetadataError):
                await self._store.delete(self._path(is_read_only))

    def _path(self, is_read_only: bool) -> str:
        path = paths.read_only_path if is_read_only else paths.available_path
        return path(self._root, self._bookie_id)

    async def _claim(self) -> None:
        """Create the ephemeral node; wait for one that a former session of this id has left."""
        path = self._path(self._is_read_only)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._foreign_node_s_max
        while True:
            gone = asyncio.Event()
            try:
                await self._store.create(path, self._value, ephemeral=True, parents=True)
                break
            except NodeExistsError:
                if self._store.session_id in (self._session_id, self._unsure_session_id):
                    break  # it is ours: made before, or by the create whose reply was lost
            except MetadataUnavailableError:
                self._unsure_session_id = self._store.session_id
                raise
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise CookieMismatchError(
                    f"bookie {self._bookie_id}: {path} has belonged to another session for "
                    f"{self._foreign_node_s_max:.0f} s: another process serves under this "
                    "id; stop it, or choose another port"
                )
            _LOG.info("waiting for a former registration of %s to vanish", self._bookie_id)
            if await self._store.exists(path, watch=gone.set) is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, 1.0)):
                        await gone.wait()
        self._session_id = self._store.session_id

    def _heard(self, state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:
            self._changed.set()

    async def _keep(self) -> None:
        """Register again whenever the session is another one."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._store.session_state is not SessionState.CONNECTED or self._store.session_id == self._session_id:
                continue
            try:
                await self._claim()
                _LOG.warning("bookie %s registered again after a lost session", self._bookie_id)
            except LedgerError as error:
                _LOG.warning("bookie %s could not register again, trying on: %s", self._bookie_id, error)
                await asyncio.sleep(_RETRY_S)
                self._changed.set()
