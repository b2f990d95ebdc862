"""Every client on every mix of bookies, by either protocol, with each digest: the whole matrix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ledger import DigestType
from tests.compat.bookies import Bookies, Kind
from tests.compat.java_client import JavaClient, JavaError
from tests.compat.sides import SIDES, JavaSide, Seen, Side, WireProtocol, open_side

pytestmark = pytest.mark.compat

_MIXES: dict[str, tuple[Kind, ...]] = {
    "ours": ("ours", "ours", "ours"),
    "java": ("java", "java", "java"),
    "mixed": ("java", "ours", "ours"),
}
_PROTOCOLS: tuple[WireProtocol, ...] = ("v3", "v2")
_CRC32C = DigestType.CRC32C

Scenario = Callable[[Side, Side], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module", params=list(_MIXES))
def bookies(request: pytest.FixtureRequest, java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    """Three bookies, so that an ensemble of three holds all of them."""
    return java_bookkeeper(*_MIXES[request.param])


@pytest.fixture(params=_PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> WireProtocol:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[(a, b) for a in SIDES for b in SIDES], ids="-then-".join)
def play(
    request: pytest.FixtureRequest, java_client: JavaClient, bookies: Bookies, protocol: WireProtocol
) -> Callable[[Scenario], None]:
    """Play a scenario with a first and a second client, each combination of the two kinds."""
    first_name, second_name = request.param

    def play(scenario: Scenario) -> None:
        async def run() -> None:
            async with (
                open_side(first_name, java_client, bookies.uri, protocol) as first,
                open_side(second_name, java_client, bookies.uri, protocol) as second,
            ):
                await scenario(first, second)

        asyncio.run(asyncio.wait_for(run(), 120))

    return play


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2)], ids=["3-3-2", "3-2-2"])
@pytest.mark.parametrize("digest", list(DigestType), ids=lambda digest: digest.name)
def test_what_the_first_writes_the_second_reads(
    play: Callable[[Scenario], None], protocol: WireProtocol, digest: DigestType, quorum: tuple[int, int, int]
) -> None:
    # Batch reads are an operation of v2, and of ledgers that are not striped.
    ways = ("plain", "unconfirmed", "batch") if protocol == "v2" and quorum == (3, 3, 2) else ("plain", "unconfirmed")

    async def scenario(first: Side, second: Side) -> None:
        writing = await first.create(quorum, digest)
        assert await writing.append(1, size=1) == (0, None)
        assert await writing.append(500) == (500, None)
        assert await writing.append(3, size=100_000) == (503, None)
        await writing.close()
        length = 2 + 500 * 100 + 3 * 100_000
        for how in ways:
            assert await second.read(writing.ledger_id, how=how, digest=digest) == Seen(504, 0, 503, True, length)

    play(scenario)


def test_a_tail_of_the_second_sees_what_the_first_writes_as_it_is_confirmed(
    play: Callable[[Scenario], None], protocol: WireProtocol
) -> None:
    async def scenario(first: Side, second: Side) -> None:
        if protocol == "v2" and isinstance(second, JavaSide):
            pytest.skip("v2 knows no long poll, and Java's client speaks one protocol with a bookie")
        writing = await first.create((3, 3, 2))
        await writing.append(2)
        tailing = asyncio.create_task(second.tail(writing.ledger_id, 400))
        while not tailing.done():
            assert (await writing.append(20)).failure is None
        seen = tailing.result()
        assert (seen.count >= 400, seen.bad, seen.is_closed) == (True, 0, False)
        ending = asyncio.create_task(second.tail(writing.ledger_id, 1 << 40))
        last = (await writing.append(1)).acked
        await writing.close()
        seen = await ending
        assert (seen.count, seen.bad, seen.is_closed) == (last + 1, 0, True)

    play(scenario)


def test_the_second_deletes_what_the_first_created(play: Callable[[Scenario], None]) -> None:
    async def scenario(first: Side, second: Side) -> None:
        kept, deleted = await first.create((3, 3, 2)), await first.create((3, 3, 2))
        for writing in (kept, deleted):
            await writing.append(5)
            await writing.close()
        await second.delete(deleted.ledger_id)
        for side in (first, second):
            assert kept.ledger_id in await side.ledgers()
            assert deleted.ledger_id not in await side.ledgers()
        with pytest.raises(Exception, match="(?i)no such ledger"):
            await first.read(deleted.ledger_id, digest=_CRC32C)

    play(scenario)


def test_a_wrong_password_neither_fences_nor_reads(play: Callable[[Scenario], None]) -> None:
    async def scenario(first: Side, second: Side) -> None:
        writing = await first.create((3, 3, 2))
        await writing.append(5)
        with pytest.raises(Exception, match="(?i)password|unauthorized"):
            await second.recover(writing.ledger_id, password="wrong")
        assert await writing.append(5) == (9, None)
        await writing.close()
        assert (await second.read(writing.ledger_id, digest=_CRC32C)).count == 10

    play(scenario)


def test_two_that_recover_at_once_agree_on_the_end(play: Callable[[Scenario], None]) -> None:
    async def scenario(first: Side, second: Side) -> None:
        for _ in range(5):
            writing = await first.create((3, 3, 2))
            await writing.race()
            while await writing.acked() < 50:
                await asyncio.sleep(0.005)
            ends = await asyncio.gather(
                first.recover(writing.ledger_id), second.recover(writing.ledger_id), return_exceptions=True
            )
            fate = await writing.race_end(stop=False)
            seen = await second.read(writing.ledger_id, recover=True, digest=_CRC32C)
            assert (seen.count, seen.bad, seen.is_closed) == (seen.last + 1, 0, True)
            assert fate.acked <= seen.last
            for end in ends:
                # Java's gives up where another one closes before it; it never sees another end.
                assert isinstance(end, JavaError) or (not isinstance(end, BaseException) and end.last == seen.last), end

    play(scenario)


@pytest.mark.timeout(600)
def test_nothing_the_first_saw_acknowledged_is_lost_when_the_second_recovers_meanwhile(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(first: Side, second: Side) -> None:
        for round_number in range(50):
            writing = await first.create((3, 3, 2))
            await writing.race(in_flight=10 + 40 * (round_number % 3))
            while await writing.acked() < round_number:
                await asyncio.sleep(0.002)
            recovered = await second.recover(writing.ledger_id)
            fate = await writing.race_end(stop=False)
            assert fate.failure is not None
            assert fate.acked <= recovered.last, (writing.ledger_id, fate, recovered)
            for side in (first, second):
                seen = await side.read(writing.ledger_id, digest=_CRC32C)
                assert (seen.count, seen.bad, seen.last) == (recovered.last + 1, 0, recovered.last), side
                assert seen.is_closed

    play(scenario)
