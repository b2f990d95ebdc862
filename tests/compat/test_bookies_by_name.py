"""Bookies of BookKeeper whose ids are no addresses, or say a host's name: our client finds them as Java's does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ledger import DigestType
from tests.compat.bookies import Bookies
from tests.compat.java_client import JavaClient
from tests.compat.sides import SIDES, SideName, WireProtocol, open_side

pytestmark = pytest.mark.compat

_NAMES = {
    "of its own": (["bookieId=shelf-{port}"], "shelf-{port}"),
    "of the host": (["advertisedAddress=", "useHostNameAsBookieID=true"], "localhost:{port}"),
}


@pytest.fixture(scope="module", params=list(_NAMES))
def named(request: pytest.FixtureRequest, java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    lines, java_id = _NAMES[request.param]
    return java_bookkeeper("java", "java", "java", "ours", java_lines=lines, java_id=java_id)


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
            victim = next(x for x in (await ours.ensembles(writing.ledger_id))[0] if x in named.ids_of("java"))
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
