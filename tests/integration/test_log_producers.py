"""Producers of a plain log on real bookies: once each, over writers, trims, forks and a raised format."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.core.producers import RecordSource, UnknownProducerError
from rsm_spark.core.records import PRODUCERS_LEVEL
from rsm_spark.errors import NotLeaderError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.logs import Logs, PlainLogError
from rsm_spark.runtime.settings import ReplicaSettings
from tests.integration.test_log_fork import ForkCommand

pytestmark = pytest.mark.asyncio

_ROLLING = ReplicaSettings(roll_records=100, trim_s=3600.0)


async def _payloads(logs: Logs, log: str) -> list[bytes]:
    async with await logs.reader(log, follow=False) as reader:
        return [record.payload async for record in reader]


async def test_what_is_sent_again_has_its_position_whoever_writes_and_whatever_was_trimmed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, fork = cluster.metadata_uri, unique_name, f"{unique_name}-fork"
    async with await Logs.connect(uri, settings=_ROLLING) as logs:
        await logs.create(log)
        async with await logs.open_writer(log) as plain:
            await plain.append(b"before")
            with pytest.raises(PlainLogError, match="it has no producers"):
                plain.produce(RecordSource("p", "ann", 1), [b"p1"])
        before = await logs.open_writer(log, producers=True)
        chain, _ = await ChainStore(logs._client.store, log).read()
        assert chain.format_level == PRODUCERS_LEVEL
        sent = [before.produce(RecordSource("p", "ann", n), [b"p%d" % n]) for n in range(1, 9)]
        positions = [await one for one in sent]
        await ForkCommand(uri, tmp_path).fork(log, fork)  # Nothing has left the log so far.
        async with await logs.open_writer(fork) as forked:
            assert await forked.produce(RecordSource("p", "ann", 8), [b"p8"]) == positions[-1]
            await forked.produce(RecordSource("p", "ann", 9), [b"p9"])
        assert await _payloads(logs, fork) == [b"before", *(b"p%d" % n for n in range(1, 10))]
        for _ in range(10):
            await before.append_many([b"x"] * 100)
        await logs.truncate(log, before.last_position - 1)
        assert (await logs.info(log)).first_position > positions[-1][0], "the ledgers that hold the records are gone"
        async with await logs.open_writer(log) as after:
            with pytest.raises(NotLeaderError):
                await before.produce(RecordSource("p", "ann", 9), [b"p9"])
            again = [await after.produce(RecordSource("p", "ann", n), [b"p%d" % n]) for n in range(1, 9)]
            assert again == positions
            with pytest.raises(UnknownProducerError):
                await after.produce(RecordSource("q", "ann", 2), [b"q2"])
            await after.produce(RecordSource("p", "ann", 9), [b"p9"])
        assert (await _payloads(logs, log)).count(b"p9") == 1
        await before.abort()
