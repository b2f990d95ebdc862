"""Replicas, bookies, ZooKeeper and clients on hosts of their own; a replica is cut off from some of them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cut_stores import LOG, NAMES, CutStores, cut, three_cut_stores
from tests.integration.recorded_callers import RecordedCallers, check_calls
from tests.integration.store_faults import PAUSE_S


@pytest.fixture
def cut_stores(tmp_path: Path) -> Iterator[CutStores]:
    with three_cut_stores(tmp_path) as made:
        yield made


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
            cut(networks, host, targets, way)
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
        cut(networks, cut_stores.leader(), networks.bookies, "both")
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
