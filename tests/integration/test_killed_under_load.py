"""kill -9 of bookies and writers, at random moments, while entries are written: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from ledger import LedgerClient
from ledger.dev import DevCluster
from tests.integration.written_ledgers import Writer, check_written

_ACKED_BETWEEN = 40
"""Entries acknowledged between two kills at least: a service that stands still proves nothing."""


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_when_bookies_and_writers_are_killed(
    start_cluster: Callable[..., DevCluster], kills: int
) -> None:
    rng = random.Random(kills)
    cluster = start_cluster(bookie_count=4)
    acked: dict[int, int] = {}
    writer = Writer(cluster.metadata_uri)
    try:
        for _ in range(kills):
            writer.wait_for_more(_ACKED_BETWEEN + rng.randrange(200))
            if rng.random() < 0.3:
                writer.kill()
                acked |= writer.acked
                writer = Writer(cluster.metadata_uri)
            else:
                number = rng.randrange(4)
                cluster.kill_bookie(number)
                if rng.random() < 0.5:
                    writer.wait_for_more(rng.randrange(1, 200))
                cluster.start_bookie(number)
    finally:
        writer.kill()
        acked |= writer.acked

    async def check() -> int:
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            return await check_written(client, acked)

    read_count = asyncio.run(check())
    assert read_count >= sum(last + 1 for last in acked.values()) > kills * _ACKED_BETWEEN
