"""A map whose values the servers cannot read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rsm_spark.codecs.aes_gcm import AesGcmCodec
from rsm_spark.codecs.framing import CodecError, PayloadCodec
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map import messages as m
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.commands import Compare, Increment, Put, PutExpiring, Read
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble, serve

pytestmark = pytest.mark.asyncio
KEY = bytes(range(32))


@asynccontextmanager
async def clients(*codecs: PayloadCodec | None) -> AsyncIterator[list[MapClient]]:
    server = await serve(ReplicaDouble(Group()))
    made = [MapClient(Finder(server.address), "orders", timeout_s=60, codec=codec) for codec in codecs]
    try:
        yield made
    finally:
        for client in made:
            await client.close()
        await server.stop(0)


async def test_every_way_to_write_keeps_what_every_way_to_read_opens() -> None:
    async with clients(AesGcmCodec([KEY]), None) as (client, server_side):
        revision = await client.put(b"a", b"secret 1")
        await client.put_many([(b"b", b"secret 2")])
        await client.put(b"c", b"secret 3", ttl_ms=60_000)
        done = await client.compare_and_set(b"a", expected=revision, value=b"secret 4")
        assert done.succeeded
        result = await client.transact(
            [Compare(b"b", "exists", "=", True)],  # noqa: FBT003
            then=[Put(b"d", b"secret 5"), PutExpiring(b"e", b"secret 6", 60_000), Read(b"d")],
        )
        assert result.results[2] == m.Seen(b"secret 5", result.revision, result.revision, 1)
        wanted = {b"a": b"secret 4", b"b": b"secret 2", b"c": b"secret 3", b"d": b"secret 5", b"e": b"secret 6"}
        assert {row.key: row.value async for row in client.scan()} == wanted
        assert {row.key: row.value for row in (await client.scan_page()).rows} == wanted
        assert {row.value async for row in client.scan(keys_only=True)} == {b""}
        assert [found.value for found in await client.get_many(list(wanted)) if found] == list(wanted.values())
        kept = {row.key: row.value async for row in server_side.scan()}
        assert not any(b"secret" in value for value in kept.values())


async def test_a_value_that_the_servers_exchange_is_refused() -> None:
    async with clients(AesGcmCodec([KEY]), None) as (client, server_side):
        await client.put(b"limit/acme", b"10")
        await client.put(b"limit/evil", b"1000000")
        forged = await server_side.get(b"limit/evil")
        assert forged is not None
        await server_side.put(b"limit/acme", forged.value)
        with pytest.raises(CodecError, match="belongs elsewhere"):
            await client.get(b"limit/acme")
        await server_side.put(b"limit/acme", b"1000000")
        with pytest.raises(CodecError, match="takes encoded ones only"):
            await client.get(b"limit/acme")


async def test_what_servers_would_have_to_read_values_for_is_refused_in_words() -> None:
    async with clients(AesGcmCodec([KEY], reads_plain=True), None) as (client, plain):
        await plain.increment(b"count", 5)
        assert (await client.get(b"count")).value == b"5"  # type: ignore[union-attr]
        for attempt in (
            client.compare_and_set(b"a", expected=b"x", value=b"y"),
            client.increment(b"count"),
            client.transact([Compare(b"a", "value", "=", b"x")]),
            client.transact(then=[Increment(b"count")]),
        ):
            with pytest.raises(InvalidCommandError, match="with a codec the servers cannot read values"):
                await attempt
        with pytest.raises(InvalidCommandError, match="value"):
            await client.put(b"a", bytes(1024 * 1024))
