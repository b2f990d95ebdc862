"""Says every second whether a bookie is ready: registered, its journal goes on, and it takes adds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ledger.ports import SessionState
from ledger.readiness import READINESS_FILE, Readiness, notify_supervisor, write_readiness

_LOGGER = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_FORGET_S_MAX = 1.0
JOURNAL_S_MAX = 5.0
"""A batch of the journal that is not on disk after so long: the disk stands still."""


class BookieHealth(msgspec.Struct, frozen=True):
    """Facts on which the readiness of a bookie depends.

    Attributes:
        session: With ZooKeeper.
        is_registered: Its node stands in ZooKeeper, as far as is known.
        is_read_only: It takes no ordinary adds.
        is_in_limbo: It lost data and does not have all of it again.
        batch_count: Batches of the journal that are on disk.
        is_writing: A batch of the journal is on its way to the disk.
        failure: Why the journal has stopped; "" = it has not.

    """

    session: SessionState
    is_registered: bool
    is_read_only: bool
    is_in_limbo: bool
    batch_count: int
    is_writing: bool
    failure: str = ""


def readiness(state: BookieHealth, *, stands_s: float, away_s: float, session_s: float) -> tuple[bool, str]:
    """Return whether a bookie is ready, and why or why not.

    Args:
        state: Of the bookie.
        stands_s: How long one batch of the journal has been on its way.
        away_s: How long ZooKeeper has not answered.
        session_s: How long a session outlives that.

    """
    if state.failure:
        return False, f"not ready: its journal has stopped: {state.failure}"
    if stands_s >= JOURNAL_S_MAX:
        return False, f"not ready: its journal has waited for the disk for {stands_s:.0f} s"
    if away_s >= session_s and state.session is SessionState.SUSPENDED:
        return False, "not ready: ZooKeeper is away, and its session may have ended; clients that know it go on"
    if not state.is_registered:
        return False, "not ready: its session with ZooKeeper is lost, and it is not registered again yet"
    if state.is_read_only:
        return False, "not ready: read-only (no room on its disks, or --read-only): it serves reads and recoveries"
    return True, "ready; in limbo: it fetches what it lost from other bookies" if state.is_in_limbo else "ready"


class ReadinessKeeper:
    """Keeps the file of readiness true.

    Args:
        folder: Where the file lies.
        session_s: How long its session with ZooKeeper lasts while nobody answers.

    """

    def __init__(self, folder: Path, *, session_s: float) -> None:
        self._folder = folder
        self._session_s = session_s
        self._away_since_s: float | None = None
        self._batch_count = -1
        self._writing_since_s: float | None = None
        self._told = ""
        self._was_ready: bool | None = None
        self._writing: asyncio.Task[None] | None = None

    async def keep(self, state: Callable[[], BookieHealth]) -> None:
        """Write the file every second."""
        while True:
            await self.say(state(), time.monotonic())
            await asyncio.sleep(_INTERVAL_S)

    def look(self, state: BookieHealth, now_s: float) -> Readiness:
        """Return what can be said now; `now_s` is monotonic time."""
        if state.session is SessionState.CONNECTED:
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = now_s
        if not state.is_writing:
            self._writing_since_s = None
        elif self._writing_since_s is None or state.batch_count != self._batch_count:
            self._writing_since_s = now_s
        self._batch_count = state.batch_count
        is_ready, words = readiness(
            state,
            stands_s=now_s - (self._writing_since_s or now_s),
            away_s=now_s - (self._away_since_s or now_s),
            session_s=self._session_s,
        )
        return Readiness(is_ready=is_ready, words=words, pid=os.getpid(), said_at_s=now_s)

    async def say(self, state: BookieHealth, now_s: float) -> None:
        """Write the file; `now_s` is monotonic time."""
        said = self.look(state, now_s)
        is_ready, words = said.is_ready, said.words
        if words != self._told:
            notify_supervisor(said)
            if is_ready != self._was_ready:  # Not each second: words hold a number.
                _LOGGER.log(logging.INFO if is_ready else logging.WARNING, "%s", words)
            self._told, self._was_ready = words, is_ready
        # On a thread: a disk that stands still must not hold up the loop.
        self._writing = asyncio.create_task(asyncio.to_thread(self._write, said))
        await asyncio.shield(self._writing)

    async def forget(self) -> None:
        """Remove the file: the bookie serves no more. A disk that stands still is not waited for."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FORGET_S_MAX):
                if self._writing is not None:
                    await self._writing
                await asyncio.to_thread((self._folder / READINESS_FILE).unlink, missing_ok=True)

    def _write(self, said: Readiness) -> None:
        try:
            write_readiness(self._folder, said)
        except OSError as error:
            _LOGGER.warning("cannot write %s: %s", self._folder / READINESS_FILE, error)
