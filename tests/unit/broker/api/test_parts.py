"""What all callers share, and that a token and an address have their part of it only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.api.settings import HttpSettings
from ledger.errors import UsageError
from ledger.http.pools import Holder, Pool
from tests.unit.broker.api.stand import Caller, assert_problem, serving, write_tokens


def test_a_pool_has_parts_of_tokens_and_of_addresses_and_forgets_who_gave_back() -> None:
    pool = Pool(10, token_max=4, address_max=6)
    acme, bolt, nobody = Holder("acme", "a"), Holder("bolt", "a"), Holder(None, None)
    pool.take(4, acme)
    assert not pool.has_for(1, acme)
    assert not pool.has_for(1, Holder("acme", "b")), "a token is one, wherever it comes from"
    assert pool.has_for(2, bolt)
    pool.take(2, bolt)
    assert not pool.has_for(1, Holder("third", "a")), "an address is one, whatever its tokens"
    assert pool.has_for(4, nobody)
    pool.take(4, nobody)
    assert not pool.has(1)
    for amount, holder in ((4, acme), (2, bolt), (4, nobody)):
        pool.give(amount, holder)
    assert (pool.held, pool.has(10), pool.has_for(4, acme)) == (0, True, True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"token_part": 0.0}, "--http-token-part"),
        ({"address_part": 1.5}, "--http-address-part"),
        ({"proxies": ("proxy.example",)}, "--http-proxies"),
    ],
)
def test_parts_and_proxies_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        HttpSettings(**settings)


def test_a_token_has_its_part_of_the_connections_and_others_come_in(tmp_path: Path) -> None:
    async def run() -> None:
        tokens = write_tokens(tmp_path / "tokens.toml")
        async with serving(tokens_file=tokens, connections_max=20, token_part=0.2, address_part=1.0) as (server, _):
            callers = [await Caller.of(server) for _ in range(4)]
            for caller in callers:
                assert (await caller.ask("GET", "/api/v1/slots", token="acme")).status == 200
            late = await Caller.of(server)
            assert_problem(await late.ask("GET", "/api/v1/slots", token="acme"), 429, "too-many-connections")
            assert await late.closed()
            other = await Caller.of(server)
            assert (await other.ask("GET", "/api/v1/slots", token="bolt")).status == 200
            callers.pop().close()
            async with asyncio.timeout(60):
                while server.connection_count > 4:
                    await asyncio.sleep(0.005)
            again = await Caller.of(server)
            assert (await again.ask("GET", "/api/v1/slots", token="acme")).status == 200
            for caller in (*callers, other, again):
                caller.close()

    asyncio.run(run())


@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",)])
def test_an_address_has_its_part_of_streams_unless_many_come_from_it(proxies: tuple[str, ...]) -> None:
    async def run() -> None:
        async with serving(events_max=4, address_part=0.5, proxies=proxies) as (server, _):
            statuses: list[int] = []
            callers: list[Caller] = []
            for _ in range(4):
                caller = await Caller.of(server)
                callers.append(caller)
                caller.writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: {caller.host}\r\n\r\n".encode())
                statuses.append(int((await caller.reader.readuntil(b"\r\n\r\n")).split()[1]))
            assert statuses == ([200] * 4 if proxies else [200, 200, 429, 429])
            for caller in callers:
                caller.close()

    asyncio.run(run())
