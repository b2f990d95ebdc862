"""Who would have bookies taken out over HTTP without the right to it, or floods that door, beside an operator."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.replication.marks import MarkStore
from ledger.wire import paths
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.test_auto_recovery import auto_recovery, contents, until, write
from tests.integration.test_watched_bookies import ask
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of

_DOORS = ("/api/v1/autorecovery/decommission", "/api/v1/autorecovery/bookie")
_CALLS, _UNITS = 30, 400
_ATTACKERS, _KINDS = 6, 6
_STRANGERS = ("", "nobody", *map(token_of, ("replica", "auditor", "client", "worker", "tenant")))


def _body(door: str, bookie_id: str) -> str:
    return json.dumps({"bookie_src": bookie_id if door == _DOORS[0] else [bookie_id], "delete_cookie": True})


def _attack(address: str, bookies: list[str], dead: str, work: Work, seen: set[int]) -> None:
    """Ask for all that is there, with and without rights, until it is over; a unit is an answer, and what it was."""
    operator = token_of("operator")
    for number in itertools.count():
        if work.is_over:
            return
        door = _DOORS[number // _KINDS % 2]
        tries = [
            (_STRANGERS[number % len(_STRANGERS)], _body(door, dead)),
            (operator, _body(door, bookies[number % len(bookies)])),
            (operator, _body(door, f"none-{number}:1")),
            (operator, _body(door, ("../../ledgers", f"{dead}\n", ".", "")[number % 4])),
            (operator, "[" * 4_000),
            (operator, _body(_DOORS[1], dead).replace(f'["{dead}"]', json.dumps([f"n{n}:1" for n in range(500)]))),
        ]
        token, body = tries[number % _KINDS]
        seen.add(ask(address, door, method="PUT", body=body, token=token)[0])
        work.add()


def test_floods_of_removals_take_nothing_out_and_an_operator_beside_goes_on(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=4)

    async def scenario(address: str, pid: int) -> None:
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            ids = [await write(client, 50) for _ in range(3)]
            dead = (await client.metadata(ids[0])).segments[0].bookies[0]
            await asyncio.to_thread(cluster.kill_bookie, cluster.bookies.index(dead))

            async def is_gone() -> bool:
                return dead not in await client.ledgers.writable_bookies()

            await until(is_gone, "it is still registered")
            for door in _DOORS:
                for token in _STRANGERS:
                    status, _ = await asyncio.to_thread(
                        ask, address, door, method="PUT", body=_body(door, dead), token=token
                    )
                    assert status == (403 if token.endswith("cluster") else 401), (door, token)

            async def look() -> None:
                status, words = await asyncio.to_thread(ask, address, "/status", token=token_of("operator"))
                assert status == 200, words

            work, victim = Work(), Victim(look, servers=[pid])
            quiet = await victim.run(_CALLS)
            serving, seen = [one for one in cluster.bookies if one != dead], set[int]()
            attackers = [
                threading.Thread(target=_attack, args=(address, serving, dead, work, seen), daemon=True)
                for _ in range(_ATTACKERS)
            ]
            for one in attackers:
                one.start()
            attacked = await victim.run(_CALLS, beside=work, units=_UNITS)
            memory_mib = resident_mib(pid)
            work.end()
            for one in attackers:
                await asyncio.to_thread(one.join)
            attacked.assert_goes_on_like(quiet, units_per_call=50)
            assert seen == {400, 401, 403, 404, 409}
            assert memory_mib < 300
            store = client.store
            assert sorted(await store.children(paths.cookie_path("/ledgers"))) == sorted(cluster.bookies)
            assert not await MarkStore(store, "/ledgers", "").marked()
            assert sorted(await client.ledgers.writable_bookies()) == sorted(serving)
            assert [await contents(client, ledger_id) for ledger_id in ids] == [list(range(50))] * 3

    options = ("--lost-bookie-delay-s", "3600", "--http-port", "0", "--principals", principals(tmp_path))
    with auto_recovery(cluster.metadata_uri, tmp_path / "log", *options) as (process, notice):
        asyncio.run(scenario(notice["http_address"], process.pid))
