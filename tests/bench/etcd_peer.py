"""etcd beside ours: three servers that sync every put, its own client; built from `tests/bench/go/etcd`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.dev.ports import HOST, choose_port
from ledger.dev.process import ProcessId, end_all, spawn
from rsm_spark.map.etcd import etcd_pb2 as pb
from tests.bench.nats_peer import build_go
from tests.integration.etcd_calls import EtcdCalls

__all__ = ["EtcdPeer"]

_NODES = 3
_START_S_MAX = 60.0


class EtcdPeer:
    """Three servers and a load.

    Args:
        folder: For program, data and logs.
        key_count: Keys of the load.
        value_bytes: Of each value.

    Raises:
        PeerMissingError: It cannot be built here.

    """

    def __init__(self, folder: Path, *, key_count: int, value_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._program = build_go("etcd", folder)
        self._sizes = {"keys": key_count, "size": value_bytes}
        self._clients: list[int] = []
        self._peers: list[int] = []
        self._processes: list[ProcessId] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the servers on empty folders, all keys written once."""
        ports: list[int] = []
        for _ in range(2 * _NODES):
            ports.append(choose_port(taken=set(ports)))
        self._clients, self._peers = ports[:_NODES], ports[_NODES:]
        self._processes = []
        try:
            for number in range(_NODES):
                shutil.rmtree(self._folder / f"n{number}", ignore_errors=True)
                self._processes.append(self._start(number))
            self._wait_until_they_listen()
            self._ask("fill", **self._sizes)
            yield
        finally:
            end_all(self._processes, grace_s=10)

    def load(self, op: str, *, callers: int, seconds: float) -> dict[str, Any]:
        """Keep so many calls ("put" or "get") in flight; return `per_s`, `p50_ms`, `p99_ms`."""
        return self._ask("load", op=op, callers=callers, seconds=seconds, **self._sizes)

    def failover_s(self) -> float:
        """Kill the leader under eight writers, start it again; return seconds until a put is acknowledged."""
        pids = ",".join(str(process.pid) for process in self._processes)
        answer = self._ask("failover", pids=pids, **self._sizes)
        number = int(answer["killed"])
        end_all([self._processes[number]], grace_s=5)
        self._processes[number] = self._start(number)
        self._wait_until_they_listen()
        return float(answer["seconds"])

    @property
    def leader(self) -> str:
        """Address of the server that leads."""
        for port in self._clients:
            with EtcdCalls(f"{HOST}:{port}") as calls:
                status = calls.call("Status", pb.StatusRequest())
                if status.leader == status.header.member_id:
                    return f"{HOST}:{port}"
        raise AssertionError("none of them leads")

    @property
    def pids(self) -> list[int]:
        """Of the servers."""
        return [process.pid for process in self._processes]

    def _start(self, number: int) -> ProcessId:
        names = [f"n{n}=http://{HOST}:{port}" for n, port in enumerate(self._peers)]
        client, peer = f"http://{HOST}:{self._clients[number]}", f"http://{HOST}:{self._peers[number]}"
        options = {
            "name": f"n{number}",
            "data-dir": str(self._folder / f"n{number}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(names),
            "log-level": "error",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        command = [str(self._program), "serve", *arguments]
        return spawn(command, log=self._folder / f"n{number}.log", env=os.environ)

    def _wait_until_they_listen(self) -> None:
        deadline = time.monotonic() + _START_S_MAX
        for port in self._clients:
            while True:
                with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                    break
                assert time.monotonic() < deadline, f"etcd does not listen on {port}: see {self._folder}"
                time.sleep(0.05)

    def _ask(self, command: str, **options: object) -> dict[str, Any]:
        endpoints = ",".join(f"{HOST}:{port}" for port in self._clients)
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        said = subprocess.run(
            [str(self._program), command, "--endpoints", endpoints, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert said.returncode == 0, said.stderr
        answer: dict[str, Any] = json.loads(said.stdout)
        return answer
