"""Sixteen clients through etcd's API, gRPC and the framed port at once: what all of them heard is one history.

Processes are killed and frozen, networks are cut in one direction, ZooKeeper is started again, one at a time or two at
once. One judge looks at the calls of all doors together; it is shown, in the same history, that it finds a stale read
of each door, and, by a replica that answers without asking who leads, that it finds the fault itself.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.testing.history import CallerCall
from rsm_spark.testing.linearizability import CheckOutcome, check_history
from tests.integration.cut_stores import LOG, NAMES, CutStores, cut, three_cut_stores
from tests.integration.history_plants import check_doors, door_of
from tests.integration.map_doors import DOORS
from tests.integration.recorded_callers import CLIENT_COUNT, RecordedCallers, check_calls
from tests.integration.store_processes import stores

_FAULTS = int(os.environ.get("RSM_DOOR_FAULTS", "60"))
_PORT = "2379"
_OPTIONS = ("--etcd-port", _PORT)
_UNPROVEN = ("tests.integration.unproven_replica", "run")
_ROUNDS_MAX = 20

_Mending = Callable[[], None]


class DoorFaults:
    """Breaks what is named, on hosts of their own, and makes it whole again.

    Args:
        stores: Replicas, bookies and ZooKeeper.
        rng: Chooses whom, which way and for how long.

    """

    def __init__(self, stores: CutStores, rng: random.Random) -> None:
        self._stores = stores
        self._networks = stores.networks
        self._rng = rng
        self._leader = ""
        self._mendings: list[_Mending] = []
        self._kinds: dict[str, Callable[[], None]] = {
            "kill leader": self._kill_leader,
            "freeze leader": self._freeze_leader,
            "freeze bookie": self._freeze_bookie,
            "restart zookeeper": self._kill_zookeeper,
            "cut leader off from clients": lambda: self._cut(self._leader, ["client"]),
            "cut leader off from zookeeper": lambda: self._cut(self._leader, ["zookeeper"]),
            "cut leader off from bookies": lambda: self._cut(self._leader, self._networks.bookies),
            "cut leader off from replicas": lambda: self._cut(self._leader, _others(self._leader)),
            "cut bookie off from leader": lambda: self._cut(rng.choice(self._networks.bookies), [self._leader]),
            "cut follower off from all": self._cut_follower,
        }

    @property
    def names(self) -> list[str]:
        return list(self._kinds)

    def begin(self, name: str) -> None:
        """Break what is named; who leads is looked up while nothing is broken."""
        if not self._mendings and not self._networks.is_cut:
            self._leader = self._stores.leader()
        self._kinds[name]()

    def mend(self) -> None:
        """Make whole what is broken: networks first, replicas last, which start only where ZooKeeper answers."""
        self._networks.heal()
        mendings, self._mendings = self._mendings, []
        for mending in reversed(mendings):
            mending()

    def _kill_leader(self) -> None:
        leader = self._leader
        self._stores.replicas.pop(leader).kill()
        self._mendings.insert(0, lambda: self._stores.start(leader, *_OPTIONS))

    def _freeze_leader(self) -> None:
        leader = self._stores.replicas[self._leader]
        leader.pause()
        self._mendings.append(leader.resume)

    def _freeze_bookie(self) -> None:
        bookie = self._rng.choice(self._networks.bookies)
        self._networks.pause(bookie)
        self._mendings.append(lambda: self._networks.resume(bookie))

    def _kill_zookeeper(self) -> None:
        self._networks.kill_zookeeper()
        self._mendings.append(self._networks.start_zookeeper)

    def _cut_follower(self) -> None:
        follower = self._rng.choice(_others(self._leader))
        self._cut(follower, [host for host in self._networks.hosts if host != follower])

    def _cut(self, host: str, others: list[str]) -> None:
        cut(self._networks, host, others, self._rng.choice(("in", "out")))


def _others(leader: str) -> list[str]:
    return [name for name in NAMES if name != leader]


def _judged(stores: CutStores, seed: int, plan: Callable[[DoorFaults, RecordedCallers, random.Random], None]) -> None:
    """Break things under callers of all doors, and judge what they heard."""
    networks, rng = stores.networks, random.Random(seed)
    callers = RecordedCallers(
        networks.metadata_uri,
        LOG,
        networks.folder,
        seed=seed,
        prefix=networks.inside("client"),
        environment=stores.environment,
        doors=DOORS,
        etcd_addresses=[f"{networks.address(name)}:{_PORT}" for name in NAMES],
    )
    try:
        callers.wait_for_more(200)
        plan(DoorFaults(stores, rng), callers, rng)
        callers.wait_for_more(200)
        calls = callers.end()
    finally:
        callers.kill()
    _check_fresh(stores)
    assert callers.framed_count == sum(DOORS[n % len(DOORS)] == "framed" for n in range(CLIENT_COUNT))
    print(f"{callers.answered_count} calls answered, {callers.unknown_count} of unknown outcome")
    check_calls(calls, callers.path)
    check_doors(calls, DOORS, answered_min=50, seed=seed)


def _check_fresh(stores: CutStores) -> None:
    """All replicas, and one that knows nothing but the log, come to the same state."""
    stores.start("fresh", "--follow-only")
    stores.agree()


def test_what_callers_of_three_doors_hear_is_one_history_over_kills_freezes_and_cuts(tmp_path: Path) -> None:
    def plan(faults: DoorFaults, callers: RecordedCallers, rng: random.Random) -> None:
        for name in (
            "kill leader",
            "freeze bookie",
            "cut leader off from clients",
            "restart zookeeper",
            "freeze leader",
        ):
            faults.begin(name)
            time.sleep(rng.uniform(0.5, 2.5))  # the length of the fault
            faults.mend()
            callers.wait_for_more(100)

    with three_cut_stores(tmp_path, *_OPTIONS) as made:
        _judged(made, 21, plan)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_what_callers_of_three_doors_hear_is_one_history_over_many_faults_two_at_once(tmp_path: Path) -> None:
    def plan(faults: DoorFaults, callers: RecordedCallers, rng: random.Random) -> None:
        names: list[str] = []
        for number in range(_FAULTS):
            names = names or rng.sample(faults.names, len(faults.names))
            name = names.pop()
            began_s = time.monotonic()
            faults.begin(name)
            time.sleep(rng.uniform(0.5, 4.0))  # the length of the fault
            if rng.random() < 0.3 and name in ("freeze bookie", "restart zookeeper"):
                faults.begin(rng.choice(("kill leader", "freeze leader", "cut leader off from clients")))
                time.sleep(rng.uniform(0.5, 4.0))
            faults.mend()
            callers.wait_for_more(100)
            print(
                f"{number + 1}: {name}, {time.monotonic() - began_s:.1f} s, {callers.answered_count} calls", flush=True
            )

    with three_cut_stores(tmp_path, *_OPTIONS) as made:
        _judged(made, 22, plan)


def _is_found(calls: list[CallerCall]) -> bool:
    verdict = check_history(calls)
    assert verdict.finding is not CheckOutcome.UNKNOWN, verdict.explain()
    if verdict.is_linearizable:
        return False
    left = [call for call in calls if door_of(call) != "etcd" or call.reply is None or call.kind != "get"]
    assert check_history(left).is_linearizable, "nothing but etcd's reads is wrong"
    return True


@pytest.mark.asyncio
async def test_a_replica_that_answers_without_asking_who_leads_is_found(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    """The plant: etcd's reads of a follower show what it has, not what was acknowledged before they began."""
    for seed in range(_ROUNDS_MAX):
        folder = tmp_path / f"round-{seed}"
        folder.mkdir()
        calls = await _recorded(cluster.metadata_uri, f"{unique_name}-{seed}", folder, seed)
        if await asyncio.to_thread(_is_found, calls):
            print(f"found in round {seed + 1}")
            return
    raise AssertionError(f"not found in {_ROUNDS_MAX} rounds")


async def _recorded(uri: str, log: str, folder: Path, seed: int) -> list[CallerCall]:
    """Return what callers hear of a map whose replicas have the fault."""
    options = "--entries-by-bookies", "--session-timeout-ms", "4000"
    with stores(uri, log, folder) as replicas:
        addresses = [replicas.start_with_etcd(name, *options, command=_UNPROVEN) for name in "ab"]
        callers = RecordedCallers(uri, log, folder, seed=seed, doors=DOORS, etcd_addresses=addresses)
        try:
            await asyncio.to_thread(callers.wait_for_more, 1_000)
            return await asyncio.to_thread(callers.end)
        finally:
            callers.kill()
