"""A fence check on Apache BookKeeper's bookies, and on mixed ensembles: they cannot tell, and are not disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ledger.client.client import LedgerClient
from ledger.client.settings import ClientSettings
from tests.compat.bookies import Bookies

pytestmark = pytest.mark.compat


@pytest.mark.parametrize(
    ("kinds", "is_known"), [(("java", "java", "java"), False), (("java", "ours", "ours"), True)], ids=["java", "mixed"]
)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_who_does_not_know_the_question_answers_another_one_and_goes_on(
    java_bookkeeper: Callable[..., Bookies], kinds: tuple[str, ...], is_known: bool, protocol: str
) -> None:
    bookies = java_bookkeeper(*kinds)

    async def scenario() -> None:
        settings = ClientSettings(protocol=protocol)  # type: ignore[arg-type]
        async with await LedgerClient.connect(bookies.uri, settings=settings) as client:
            handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await handle.append(b"zero")
            told: list[bool] = []
            async with asyncio.timeout(60):
                while not told or (is_known and not told[-1]):
                    told.append(await handle.check_fence())
                    assert await handle.append(b"more") == len(told)
                    await handle.write_lac()
            assert told[-1] is is_known
            for _ in range(50):
                told.append(await handle.check_fence())
            assert is_known or not any(told)
            assert len(handle.metadata.segments) == 1
            await client.open(handle.ledger_id)
            assert not await handle.check_fence()

    asyncio.run(scenario())
