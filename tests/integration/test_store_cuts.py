"""Replicas, bookies, ZooKeeper and clients on hosts of their own; a replica is cut off from some of them."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.namespaces import Namespaces, why_not
from tests.integration.recorded_callers import RecordedCallers, check_calls
from tests.integration.store_faults import PAUSE_S, SESSION_MS
from tests.integration.store_processes import StoreProcess
from tests.unit.ledger.bookie.test_tls import Authority

LOG = "cut"
NAMES = ("a", "b", "c")


class CutStores:
    """Three replicas, each on a host of its name; with TLS and a token, as beyond loopback they must."""

    def __init__(self, networks: Namespaces, folder: Path) -> None:
        self.networks = networks
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
        self.replicas: list[StoreProcess] = []

    def start(self, host: str, *options: str) -> None:
        self.replicas.append(
            StoreProcess(
                self.networks.metadata_uri,
                LOG,
                self._folder,
                host,
                *(
                    "--bind",
                    self.networks.address(host),
                    "--session-timeout-ms",
                    str(SESSION_MS),
                    "--unsigned",
                    *options,
                ),
                prefix=self.networks.inside(host),
                environment=self.environment,
            )
        )

    def end(self) -> None:
        for replica in self.replicas:
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


@pytest.fixture
def cut_stores(tmp_path: Path) -> Iterator[CutStores]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Namespaces(tmp_path, bookie_count=3, more_hosts=(*NAMES, "fresh")) as networks:
        made = CutStores(networks, tmp_path)
        try:
            for name in NAMES:
                made.start(name)
            yield made
        finally:
            made.end()


def _cut(networks: Namespaces, host: str, others: list[str], way: str) -> None:
    for other in others:
        if way != "in":
            networks.cut(host, other)
        if way != "out":
            networks.cut(other, host)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_reply_fits_one_order_when_replicas_are_cut_off_from_zookeeper_bookies_or_all(cut_stores) -> None:
    networks = cut_stores.networks
    rng = random.Random(11)
    callers = RecordedCallers(
        networks.metadata_uri,
        LOG,
        networks.folder,
        seed=11,
        prefix=networks.inside("client"),
        environment=cut_stores.environment,
    )
    cuts = list(itertools.product(("leader|zookeeper", "leader|bookies", "follower|all"), ("both", "in", "out")))
    rng.shuffle(cuts)
    try:
        callers.wait_for_more(100)
        for pair, way in cuts:
            whom, _, others = pair.partition("|")
            leader = cut_stores.leader()
            host = leader if whom == "leader" else rng.choice([name for name in NAMES if name != leader])
            everybody = [other for other in networks.hosts if other != host]
            targets = {"zookeeper": ["zookeeper"], "bookies": networks.bookies, "all": everybody}[others]
            _cut(networks, host, targets, way)
            time.sleep(PAUSE_S)  # the length of the fault
            if whom == "follower":
                callers.wait_for_more(100)
            networks.heal()
            callers.wait_for_more(100)
        calls = callers.end()
    finally:
        callers.kill()
    cut_stores.start("fresh", "--follow-only")
    cut_stores.agree()
    check_calls(calls, callers.path)
    print(f"{callers.answered_count} calls answered, {callers.unknown_count} of unknown outcome")


@pytest.mark.slow
def test_a_leader_that_alone_is_cut_off_from_the_bookies_makes_room_while_the_cut_lasts(cut_stores) -> None:
    networks = cut_stores.networks
    callers = RecordedCallers(
        networks.metadata_uri,
        LOG,
        networks.folder,
        seed=12,
        prefix=networks.inside("client"),
        environment=cut_stores.environment,
    )
    try:
        callers.wait_for_more(100)
        _cut(networks, cut_stores.leader(), networks.bookies, "both")
        callers.wait_for_more(100)  # What was on its way; then nothing, until another one leads.
        callers.wait_for_more(1_000)
        networks.heal()
        callers.wait_for_more(100)
        calls = callers.end()
    finally:
        callers.kill()
    cut_stores.agree()
    check_calls(calls, callers.path)


@pytest.mark.slow
def test_clients_that_do_not_reach_the_leader_are_served_by_way_of_a_follower(cut_stores) -> None:
    """One way, then the other: what the clients send is dropped, or what the leader answers."""
    networks = cut_stores.networks
    callers = RecordedCallers(
        networks.metadata_uri,
        LOG,
        networks.folder,
        seed=13,
        prefix=networks.inside("client"),
        environment=cut_stores.environment,
    )
    try:
        callers.wait_for_more(100)
        leader = cut_stores.leader()
        for pair in (("client", leader), (leader, "client")):
            networks.cut(*pair)
            callers.wait_for_more(400)  # More than was on its way.
            networks.heal()
            assert cut_stores.leader() == leader, "nobody else leads: a follower has passed it all on"
            callers.wait_for_more(100)
        calls = callers.end()
    finally:
        callers.kill()
    cut_stores.agree()
    check_calls(calls, callers.path)
