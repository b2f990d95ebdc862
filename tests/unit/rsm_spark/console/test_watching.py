"""One look for everybody who watches: told to whoever waits, seldom while nobody does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from rsm_spark.console.cluster_look import ClusterLook
from rsm_spark.console.core.view import ConsoleView
from rsm_spark.console.history_file import HistoryFile
from rsm_spark.console.settings import ConsoleSettings
from rsm_spark.console.watching import ClusterWatcher
from tests.unit.rsm_spark.console.views import lacking, view


class _Look(ClusterLook):
    """Shows what a test says, and counts."""

    def __init__(self) -> None:
        self.shown = view()
        self.thorough: list[bool] = []
        self.error: Exception | None = None

    async def look(self, before: ConsoleView, now_ms: int, *, is_thorough: bool) -> ConsoleView:
        self.thorough.append(is_thorough)
        if self.error is not None:
            raise self.error
        return msgspec.structs.replace(self.shown, at_ms=now_ms)


SETTINGS = ConsoleSettings(look_s=0.5)


@contextlib.asynccontextmanager
async def watching(
    look: _Look, settings: ConsoleSettings = SETTINGS, wall_ms: Callable[[], int] = lambda: 90_000
) -> AsyncIterator[ClusterWatcher]:
    watcher = ClusterWatcher(look, settings, wall_ms=wall_ms)
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _until(watcher: ClusterWatcher, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        with watcher.waiting() as event:
            while not condition():
                event.clear()
                await event.wait()


def test_who_waits_is_told_which_part_changed_and_when() -> None:
    async def run() -> None:
        look = _Look()
        async with watching(look) as watcher:
            first = await watcher.fresh(60)
            assert first.bookies
            seen_ms = watcher.view.at_ms
            look.shown = view(copies=lacking())
            await _until(watcher, lambda: watcher.view.copies == lacking())
            changed = watcher.changed_since(seen_ms + 1)
            assert changed == ["copies", "warnings"]
            assert watcher.changed_since(watcher.view.at_ms + 1) == []
            assert watcher.view.at_ms > seen_ms, "moments rise, though the clock stands still"

    asyncio.run(run())


def test_a_bookie_that_comes_or_goes_has_all_looked_at_at_once() -> None:
    async def run() -> None:
        look = _Look()
        async with watching(look, ConsoleSettings(look_s=0.5, thorough_s=1e9)) as watcher:
            await _until(watcher, lambda: len(look.thorough) >= 3)
            assert look.thorough[:3] == [True, False, False]
            watcher.wake()
            await _until(watcher, lambda: any(look.thorough[3:]))

    asyncio.run(run())


def test_nobody_watches_and_the_next_look_is_minutes_away_until_somebody_comes() -> None:
    async def run() -> None:
        look = _Look()
        async with watching(look, ConsoleSettings(look_s=0.5, watched_s=0.0, idle_look_s=1e6)) as watcher:
            while not watcher.looks:
                await asyncio.sleep(0.01)
            await asyncio.sleep(2)
            assert watcher.looks == 1
            await _until(watcher, lambda: watcher.looks >= 2)

    asyncio.run(run())


def test_an_error_of_ours_is_a_problem_of_one_view() -> None:
    async def run() -> None:
        look = _Look()
        async with watching(look) as watcher:
            await watcher.fresh(60)
            look.error = KeyError("x")
            await _until(watcher, lambda: bool(watcher.view.problem))
            assert watcher.view.bookies, "what was seen before stays"
            assert watcher.view.warnings[0].about == "cluster"
            look.error = None
            await _until(watcher, lambda: not watcher.view.problem)

    asyncio.run(run())


def test_the_history_outlives_the_console(tmp_path: Path) -> None:
    async def run() -> None:
        look, clock = _Look(), iter(range(60_000, 10**9, 60_000))
        watcher = ClusterWatcher(look, SETTINGS, HistoryFile(tmp_path), wall_ms=lambda: next(clock))
        task = asyncio.create_task(watcher.run())
        try:
            await _until(watcher, lambda: len(watcher.history) >= 3)
        finally:
            task.cancel()
            await asyncio.wait([task])
        kept = HistoryFile(tmp_path).read()
        assert kept == watcher.history.since(0)[: len(kept)]
        assert len(kept) >= 3

    asyncio.run(run())
