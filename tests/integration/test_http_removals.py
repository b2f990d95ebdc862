"""Bookies that are taken out over HTTP, as BookKeeper's operators do it: the call returns, and the work goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.wire import paths
from tests.integration.bookie_process import Bookie
from tests.integration.ledger_suite import on_cluster
from tests.integration.test_auto_recovery import auto_recovery, contents, until, write
from tests.integration.test_watched_bookies import ask
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of

_DECOMMISSION = "/api/v1/autorecovery/decommission"
_RECOVER = "/api/v1/autorecovery/bookie"


def test_a_bookie_is_recovered_then_decommissioned_and_what_cannot_be_done_is_said(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=4)
    log, operator = tmp_path / "log", token_of("operator")

    async def scenario(client: LedgerClient, address: str) -> None:
        async def put(path: str, body: object) -> tuple[int, str]:
            return await asyncio.to_thread(ask, address, path, method="PUT", body=json.dumps(body), token=operator)

        async def logged(words: str) -> None:
            async def look() -> bool:
                return words in log.read_text()

            await until(look, f"its log does not say: {words}")

        ids = [await write(client, 50) for _ in range(4)]
        dead = (await client.metadata(ids[0])).segments[0].bookies[0]
        status, words = await put(_DECOMMISSION, {"bookie_src": dead})
        assert (status, f"bookie {dead} serves: stop it first" in words) == (409, True)
        await asyncio.to_thread(cluster.kill_bookie, cluster.bookies.index(dead))

        async def is_gone() -> bool:
            return dead not in await client.ledgers.writable_bookies()

        await until(is_gone, "it is still registered")
        status, words = await put(_RECOVER, {"bookie_src": [dead, "127.0.0.1:1"]})
        assert (status, "there is no bookie 127.0.0.1:1" in words) == (404, True)
        status, words = await put(_RECOVER, {"bookie_src": [dead], "bookie_dest": ["127.0.0.1:1"]})
        assert (status, "bookie_dest is not obeyed" in words) == (400, True)
        assert await put(_RECOVER, {"bookie_src": [dead], "bookie_dest": []}) == (
            200, "Success send recovery request command.\n"
        )  # fmt: skip
        gone = f"bookie {dead}, taken out for 'operator' (operator): no ledger names it any more, and its cookie"
        await logged(f"{gone} stays")
        for ledger_id in ids:
            assert dead not in (await client.metadata(ledger_id, sync=True)).segments[0].bookies
            assert await contents(client, ledger_id) == list(range(50))
        assert dead in await client.store.children(paths.cookie_path("/ledgers"))
        assert await put(_DECOMMISSION, {"bookie_src": dead, "delete_cookie": True}) == (
            200, f"Success send decommission Bookie command {dead}\n"
        )  # fmt: skip
        await logged(f"{gone} is deleted")
        assert dead not in await client.store.children(paths.cookie_path("/ledgers"))
        assert (await put(_DECOMMISSION, {"bookie_src": dead}))[0] == 404

    options = ("--lost-bookie-delay-s", "3600", "--http-port", "0", "--principals", principals(tmp_path))
    with auto_recovery(cluster.metadata_uri, log, *options) as (_, notice):
        on_cluster(cluster.metadata_uri, lambda client: scenario(client, notice["http_address"]), timeout_s=200)


def test_what_is_not_over_when_the_process_ends_is_told(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=4)
    log = tmp_path / "log"
    lost: list[str] = []

    async def lose(client: LedgerClient) -> None:
        ledger_id = await write(client, 50)
        lost.extend((await client.metadata(ledger_id)).segments[0].bookies)
        for one in lost:  # Nobody is left who could give a copy.
            await asyncio.to_thread(cluster.kill_bookie, cluster.bookies.index(one))

        async def are_gone() -> bool:
            return not {*lost} & {*await client.ledgers.writable_bookies()}

        await until(are_gone, "they are still registered")

    options = ("--lost-bookie-delay-s", "3600", "--http-port", "0", "--principals", principals(tmp_path))
    with auto_recovery(cluster.metadata_uri, log, *options) as (_, notice):
        on_cluster(cluster.metadata_uri, lose, timeout_s=200)
        body = json.dumps({"bookie_src": lost[0]})
        asked = [
            ask(notice["http_address"], _DECOMMISSION, method="PUT", body=body, token=token_of("operator"))
            for _ in range(2)
        ]
        assert [status for status, _ in asked] == [200, 409], asked
    ended = f"bookie {lost[0]}, taken out for 'operator' (operator): broken off, for this process ends"
    assert ended in log.read_text()


def test_a_bookie_without_auto_recovery_refers_to_others_and_its_folders_stay(
    zookeeper: str, tmp_path: Path, unique_name: str
) -> None:
    users = tmp_path / "users"
    users.write_text("digest:w1:secret\n")
    users.chmod(0o600)
    bookie = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}")
    options = ("--http-port", "0", "--principals", principals(tmp_path), "--auth-file", str(users))
    try:
        address, operator = bookie.start(*options)["http_address"], token_of("operator")
        for path, body in ((_DECOMMISSION, '{"bookie_src": "a:1"}'), (_RECOVER, '{"bookie_src": ["a:1"]}')):
            status, words = ask(address, path, method="PUT", body=body, token=operator)
            assert (status, "auto-recovery does not run in this process" in words) == (404, True)
        status, words = ask(address, "/api/v1/bookie/expand_storage", method="PUT", token=operator)
        assert (status, "keeps the folders that it began with" in words) == (501, True)
    finally:
        bookie.kill()
