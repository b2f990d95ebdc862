"""What our client can do beyond appending, on bookies of either kind, in both protocols, as Java's client sees it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from ledger import DigestType, LedgerClient
from ledger.client.settings import ClientSettings
from ledger.errors import LedgerExistsError
from tests.compat.bookies import Bookies, Kind
from tests.compat.java_client import JavaClient, payload_of
from tests.compat.sides import JavaSide, Seen, WireProtocol

pytestmark = pytest.mark.compat

_MIXES: dict[str, tuple[Kind, ...]] = {"java": ("java", "java", "java"), "mixed": ("java", "ours", "ours")}
_CRC32C = DigestType.CRC32C
_E = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "password": b"pw"}

Scenario = Callable[[LedgerClient, JavaSide], Awaitable[None]]


@pytest.fixture(scope="module", params=list(_MIXES))
def bookies(request: pytest.FixtureRequest, java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    return java_bookkeeper(*_MIXES[request.param])


@pytest.fixture(params=["v2", "v3"])
def play(request: pytest.FixtureRequest, java_client: JavaClient, bookies: Bookies) -> Callable[[Scenario], None]:
    protocol: WireProtocol = request.param

    def play(scenario: Scenario) -> None:
        async def run() -> None:
            settings = ClientSettings(protocol=protocol, explicit_lac_interval_s=0.05)
            async with await LedgerClient.connect(bookies.uri, settings=settings) as client:
                await scenario(client, JavaSide(java_client, bookies.uri, "v3"))

        asyncio.run(asyncio.wait_for(run(), 60))

    return play


def test_entries_of_explicit_ids_in_a_ledger_of_an_explicit_id_are_read_by_java(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(client: LedgerClient, java: JavaSide) -> None:
        ledger_id = random.getrandbits(62) | 1 << 40
        writer = await client.create_adv(ledger_id=ledger_id, **_E)  # type: ignore[arg-type]
        with pytest.raises(LedgerExistsError, match=str(ledger_id)):
            await client.create_adv(ledger_id=ledger_id, **_E)  # type: ignore[arg-type]
        ids = list(range(200))
        random.Random(1).shuffle(ids)
        await asyncio.gather(*(writer.append_at(i, payload_of(i)) for i in ids))
        # The length is not for a recoverer to know: an entry carries the sum of those sent before it, by either client.
        recovered = await java.recover(ledger_id)
        assert (recovered.last, recovered.is_closed) == (199, True)
        seen = await java.read(ledger_id, digest=_CRC32C)
        assert (seen.count, seen.bad) == (200, 0)
        assert ledger_id in await java.ledgers()
        await client.delete(ledger_id)
        assert ledger_id not in await java.ledgers()

    play(scenario)


def test_a_deferred_sync_shows_to_java_what_was_forced(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: LedgerClient, java: JavaSide) -> None:
        writer = await client.create(deferred_sync=True, **_E)  # type: ignore[arg-type]
        await writer.append_many([payload_of(i) for i in range(50)])
        assert writer.last_add_confirmed == -1
        assert await writer.force() == 49
        await writer.append(payload_of(50))
        assert (await java.read(writer.ledger_id, how="plain", digest=_CRC32C)).last == 49
        await writer.force()
        await writer.close()
        assert (await java.read(writer.ledger_id, digest=_CRC32C)).count == 51

    play(scenario)


def test_the_explicit_lac_of_an_idle_writer_reaches_java(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: LedgerClient, java: JavaSide) -> None:
        writer = await client.create(**_E)  # type: ignore[arg-type]
        await writer.append_many([payload_of(i) for i in range(10)])
        while (await java.ask("lac", ledger=writer.ledger_id, password="pw"))["explicit_lac"] != 9:
            await asyncio.sleep(0.02)
        assert (await java.read(writer.ledger_id, digest=_CRC32C)).count == 10
        await writer.close()

    play(scenario)


def test_an_empty_ledger_and_one_with_empty_entries_are_the_same_to_both(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: LedgerClient, java: JavaSide) -> None:
        writer = await client.create(**_E)  # type: ignore[arg-type]
        await writer.close()
        assert await java.read(writer.ledger_id, recover=True, digest=_CRC32C) == Seen(0, 0, -1, True, 0)
        unwritten = await client.create(**_E)  # type: ignore[arg-type]
        assert await java.recover(unwritten.ledger_id) == Seen(0, 0, -1, True, 0)
        assert (await client.open(unwritten.ledger_id, password=b"pw")).metadata.last_entry_id == -1

    play(scenario)
