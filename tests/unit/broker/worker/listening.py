"""What an executor is tested with: a listener that keeps all that it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.worker_messages import AssignedRun
from broker.worker.executors.executor import Executor

WAIT_S = 60.0


class Listening:
    def __init__(self) -> None:
        self.ends: dict[int, EndedRun] = {}
        self.progress: dict[int, list[ProgressOf]] = {}
        self.exhausted: list[str] = []
        self._changed = asyncio.Event()

    def on_ended(self, ends: Sequence[EndedRun]) -> None:
        for end in ends:
            assert end.assignment_id not in self.ends, "an end was told twice"
            self.ends[end.assignment_id] = end
        self._changed.set()

    def on_progress(self, progress: ProgressOf) -> None:
        self.progress.setdefault(progress.assignment_id, []).append(progress)
        self._changed.set()

    def on_exhausted(self, why: str) -> None:
        self.exhausted.append(why)
        self._changed.set()

    async def until(self, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def end_of(self, assignment_id: int) -> EndedRun:
        await self.until(lambda: assignment_id in self.ends)
        return self.ends[assignment_id]

    async def word_of(self, assignment_id: int) -> str:
        """Return the first progress message of a run."""
        await self.until(lambda: assignment_id in self.progress)
        return self.progress[assignment_id][0].message


@asynccontextmanager
async def listening(executor: Executor, threads_max: int = 4) -> AsyncIterator[Listening]:
    listener = Listening()
    await executor.start(listener, threads_max)
    try:
        yield listener
    finally:
        await executor.close()


def run(
    assignment_id: int,
    task_type: str,
    payload: bytes = b"",
    *,
    timeout_ms: int = 0,
    heartbeat_ms: int = 0,
    code: str = "",
    mode: str = "",
) -> AssignedRun:
    return AssignedRun(
        assignment_id + 1000,
        assignment_id,
        "acme",
        task_type,
        payload,
        2,
        timeout_ms=timeout_ms,
        heartbeat_ms=heartbeat_ms,
        code=code,
        mode=mode,
        resources={"db": 1},
    )
