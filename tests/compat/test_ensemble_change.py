"""A bookie is killed under a writer: whoever wrote the two, the writer goes on and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ledger import DigestType
from tests.compat.bookies import Bookies, Kind
from tests.compat.java_client import JavaClient
from tests.compat.sides import SIDES, SideName, WireProtocol, open_side

pytestmark = pytest.mark.compat

_MIXES: dict[str, tuple[Kind, ...]] = {"ours": ("ours",) * 4, "java": ("java",) * 4, "mixed": ("java", "ours") * 2}
_QUORUM = (3, 3, 2)
_WRITERS = [(side, protocol) for side in SIDES for protocol in ("v3", "v2")]


class _Played(NamedTuple):
    bookies: Bookies
    victims: list[str]


@pytest.fixture(scope="module", params=list(_MIXES))
def four(request: pytest.FixtureRequest, java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    return java_bookkeeper(*_MIXES[request.param])


@pytest.fixture
def played(four: Bookies) -> Iterator[_Played]:
    """Lend the bookies to a test that kills some; they are whole again afterwards."""
    victims: list[str] = []
    yield _Played(four, victims)
    for victim in victims:
        four.restart(victim)


@pytest.mark.parametrize("kind", ["ours", "java"])
@pytest.mark.parametrize(("writer_name", "protocol"), _WRITERS)
def test_a_writer_goes_on_without_a_killed_bookie_and_both_read_all_of_it(
    java_client: JavaClient, played: _Played, writer_name: SideName, protocol: WireProtocol, kind: Kind
) -> None:
    bookies, victims = played
    if not bookies.ids_of(kind):
        pytest.skip(f"no bookie of this cluster is {kind}")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with (
            open_side(writer_name, java_client, bookies.uri, protocol) as writer,
            open_side(SIDES[1 - SIDES.index(writer_name)], java_client, bookies.uri, protocol) as other,
        ):
            writing = await writer.create(_QUORUM)
            await writing.append(100)
            ensemble = (await other.ensembles(writing.ledger_id))[0]
            victim = next(bookie_id for bookie_id in ensemble if bookie_id in bookies.ids_of(kind))
            await writing.race()
            victims.append(victim)
            await loop.run_in_executor(None, bookies.kill, victim)
            while len(changed := await other.ensembles(writing.ledger_id)) == 1:
                await asyncio.sleep(0.05)
            at_change = await writing.acked()
            while await writing.acked() < at_change + 500:
                await asyncio.sleep(0.01)
            fate = await writing.race_end(stop=True)
            assert fate.failure is None
            assert victim not in changed[max(changed)]
            await writing.close()
            for side in (writer, other):
                seen = await side.read(writing.ledger_id, digest=DigestType.CRC32C)
                assert (seen.count, seen.bad, seen.last) == (fate.acked + 1, 0, fate.acked)

    asyncio.run(asyncio.wait_for(scenario(), 120))


@pytest.mark.parametrize(("writer_name", "protocol"), _WRITERS)
def test_a_recovery_with_a_dead_bookie_in_the_ensemble_keeps_what_was_acknowledged(
    java_client: JavaClient, played: _Played, writer_name: SideName, protocol: WireProtocol
) -> None:
    bookies, victims = played

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with (
            open_side(writer_name, java_client, bookies.uri, protocol) as writer,
            open_side(SIDES[1 - SIDES.index(writer_name)], java_client, bookies.uri, protocol) as other,
        ):
            writing = await writer.create(_QUORUM)
            await writing.race()
            while await writing.acked() < 200:
                await asyncio.sleep(0.005)
            victims.append((await other.ensembles(writing.ledger_id))[0][0])
            killing = loop.run_in_executor(None, bookies.kill, victims[0])
            recovered = await other.recover(writing.ledger_id)
            await killing
            fate = await writing.race_end(stop=False)
            assert fate.failure is not None
            assert fate.acked <= recovered.last
            for side in (writer, other):
                seen = await side.read(writing.ledger_id, digest=DigestType.CRC32C)
                assert (seen.count, seen.bad, seen.is_closed) == (recovered.last + 1, 0, True)

    asyncio.run(asyncio.wait_for(scenario(), 120))
