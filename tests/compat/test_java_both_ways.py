"""Apache BookKeeper's client on our bookies, and ours on an ensemble of both kinds: the short form of the matrix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ledger import DigestType
from tests.compat.bookies import Bookies
from tests.compat.java_client import JavaClient
from tests.compat.sides import SIDES, SideName, WireProtocol, open_side

_QUORUM = (3, 3, 2)
_CRC32C = DigestType.CRC32C


@pytest.fixture(scope="module")
def mixed(java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    """One Java bookie and three of ours: an ensemble of three may or may not hold the Java one."""
    return java_bookkeeper("java", "ours", "ours")


@pytest.mark.parametrize("protocol", ["v3", "v2"])
@pytest.mark.parametrize("writer_name", SIDES)
def test_what_one_client_writes_the_other_tails_recovers_and_reads(
    java_client: JavaClient, mixed: Bookies, writer_name: SideName, protocol: WireProtocol
) -> None:
    reader_name = SIDES[1 - SIDES.index(writer_name)]

    async def scenario() -> None:
        async with (
            open_side(writer_name, java_client, mixed.uri, protocol) as writer,
            open_side(reader_name, java_client, mixed.uri, protocol) as reader,
        ):
            writing = await writer.create(_QUORUM)
            tailer = reader if protocol == "v3" or reader_name == "ours" else writer  # Java has no tail in v2.
            tailing = asyncio.create_task(tailer.tail(writing.ledger_id, 300))
            for _ in range(31):
                assert (await writing.append(10)).failure is None
            seen = await tailing
            assert (seen.count >= 300, seen.bad) == (True, 0)
            recovered = await reader.recover(writing.ledger_id)
            assert (recovered.last, recovered.is_closed, recovered.length) == (309, True, 31_000)
            assert (await writing.append(1)).failure is not None
            for side in (writer, reader):
                seen = await side.read(writing.ledger_id, digest=_CRC32C)
                assert (seen.count, seen.bad, seen.last, seen.length) == (310, 0, 309, 31_000)

    asyncio.run(asyncio.wait_for(scenario(), 60))
