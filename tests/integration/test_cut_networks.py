"""Real processes in network namespaces, cut off from each other in one direction: nothing acknowledged is lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.namespaces import Namespaces, why_not
from tests.integration.written_ledgers import Writer

_CHECK = """
import asyncio, json, sys
from ledger import LedgerClient
from tests.integration.written_ledgers import check_written

async def main():
    async with await LedgerClient.connect(sys.argv[1]) as client:
        print(await check_written(client, {int(k): v for k, v in json.loads(sys.argv[2]).items()}))

asyncio.run(asyncio.wait_for(main(), 120))
"""


@pytest.fixture
def networks(tmp_path: Path):
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Namespaces(tmp_path, bookie_count=4) as made:
        yield made


def _check(networks: Namespaces, acked: dict[int, int]) -> int:
    command = [*networks.inside("client"), sys.executable, "-c", _CHECK, networks.metadata_uri, json.dumps(acked)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=150).stdout)


def _reaches(networks: Namespaces, source: str, target: str) -> bool:
    script = "import socket, sys; socket.create_connection((sys.argv[1], 3181), timeout=1).close()"
    command = [*networks.inside(source), sys.executable, "-c", script, networks.address(target)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_networks_are_cut_one_way(networks) -> None:
    """Bookies are cut off one way, from the writer or from ZooKeeper, for longer and shorter than time-outs."""
    rng = random.Random(7)
    bookies = networks.hosts[2:]
    writer = Writer(networks.metadata_uri, prefix=networks.inside("client"))
    try:
        for number in range(15):
            writer.wait_for_more(100)
            victims = rng.sample(bookies, 2 if number % 5 == 4 else 1)
            for victim in victims:
                pair = [victim, rng.choice(["client", "zookeeper"])]
                rng.shuffle(pair)
                networks.cut(*pair)
                if "client" in pair:
                    assert not _reaches(networks, "client", victim)
            time.sleep(rng.choice([0.2, 2.0, 7.0]))  # the length of the fault
            if len(victims) == 1:
                writer.wait_for_more(100)
            networks.heal()
            assert _reaches(networks, "client", victims[0])
        writer.wait_for_more(100)
        networks.cut("client", "zookeeper")
        writer.wait_for_more(500)
        networks.heal()
    finally:
        writer.kill()
    assert _check(networks, writer.acked) >= writer.acked_count > 2_000
