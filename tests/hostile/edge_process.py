"""The HTTP edge as a process of its own, before a broker that answers at once: what is measured is the edge alone.

    with EdgeProcess(settings) as edge: ... edge.host, edge.port, edge.pid

An attacker lives in the test's process, so that what it costs him is not the server's.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from broker.machine.tables import BROKER_DESCRIPTION, RecordType
from rsm_spark.core.machine import FieldType
from tests.unit.broker.api.stand import Caller, StandIn, serving, task

__all__ = ["EdgeProcess"]

_ROOT = Path(__file__).parents[2]
_EVENTS_PACE_S = 0.05


class EdgeProcess:
    """See the module.

    Args:
        files_max: Soft and hard limit of open files of the process; 0 = as it is here.
        **settings: Of `HttpSettings`.

    """

    def __init__(self, *, files_max: int = 0, **settings: Any) -> None:
        told = json.dumps({"files_max": files_max, "settings": settings})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.edge_process", told], stdout=subprocess.PIPE, cwd=_ROOT
        )
        self.pid = self._process.pid
        self.host, self.port = "127.0.0.1", 0

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the edge did not start"
        self.port = int(line)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    async def connect(self, **options: Any) -> Caller:
        """Return a connection to it."""
        return Caller(*await asyncio.open_connection(self.host, self.port, **options), f"{self.host}:{self.port}")


def _ended(task_id: int) -> tuple[int, tuple[Any, ...]]:
    """Return the record of a task's end."""
    blank = {FieldType.INT: 0, FieldType.STR: "", FieldType.BYTES: b"", FieldType.FLOAT: 0.0, FieldType.BOOL: False}
    (ended,) = [one for one in BROKER_DESCRIPTION.records if one.type == RecordType.TASK_ENDED]
    return ended.type, tuple(task_id if one.name == "task_id" else blank[one.type] for one in ended.fields)


async def _serve(settings: dict[str, Any]) -> None:
    broker = StandIn()
    async with serving(broker, **settings) as (server, _):
        print(server.address.rpartition(":")[2], flush=True)  # noqa: T201 - it is what the parent waits for
        while True:  # Something happens all the time.
            broker.changes.log(_ended(1))
            broker.commands.clear()  # What it keeps for tests that look is not the edge's.
            broker.tasks = {1: task(1)}
            await asyncio.sleep(_EVENTS_PACE_S)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given["files_max"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given["files_max"], given["files_max"]))
    asyncio.run(_serve(given["settings"]))
