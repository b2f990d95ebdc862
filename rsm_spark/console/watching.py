"""Watches a cluster for all who look at the console: one look for everybody, told to whoever waits for what changes.

Replicas push their status to nobody, so they are asked: every few seconds while somebody looks, once a minute for the
history while nobody does. What ZooKeeper can push, bookies that come and go, wakes the next look at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator

import msgspec

from rsm_spark.console.cluster_look import ClusterLook
from rsm_spark.console.core.history import HistoryRing, HistoryRow, sample_of
from rsm_spark.console.core.view import SECTIONS, ConsoleView, changed_sections
from rsm_spark.console.core.warnings import WarningFinder
from rsm_spark.console.history_file import HistoryFile
from rsm_spark.console.settings import ConsoleSettings

_LOGGER = logging.getLogger(__name__)
_GAP_S = 0.5
_LOOK_S_MAX = 60.0


class ClusterWatcher:
    """See the module.

    Args:
        look: What is looked at.
        settings: See `ConsoleSettings`.
        file: Keeps the history; None = it is in memory alone.
        wall_ms: Wall clock.

    Attributes:
        view: The newest view.
        looks: How often the cluster was looked at.
        history: Of the last day.

    """

    def __init__(
        self,
        look: ClusterLook,
        settings: ConsoleSettings,
        file: HistoryFile | None = None,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.view = ConsoleView()
        self.looks = 0
        self.history = HistoryRing(() if file is None else file.read())
        self._look = look
        self._settings = settings
        self._file = file
        self._wall_ms = wall_ms
        self._finder = WarningFinder()
        self._changed: dict[str, int] = {}  # by section, when it changed last
        self._waiters: set[asyncio.Event] = set()
        self._wake = asyncio.Event()
        self._is_due = True  # for a thorough look, whatever the time
        self._watched_s = -1e9
        self._thorough_s = -1e9
        self._looked_s = -1e9

    def wake(self) -> None:
        """Have a thorough look taken soon: a bookie has come or gone."""
        self._is_due = True
        self._wake.set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._wake.clear()
            await self._once()
            rest_s = self._settings.look_s if self._is_watched() else self._settings.idle_look_s
            await asyncio.sleep(_GAP_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rest_s - _GAP_S)):
                    await self._wake.wait()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        """Return an event that is set whenever a part of the view has changed; the one who waits clears it."""
        event = asyncio.Event()
        self._waiters.add(event)
        self._attend()
        try:
            yield event
        finally:
            self._waiters.discard(event)
            self._watched_s = time.monotonic()

    def changed_since(self, at_ms: int) -> list[str]:
        """Return the parts of the view that have changed at a moment or later."""
        return [name for name in SECTIONS if self._changed.get(name, 0) >= at_ms]

    async def fresh(self, wait_s: float) -> ConsoleView:
        """Return a view that is not old, if one comes within a time; else the newest."""
        if time.monotonic() - self._looked_s > 2 * self._settings.look_s:
            with self.waiting() as event, contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    looks = self.looks
                    while self.looks == looks:
                        event.clear()
                        await event.wait()
        else:
            self._attend()
        return self.view

    def _attend(self) -> None:
        """Note that somebody looks: the next look need not wait for its minute."""
        was_watched = self._is_watched()
        self._watched_s = time.monotonic()
        if not was_watched or time.monotonic() - self._looked_s > self._settings.look_s:
            self._wake.set()

    def _is_watched(self) -> bool:
        return bool(self._waiters) or time.monotonic() - self._watched_s < self._settings.watched_s

    async def _once(self) -> None:
        settings, now_s = self._settings, time.monotonic()
        rest_s = settings.thorough_s if self._is_watched() else settings.idle_thorough_s
        is_thorough = self._is_due or now_s - self._thorough_s >= rest_s
        if is_thorough:
            self._is_due, self._thorough_s = False, now_s
        before = self.view
        now_ms = max(self._wall_ms(), before.at_ms + 1)
        try:
            async with asyncio.timeout(_LOOK_S_MAX):
                view = await self._look.look(before, now_ms, is_thorough=is_thorough)
        except TimeoutError:
            view = msgspec.structs.replace(before, at_ms=now_ms, problem=f"no answer within {_LOOK_S_MAX:g} s")
        except Exception:  # an error of ours in one look must not end the console
            _LOGGER.exception("a look at the cluster failed")
            view = msgspec.structs.replace(before, at_ms=now_ms, problem="an error of the console's own: see its log")
        self._is_due = self._is_due or (is_thorough and bool(view.problem))
        view = msgspec.structs.replace(view, warnings=self._finder.warnings(view))
        changed = changed_sections(before, view)
        sample = sample_of(view)
        if self.history.add(sample):
            changed.add("history")
            await self._keep(sample)
        self.view = view
        self.looks += 1
        self._looked_s = time.monotonic()
        self._changed.update(dict.fromkeys(changed, view.at_ms))
        for event in self._waiters:
            event.set()

    async def _keep(self, sample: HistoryRow) -> None:
        if self._file is not None:
            await asyncio.to_thread(self._file.write, sample, self.history.since(0))
