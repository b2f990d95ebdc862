"""Brokers as processes, for tests that call them as everybody does: over HTTP."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_READY_S = 60.0
_ROOT = Path(__file__).parents[2]


class BrokerProcess:
    """One `rsm broker run`; `url` is where its API and its dashboard are."""

    def __init__(self, folder: Path, replica_id: str, *options: str) -> None:
        self._errors = folder / f"{replica_id}.log"
        command = [
            sys.executable, "-m", "rsm_spark", "broker", "run", "--replica-id", replica_id,
            "--data-dir", str(folder / replica_id), "--json", *options,
        ]  # fmt: skip
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=_ROOT)
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(_READY_S), self._errors.read_text()[-4000:]
        line = self.process.stdout.readline()
        assert line, self._errors.read_text()[-4000:]
        self.ready = json.loads(line)

    @property
    def url(self) -> str:
        return f"http://{self.ready['http_address']}"

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        said = self._errors.read_text()
        assert "never retrieved" not in said, said[-4000:]


@contextmanager
def brokers(folder: Path, *replica_ids: str, options: tuple[str, ...] = ()) -> Iterator[list[BrokerProcess]]:
    """Run brokers of one log; they are killed at the end."""
    processes = [BrokerProcess(folder, replica_id, *options) for replica_id in replica_ids]
    try:
        for process in processes:
            process.wait_ready()
        yield processes
    finally:
        for process in processes:
            process.kill()
