"""A pool whose workers are threads of the test, and that no broker serves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from broker.pool.controller import PoolController, PoolSettings, PoolShape, PoolSummary
from broker.pool.core.sizing import PoolBounds
from broker.pool.member import MemberSpec, run_member
from broker.worker.settings import WorkerSettings
from broker.worker.work_options import WorkOptions
from rsm_spark.errors import RsmError

SPEC = MemberSpec(
    pool="crew", index=0, launch=0, host="", port=0, secret="ab" * 32, brokers=["127.0.0.1:1"], orphaned_s=1.0,
    work=WorkOptions(tasks="tests.integration.worker_tasks", worker=WorkerSettings(drain_s=5.0)),
)  # fmt: skip


class Threads:
    """Starts workers as threads."""

    def __init__(self) -> None:
        self.launched: list[tuple[int, int]] = []
        self.cancelled: list[tuple[int, int]] = []

    def launch(self, index: int, launch: int, spec_text: str, on_over: Callable[[int, int, str], None]) -> None:
        self.launched.append((index, launch))

        def run() -> None:
            on_over(index, launch, run_member(spec_text, 0))

        threading.Thread(target=run, daemon=True).start()

    def cancel(self, index: int, launch: int) -> None:
        self.cancelled.append((index, launch))


async def until(shapes: list[PoolShape], condition: Callable[[PoolShape], bool]) -> None:
    async with asyncio.timeout(60):
        while not (shapes and condition(shapes[-1])):
            await asyncio.sleep(0.01)


def kept(count: int, tasks: str = SPEC.work.tasks) -> tuple[PoolController, Threads, list[PoolShape]]:
    bounds = PoolBounds(workers_min=count, workers_max=count, threads=4)
    spec = msgspec.structs.replace(SPEC, work=msgspec.structs.replace(SPEC.work, tasks=tasks))
    settings = PoolSettings(bounds=bounds, spec=spec)
    threads = Threads()
    shapes: list[Any] = []
    return PoolController(settings, threads, None, shapes.append), threads, shapes


@pytest.mark.asyncio
async def test_workers_are_started_heard_and_let_go_in_good_order() -> None:
    keeper, threads, shapes = kept(2)
    running = asyncio.create_task(keeper.run())
    await until(shapes, lambda shape: shape.starting == 2 and bool(shape.trouble))
    async with asyncio.timeout(60):
        while len(keeper._roster._links) < 2:  # A worker that was not heard yet would be cancelled.
            await asyncio.sleep(0.01)
    keeper.stop()
    summary = await running
    assert summary == PoolSummary(ended=0, serving_max=0, launched=2, lost=0, cancelled=0)
    assert threads.launched == [(0, 1), (1, 2)]
    assert threads.cancelled == []


@pytest.mark.asyncio
async def test_a_pool_whose_workers_cannot_import_their_tasks_ends_with_the_reason() -> None:
    keeper, threads, _ = kept(1, tasks="no_such_module")
    with pytest.raises(RsmError, match="there is no module 'no_such_module'"):
        await keeper.run()
    assert len(threads.launched) == 1


@pytest.mark.asyncio
async def test_a_worker_whose_keeper_is_gone_ends_by_itself() -> None:
    keeper, _, shapes = kept(1)
    ends: list[str] = []
    keeper._on_over = lambda index, launch, error: ends.append(error)  # type: ignore[method-assign]  # noqa: ARG005
    running = asyncio.create_task(keeper.run())
    await until(shapes, lambda shape: bool(shape.trouble))
    running.cancel()
    await asyncio.wait([running])
    async with asyncio.timeout(60):
        while not ends:
            await asyncio.sleep(0.01)
    assert "does not answer" in ends[0]
