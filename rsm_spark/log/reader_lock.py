"""A lock of readers: of those that share a name at a log, one reads at a time.

    <root>/readers/<log id>/<name>    ephemeral: who reads

The lock keeps readers from doing work twice. It proves nothing about a reader that was paused: what it has read is
stored under its own registration, which the next holder's takes the place of (`rsm_spark.log.consumers`).

* `ReaderLockError`   an `RsmError`: another reader holds the lock
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket

from ledger.errors import LedgerError, MetadataUnavailableError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore, SessionState
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import RsmError

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 1.0
_RELEASES: set[asyncio.Task[None]] = set()


class ReaderLockError(RsmError):
    """Another reader holds the lock; or this one has lost it with its session."""


def readers_path(log_id: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the parent of the locks of a log."""
    return f"{rsm_root}/readers/{log_id}"


class ReaderLock:
    """One lock, held or not.

    Args:
        store: Session with the metadata store.
        log_id: Of the log, 32 hex digits.
        name: What readers share.
        rsm_root: Where logs live.

    Attributes:
        is_lost: It was held, and the session ended.

    """

    def __init__(self, store: MetadataStore, log_id: str, name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> None:
        self.is_lost = False
        self._store = store
        self._name = name
        self._path = f"{readers_path(log_id, rsm_root)}/{name}"
        self._value = f"{os.urandom(16).hex()} process {os.getpid()} on {socket.gethostname()}".encode()
        self._unsubscribe = store.on_session_state(self._on_session_state)

    def _on_session_state(self, state: SessionState) -> None:
        self.is_lost = self.is_lost or state is SessionState.LOST

    async def acquire(self, wait_s: float) -> None:
        """Take the lock.

        Args:
            wait_s: How long to wait for another reader to go.

        Raises:
            ReaderLockError: It did not go.
            MetadataError: The metadata store cannot be asked.

        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            gone = asyncio.Event()
            self.is_lost = False
            with contextlib.suppress(NodeExistsError, MetadataUnavailableError):
                await self._store.create(self._path, self._value, ephemeral=True, parents=True)
                return
            holder = await self._holder(gone)
            if holder == self._value:  # The reply was lost.
                return
            left = deadline - loop.time()
            if holder is not None and left <= 0:
                raise ReaderLockError(
                    f"reader {self._name}: {holder.decode(errors='replace').partition(' ')[2]} reads under this name: "
                    "stop it, wait longer, or take another name"
                )
            if holder is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_S)):
                        await gone.wait()

    async def _holder(self, gone: asyncio.Event) -> bytes | None:
        await self._store.sync(self._path)
        try:
            return (await self._store.get(self._path, watch=gone.set)).value
        except NoNodeError:
            return None

    def check(self) -> None:
        """Refuse to go on without the lock.

        Raises:
            ReaderLockError: The session ended, and the lock with it.

        """
        if self.is_lost:
            raise ReaderLockError(
                f"reader {self._name}: the session with ZooKeeper ended, and the lock with it: another reader may have "
                "gone on. Open the reader again: it goes on where the stored position is"
            )

    async def release(self) -> None:
        """Let go of the lock; it goes with the session at the latest.

        While the metadata store does not answer, this goes on in the background: the same session may want it again.
        """
        try:
            await self._let_go()
        except MetadataUnavailableError:
            task = asyncio.get_running_loop().create_task(self._let_go_later())
            _RELEASES.add(task)  # The loop itself holds tasks weakly.
            task.add_done_callback(_RELEASES.discard)
            return
        self._unsubscribe()

    async def _let_go_later(self) -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK_S)
                # Any other answer than none ends it: the session is over, or closed by its owner.
                with contextlib.suppress(MetadataUnavailableError):
                    await self._let_go()
                    return
        except LedgerError as error:
            _LOGGER.info("a reader's lock is left to the end of its session: %s", error, extra={"reader": self._name})
        finally:
            self._unsubscribe()

    async def _let_go(self) -> None:
        if not self.is_lost and await self._holder(asyncio.Event()) == self._value:
            with contextlib.suppress(NoNodeError):
                await self._store.delete(self._path)
