"""Processes in reserve: what they become, and how they end. What they load before is not of interest here."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.worker.code.folder import PoolFolder
from broker.worker.submit.warm_programs import WarmProgram, WarmPrograms, connectors_folder
from tests.unit.broker.worker.listening import WAIT_S

_TELLS = """
import json, os, sys
from pyspark import cloudpickle
import settings
def own():
    return 7
print(json.dumps({"args": sys.argv[1:], "name": __name__, "file": __file__, "own": settings.OWN, "x": os.environ["X"],
    "ours": [name for name in sys.modules if name.split(".")[0] in ("connectors", "ledger", "broker")],
    "input": sys.stdin.read(), "by_value": b"own" in cloudpickle.dumps(own)}))
raise ValueError("no flights")
"""


def _environment(_folder: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}


class _Words:
    """Both outputs of a program."""

    def __init__(self) -> None:
        self.output = b""
        self.log = b""

    def on_output(self, chunk: bytes) -> None:
        self.output += chunk

    def on_log(self, chunk: bytes) -> None:
        self.log += chunk


@asynccontextmanager
async def _programs(**settings: Any) -> AsyncIterator[WarmPrograms]:
    home = PoolFolder(None)
    made = WarmPrograms(home, **{"count_max": 2, "idle_s": 600.0, "environment": _environment, **settings})
    try:
        yield made
    finally:
        await made.close()
        home.remove()


async def _until_over(program: WarmProgram) -> int:
    async with asyncio.timeout(WAIT_S):
        return await program.wait()


@pytest.mark.asyncio
async def test_it_is_the_program_as_if_python_had_been_started_with_it(tmp_path: Path) -> None:
    (tmp_path / "tells.py").write_text(_TELLS)
    (tmp_path / "settings.py").write_text("OWN = 3\n")
    words = _Words()
    async with _programs() as made:
        program = await made.take(str(tmp_path), None)
        path = f"{tmp_path}/tells.py"
        program.be(path, ["--x", "y z"], {"X": "1"}, on_output=words.on_output, on_log=words.on_log)
        assert await _until_over(program) == 1
    assert json.loads(words.output) == {
        "args": ["--x", "y z"], "name": "__main__", "file": path, "own": 3, "x": "1", "ours": [], "input": "",
        "by_value": True,
    }  # fmt: skip
    assert words.log.decode().splitlines()[0] == "Traceback (most recent call last):"
    assert "warm_program" not in words.log.decode()
    assert words.log.decode().endswith("ValueError: no flights\n")


@pytest.mark.asyncio
async def test_one_in_reserve_is_taken_once_and_by_its_own_pool_alone() -> None:
    async with _programs() as made:
        made.provide("a", None)
        await asyncio.wait(made._starting)
        other = await made.take("b", None)
        (reserved, _) = made._reserve["a"]
        first, second = await made.take("a", None), await made.take("a", None)
        assert first is reserved
        assert reserved not in {other, second}
        for one in (first, second, other):
            one.end()
            assert await _until_over(one) != 0


@pytest.mark.asyncio
async def test_reserves_are_bounded_and_end_after_a_while_and_with_their_worker() -> None:
    async with _programs(count_max=1) as made:
        for code in ("a", "b"):
            made.provide(code, None)
            await asyncio.wait(made._starting)
        assert list(made._reserve) == ["b"], "the one that has waited longest makes room"
        (last, _) = made._reserve["b"]
    assert last.is_over
    async with _programs(idle_s=0.05) as made:
        made.provide("a", None)
        await asyncio.wait(made._starting)
        (program, _) = made._reserve["a"]
        await _until_over(program)
        again = await made.take("a", None)
        assert again is not program
        again.end()
        await _until_over(again)


def test_its_file_ends_without_a_program(tmp_path: Path) -> None:
    command = [sys.executable, f"{connectors_folder()}/pool/warm_program.py"]
    done = subprocess.run(command, check=False, input=b"", capture_output=True, timeout=300, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
