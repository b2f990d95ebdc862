"""A replica's two ports as a process of its own, before a replica that answers at once, with entries for followers.

with ReplicaPortProcess() as port: ... port.port, port.framed, port.pid, port.errors()
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from rsm_spark.core.position import LogPosition
from rsm_spark.runtime.entry_telling import EntryTelling
from rsm_spark.runtime.relaying import LeaderPlace
from rsm_spark.transport.relay_service import RelayService
from rsm_spark.transport.security import Security
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.tail_service import TailService
from tests.unit.rsm_spark.client.replica_double import Group, ReplicaDouble

__all__ = ["ReplicaPortProcess"]

_ROOT = Path(__file__).parents[2]


class ReplicaPortProcess:
    """See the module.

    Args:
        files_max: Soft and hard limit of open files of the process; 0 = as it is here.
        leader: Another one, to which it passes clients' streams on; None = it answers itself.
        **security: Of `Security`.

    """

    def __init__(self, *, files_max: int = 0, leader: ReplicaPortProcess | None = None, **security: Any) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        place = None if leader is None else [leader.address, "{}:{}".format(*leader.framed)]
        told = json.dumps({"files_max": files_max, "security": security, "leader": place})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.replica_port_process", told],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=_ROOT,
        )
        self.pid = self._process.pid
        self.host, self.port, self.framed_port = "127.0.0.1", 0, 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def grpc(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def framed(self) -> tuple[str, int]:
        return self.host, self.framed_port

    def errors(self) -> str:
        """What it wrote to standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def files(self) -> int:
        """How many files it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.errors()
        self.port, self.framed_port = map(int, line.split())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


async def _serve(security: Security, leader: LeaderPlace | None) -> None:
    server = ReplicaServer("orders", security=security)
    telling = EntryTelling(1, None)
    for number in range(1_000):
        telling.add(LogPosition(1, number), bytes(8_000))
    TailService("orders", telling.after).add_to(server)
    RelayService("orders", server, lambda: leader, lambda: leader is None, security).add()
    await server.start(ReplicaDouble(Group()), lambda: b"{}")
    ports = [address.rpartition(":")[2] for address in (server.address, server.framed_address)]
    print(*ports, flush=True)  # noqa: T201 - it is what the parent waits for
    await asyncio.Event().wait()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given["files_max"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given["files_max"], given["files_max"]))
    place = given["leader"] and LeaderPlace(*given["leader"])
    asyncio.run(_serve(Security(**given["security"]), place))
