"""Replicas, bookies, ZooKeeper and clients on hosts of their own, which can be cut off from each other one way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.namespaces import Namespaces, why_not
from tests.integration.store_faults import SESSION_MS
from tests.integration.store_processes import STORE, StoreProcess
from tests.unit.ledger.bookie.test_tls import Authority

LOG = "cut"
NAMES = ("a", "b", "c")


class CutStores:
    """Three replicas, each on a host of its name; with TLS and a token, as beyond loopback they must.

    Args:
        networks: Where.
        folder: Of their files.
        command: What `python -m` runs: the map, or another service.

    """

    def __init__(self, networks: Namespaces, folder: Path, command: Sequence[str] = STORE) -> None:
        self.networks = networks
        self._command = command
        self._folder = folder
        authority = Authority(folder, "authority")
        addresses = ",".join(f"IP:{networks.address(host)}" for host in networks.hosts)
        signed = authority.sign("replica", host=addresses)
        (folder / "token").write_text("x" * 32)
        self.environment = {
            **os.environ,
            "RSM_STORE__TLS_CA": authority.ca,
            "RSM_STORE__TLS_CERT": signed["cert"],
            "RSM_STORE__TLS_KEY": signed["key"],
            "RSM_STORE__TOKEN_FILE": str(folder / "token"),
        }
        self.replicas: dict[str, StoreProcess] = {}

    def start(self, host: str, *options: str) -> None:
        always = ("--bind", self.networks.address(host), "--session-timeout-ms", str(SESSION_MS), "--unsigned")
        self.replicas[host] = StoreProcess(
            self.networks.metadata_uri,
            LOG,
            self._folder,
            host,
            *always,
            *options,
            prefix=self.networks.inside(host),
            environment=self.environment,
            command=self._command,
        )

    def end(self) -> None:
        for replica in self.replicas.values():
            replica.kill()

    def status(self) -> dict[str, Any]:
        """What `rsm status` says on the clients' host."""
        command = [*self.networks.inside("client"), sys.executable, "-m", "rsm_spark", "status", "--log", LOG, "--json"]
        done = subprocess.run(
            [*command, "--metadata-uri", self.networks.metadata_uri],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment,
            cwd=Path(__file__).parents[2],
        )
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def leader(self) -> str:
        deadline = time.monotonic() + 60
        while (leader := self.status()["leader"]) is None:
            assert time.monotonic() < deadline, f"no leader: {self.status()}"
        return str(leader)

    def agree(self) -> None:
        """Wait until all replicas hold the same state at the same revision."""
        deadline = time.monotonic() + 60
        while True:
            said = self.status()["replicas"]
            reached = {(one.get("revision"), one.get("digest"), one.get("error")) for one in said}
            if len(said) == len(self.replicas) and len(reached) == 1:
                return
            assert time.monotonic() < deadline, f"replicas at {reached}"


@contextmanager
def three_cut_stores(folder: Path, *options: str, command: Sequence[str] = STORE) -> Iterator[CutStores]:
    """Start ZooKeeper, three bookies and three replicas, each on a host of its own; skip where that cannot be."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Namespaces(folder, bookie_count=3, more_hosts=(*NAMES, "fresh")) as networks:
        made = CutStores(networks, folder, command)
        try:
            for name in NAMES:
                made.start(name, *options)
            yield made
        finally:
            made.end()


def cut(networks: Namespaces, host: str, others: Sequence[str], way: str) -> None:
    """Drop what a host sends to others (`way` "out"), what they send to it ("in"), or both."""
    for other in others:
        if way != "in":
            networks.cut(host, other)
        if way != "out":
            networks.cut(other, host)
