"""NATS JetStream beside ours: three servers that sync every message, a stream of three replicas, its own client.

Built from `tests/bench/go/nats` with the `go` on the path; without one, or without a way to its modules, the bench
says so and goes on. The servers run only while they are measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.dev.ports import HOST, choose_port
from ledger.dev.process import end_all, spawn

__all__ = ["NatsPeer", "PeerMissingError", "build_go"]

_SOURCES = Path(__file__).with_name("go")
_SERVER_CONF = """\
server_name: n{number}
listen: {host}:{client}
jetstream {{ store_dir: "{folder}", sync_interval: always, max_mem: 1G, max_file: 8G }}
cluster {{ name: bench, listen: {host}:{route}, routes: [{routes}] }}
"""


class PeerMissingError(Exception):
    """A peer cannot be built here."""


def build_go(name: str, folder: Path) -> Path:
    """Build a peer of `tests/bench/go`; return its program.

    Raises:
        PeerMissingError: There is no `go`, or it cannot build.

    """
    go = shutil.which("go")
    if go is None:
        raise PeerMissingError("there is no `go` on the path")
    program = folder / f"{name}-peer"
    built = subprocess.run(
        [go, "build", "-mod=readonly", "-o", str(program), "."],
        cwd=_SOURCES / name,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        last = built.stderr.strip().splitlines() or ["it said nothing"]
        raise PeerMissingError(f"`go build` of {name} failed: {last[-1]}")
    return program


class NatsPeer:
    """Three servers and a load.

    Args:
        folder: For program, configuration, data and logs.

    Raises:
        PeerMissingError: It cannot be built here.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._program = build_go("nats", folder)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Run the servers on empty folders; yield their URLs."""
        ports: list[int] = []
        for _ in range(6):
            ports.append(choose_port(taken=set(ports)))
        clients, routes = ports[:3], ports[3:]
        processes = []
        try:
            for number, (client, route) in enumerate(zip(clients, routes, strict=True)):
                data = self._folder / f"n{number}"
                shutil.rmtree(data, ignore_errors=True)
                conf = self._folder / f"n{number}.conf"
                others = ", ".join(f"nats://{HOST}:{port}" for port in routes)
                conf.write_text(
                    _SERVER_CONF.format(
                        number=number, host=HOST, client=client, folder=data, route=route, routes=others
                    ),
                    encoding="utf-8",
                )
                command = [str(self._program), "serve", "--config", str(conf)]
                processes.append(spawn(command, log=self._folder / f"n{number}.log", env=os.environ))
            yield ",".join(f"nats://{HOST}:{port}" for port in clients)
        finally:
            end_all(processes, grace_s=10)

    def load(self, urls: str, *, in_flight: int, warm: int, count: int, size: int) -> dict[str, Any]:
        """Publish; return `per_s` and `p50_ms`."""
        options = {"urls": urls, "in-flight": in_flight, "warm": warm, "count": count, "size": size}
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        said = subprocess.run(
            [str(self._program), "load", *arguments], capture_output=True, text=True, check=False, timeout=300
        )
        assert said.returncode == 0, said.stderr
        answer: dict[str, Any] = json.loads(said.stdout)
        return answer
