"""Brokers and workers as processes, for tests; what the workers' tasks do leaves a trace in files."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["TASKS", "WorkerProcess", "is_alive", "lines", "started"]

_READY_S = 60.0
_ROOT = Path(__file__).parents[2]
TASKS = "tests.integration.worker_tasks"


class WorkerProcess:
    """One `rsm worker run`.

    Attributes:
        ready: Its ready line; waited for by `wait_ready`.

    """

    def __init__(self, folder: Path, worker_id: str, *options: str) -> None:
        self.worker_id = worker_id
        self.ready: dict[str, Any] = {}
        self._errors = folder / f"{worker_id}.log"
        command = [sys.executable, "-m", "rsm_spark", "worker", "run", "--worker-id", worker_id, "--json"]
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--log-level", "info", *options], stdout=subprocess.PIPE, stderr=errors, cwd=_ROOT
            )

    async def wait_ready(self) -> dict[str, Any]:
        """Wait until a broker serves it, which may be in this process."""
        return await asyncio.to_thread(self._read_ready)

    def _read_ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(_READY_S), f"{self.worker_id} is not ready: {self.errors()}"
        line = self.process.stdout.readline().decode()
        assert line, f"{self.worker_id} ended: {self.errors()}"
        self.ready = json.loads(line)
        return self.ready

    def errors(self) -> str:
        return self._errors.read_text()[-4000:]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.reap(10)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def wait_ended(self, timeout_s: float = 30) -> int:
        deadline_s = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, f"{self.worker_id} does not end: {self.errors()}"
            await asyncio.sleep(0.02)
        return self.reap(1)

    def reap(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert "never retrieved" not in self._errors.read_text(), self.errors()
        return code


@contextmanager
def started(folder: Path, worker_id: str, *options: str) -> Iterator[WorkerProcess]:
    """Run a worker; it is killed at the end if it has not ended before."""
    worker = WorkerProcess(folder, worker_id, *options)
    try:
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.kill()


def lines(path: Path) -> list[str]:
    """Return the lines that tasks have written to a file."""
    return path.read_text().splitlines() if path.exists() else []


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
