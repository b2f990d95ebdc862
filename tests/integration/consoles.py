"""Consoles of a cluster as processes, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx


class ConsoleProcess(NamedTuple):
    """One `rsm console`."""

    url: str
    pid: int

    def asking(self, token: str = "") -> httpx.Client:
        """Return a client of it."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def view(self, token: str = "") -> dict[str, Any]:
        """Return what it shows."""
        with self.asking(token) as http:
            answer = http.get("/api/v1/view")
            assert answer.status_code == 200, answer.text
            shown: dict[str, Any] = answer.json()
            return shown


@contextmanager
def console(metadata_uri: str, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[ConsoleProcess]:
    """Run one; it looks every half second. `environment` = beside this process's."""
    command = [sys.executable, "-m", "rsm_spark", "console", "--metadata-uri", metadata_uri, "--json"]
    command += ["--http-port", "0", "--look-s", "0.5", *options]
    variables = {**os.environ, **(environment or {})}
    where = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=where, env=variables) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield ConsoleProcess(told["url"], process.pid)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
