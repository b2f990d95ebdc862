"""Whoever may write nodes forges the layout of a partitioned log: each door refuses it by name, other logs go on."""

from __future__ import annotations

import msgspec
import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.ports import ANY_VERSION
from rsm_spark.core.partition_layout import LayoutGeneration, decode_layout, encode_layout, layout_path, partition_log
from rsm_spark.errors import CorruptLogError, NotLeaderError
from rsm_spark.logs import Logs

pytestmark = pytest.mark.asyncio


async def test_a_forged_layout_is_refused_at_every_door(cluster: DevCluster, unique_name: str) -> None:
    forged, victim = f"{unique_name}-forged", f"{unique_name}-victim"
    async with (
        await Logs.connect(cluster.metadata_uri) as logs,
        await LedgerClient.connect(cluster.metadata_uri) as client,
    ):
        await logs.create(forged, partitions=2)
        await logs.create(victim, partitions=2)
        async with await logs.open_partitioned_writer(victim) as writer:
            path = layout_path(forged)
            good = decode_layout((await client.store.get(path)).value, log=forged)
            theirs = decode_layout((await client.store.get(layout_path(victim))).value, log=victim)
            wishes = (
                lambda: logs.open_partitioned_writer(forged),
                lambda: logs.partitioned_reader(forged),
                lambda: logs.grow(forged, 4),
                lambda: logs.partitions(forged),
                lambda: logs.delete(forged),
            )
            many = msgspec.structs.replace(
                good, log_ids=tuple(f"{n:032x}" for n in range(5000)), generations=(LayoutGeneration(5000),)
            )
            for value in (b"", b"{}", b"\xff" * 900_000, encode_layout(many), encode_layout(good) + b"}"):
                await client.store.set(path, value, ANY_VERSION)
                for wish in wishes:
                    with pytest.raises(CorruptLogError, match=f"the layout of log {forged}"):
                        await wish()
            # Names come from the log's own: a layout cannot lead into another log. Its ids are compared.
            await client.store.set(
                path, encode_layout(msgspec.structs.replace(good, log_ids=theirs.log_ids)), ANY_VERSION
            )
            for wish in wishes[:2]:
                with pytest.raises(CorruptLogError, match=f"log {partition_log(forged, 0)}: its id is"):
                    await wish()
            assert {forged, victim} <= set(await logs.list(unique_name))
            await writer.append(b"1", key=b"a")
            await client.store.set(path, encode_layout(good), ANY_VERSION)
            async with await logs.open_partitioned_writer(forged) as own:
                await own.append(b"2", key=b"a")
        async with await logs.partitioned_reader(victim, follow=False) as reader:
            assert [record.payload async for record in reader] == [b"1"]


async def test_a_claim_that_is_forged_ends_the_writer_and_loses_nothing(cluster: DevCluster, unique_name: str) -> None:
    async with (
        await Logs.connect(cluster.metadata_uri) as logs,
        await LedgerClient.connect(cluster.metadata_uri) as client,
    ):
        await logs.create(unique_name, partitions=2)
        writer = await logs.open_partitioned_writer(unique_name)
        place = await writer.append(b"1", key=b"a")
        layout = decode_layout((await client.store.get(layout_path(unique_name))).value, log=unique_name)
        await client.store.set(layout_path(unique_name), encode_layout(layout.claimed("e" * 32)), ANY_VERSION)
        await writer.append(b"2", key=b"a")  # Nobody has fenced it.
        with pytest.raises(NotLeaderError, match="has not made it grow"):
            await writer.grow(3)
        with pytest.raises(NotLeaderError):
            writer.append(b"3", key=b"a")
        await writer.close()
        async with await logs.open_partitioned_writer(unique_name) as after:
            await after.append(b"4", key=b"a")
        async with await logs.partitioned_reader(unique_name, follow=False) as reader:
            records = [record async for record in reader]
        assert [record.payload for record in records] == [b"1", b"2", b"4"]
        assert (records[0].partition, records[0].position) == place
