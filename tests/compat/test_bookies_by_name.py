"""Bookies of both kinds whose ids are no addresses, or say a host's name: both clients find them, also after a move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from ledger import DigestType
from tests.compat.bookies import Bookies
from tests.compat.java_client import JavaClient
from tests.compat.sides import SIDES, SideName, WireProtocol, Writing, open_side

pytestmark = pytest.mark.compat

_JAVA_NAMES = {"java_lines": ["bookieId=shelf-{port}"], "java_id": "shelf-{port}"}
_OUR_NAMES = {"our_arguments": ["--bookie-id", "{id}"], "our_id": "board-{port}"}
_JAVA_HOSTS = {
    "java_lines": ["advertisedAddress=", "useHostNameAsBookieID=true"],
    "java_id": "localhost:{port}",
}
_CLUSTERS = {
    "Java's by a name": (("java", "java", "java", "ours"), _JAVA_NAMES),
    "Java's by their host": (("java", "java", "java", "ours"), _JAVA_HOSTS),
    "ours by a name": (("ours", "ours", "ours", "java"), _OUR_NAMES | _JAVA_NAMES),
}


@pytest.fixture(scope="module", params=list(_CLUSTERS))
def named(request: pytest.FixtureRequest, java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    kinds, names = _CLUSTERS[request.param]
    return java_bookkeeper(*kinds, **names)


@pytest.fixture(scope="module")
def movable(java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    return java_bookkeeper("ours", "ours", "ours", "java", **_OUR_NAMES, **_JAVA_NAMES)


@pytest.mark.parametrize("protocol", ["v3", "v2"])
@pytest.mark.parametrize("writer_name", SIDES)
def test_a_ledger_on_named_bookies_is_written_and_read_by_both(
    java_client: JavaClient, named: Bookies, writer_name: SideName, protocol: WireProtocol
) -> None:
    async def scenario() -> None:
        async with (
            open_side(writer_name, java_client, named.uri, protocol) as writer,
            open_side(SIDES[1 - SIDES.index(writer_name)], java_client, named.uri, protocol) as other,
        ):
            writing = await writer.create((4, 3, 2))
            assert (await writing.append(300)).failure is None
            assert sorted((await other.ensembles(writing.ledger_id))[0]) == sorted(named.ids)
            recovered = await other.recover(writing.ledger_id)
            assert recovered.last == 299
            for side in (writer, other):
                seen = await side.read(writing.ledger_id, digest=DigestType.CRC32C)
                assert (seen.count, seen.bad, seen.is_closed) == (300, 0, True)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("protocol", ["v3", "v2"])
def test_our_writer_goes_on_without_a_named_bookie_and_our_reader_reads_past_it(
    java_client: JavaClient, named: Bookies, protocol: WireProtocol
) -> None:
    async def scenario() -> str:
        async with open_side("ours", java_client, named.uri, protocol) as ours:
            writing = await ours.create((3, 3, 2))
            assert (await writing.append(100)).failure is None
            victim = next(x for x in (await ours.ensembles(writing.ledger_id))[0] if not x.startswith("127."))
            await asyncio.get_running_loop().run_in_executor(None, named.kill, victim)
            await writing.race()
            while len(changed := await ours.ensembles(writing.ledger_id)) == 1:
                await asyncio.sleep(0.05)
            fate = await writing.race_end(stop=True)
            assert (fate.failure, victim in changed[max(changed)]) == (None, False)
            await writing.close()
            async with open_side("ours", java_client, named.uri, protocol) as late:  # never knew where it was
                seen = await late.read(writing.ledger_id, digest=DigestType.CRC32C)
            assert (seen.count, seen.bad) == (fate.acked + 1, 0)
            return victim

    named.restart(asyncio.run(asyncio.wait_for(scenario(), 90)))


@pytest.mark.parametrize("protocol", ["v3", "v2"])
@pytest.mark.parametrize("writer_name", SIDES)
def test_our_bookies_change_their_addresses_under_a_writer_of_either_side(
    java_client: JavaClient, movable: Bookies, writer_name: SideName, protocol: WireProtocol
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with (
            open_side(writer_name, java_client, movable.uri, protocol) as writer,
            open_side(SIDES[1 - SIDES.index(writer_name)], java_client, movable.uri, protocol) as other,
        ):
            writing = await writer.create((3, 3, 2))
            await writing.race()
            for number, bookie_id in enumerate(movable.ids_of("ours")):
                await _go_on(writing, 100)
                await loop.run_in_executor(None, partial(movable.move, bookie_id, is_killed=number == 1))
                await _go_on(writing, 100)
            fate = await writing.race_end(stop=True)
            assert fate.failure is None
            await writing.close()
            named_ones = {one for ensemble in (await other.ensembles(writing.ledger_id)).values() for one in ensemble}
            assert named_ones <= set(movable.ids)
            for side in (writer, other):
                seen = await side.read(writing.ledger_id, digest=DigestType.CRC32C)
                assert (seen.count, seen.bad, seen.is_closed) == (fate.acked + 1, 0, True)

    asyncio.run(asyncio.wait_for(scenario(), 180))


async def _go_on(writing: Writing, count: int) -> None:
    wanted = await writing.acked() + count
    while await writing.acked() < wanted:
        await asyncio.sleep(0.05)
