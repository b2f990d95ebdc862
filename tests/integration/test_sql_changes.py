"""The change feed of SQL tables, on real replicas: over failovers and commands, by right and within bounds."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.errors import MissingLogError, NoLeaderError
from rsm_spark.sql import BlockingSqlClient, SqlChange, SqlClient
from rsm_spark.transport.security import Security
from tests.hostile.test_sql_streams import Stream
from tests.hostile.victim import resident_mib
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import TOKENS, principals_of

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")


async def first(changes, count: int) -> list[SqlChange]:
    found = []
    try:
        async with asyncio.timeout(120):
            async for change in changes:
                found.append(change)
                if len(found) == count:
                    return found
    finally:
        await changes.aclose()
    raise AssertionError(found)


async def test_a_feed_goes_on_over_a_killed_leader_and_from_any_revision(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, command=SQL)
        async with await SqlClient.connect(log, uri) as shop:
            made = await shop.transaction(
                ["CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, stock INTEGER)", "CREATE TABLE other (a)"]
            )
            feed = shop.changes("item", begin="beginning", consumer="billing")
            (schema,) = await first(shop.changes("ITEM", begin=1), 1)
            assert (schema.kind, schema.table, schema.transaction) == ("schema", "item", made.revision)
            await shop.transaction(["INSERT INTO item VALUES (1, 'pen', 5)", "INSERT INTO other VALUES (1)"])
            sold = await shop.transaction(["UPDATE item SET stock = 4", "DELETE FROM other"])
            async with asyncio.timeout(120):
                told = [await anext(feed) for _ in range(3)]
            await shop.processed("billing", told[1].revision)
            assert told[2].transaction == sold.revision
            pen = {"id": 1, "name": "pen", "stock": 5}
            assert (told[2].key, told[2].old, told[2].new) == ({"id": 1}, pen, pen | {"stock": 4})
            leader = next(name for name, one in replicas.alive.items() if one.address == feed.address)
            replicas.gone(leader).kill()
            await shop.execute("DELETE FROM item", timeout_s=120)
            async with asyncio.timeout(120):
                gone = await anext(feed)
            assert (gone.kind, gone.old, gone.new) == ("delete", told[2].new, None)
            await feed.aclose()
            assert [one.kind for one in await first(shop.changes("item", begin=1), 4)] == [
                "schema", "insert", "update", "delete",
            ]  # fmt: skip
        async with await SqlClient.connect(log, uri) as shop:  # It goes on where the consumer of that name stands.
            assert await first(shop.changes("item", consumer="billing"), 2) == [told[2], gone]

        def blocking() -> list[str]:
            with BlockingSqlClient.connect(log, uri) as shop:
                found: list[str] = []
                for change in shop.changes("other", begin=1):
                    found.append(change.kind)
                    if len(found) == 3:
                        return found
            raise AssertionError

        assert await asyncio.to_thread(blocking) == ["schema", "insert", "delete"]
        told_json = await asyncio.to_thread(tail, uri, log, "item", "--from", "beginning", "--limit", "4")
        assert told_json[2]["old"] == pen
        assert [one["kind"] for one in told_json] == ["schema", "insert", "update", "delete"]


async def test_who_may_not_is_refused_and_who_reads_nothing_holds_up_nobody(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name

    async def client(name: str) -> SqlClient:
        file = tmp_path / f"{name}.token"
        file.write_text(TOKENS[name])
        file.chmod(0o600)
        return await SqlClient.connect(log, uri, security=Security(token_file=str(file)))

    with stores(uri, log, tmp_path) as replicas:
        one = replicas.start("a", "--feeds-max", "8", *principals_of(tmp_path), command=SQL)
        async with await client("ann") as ann, await client("rob") as rob, await client("eve") as eve:
            await ann.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
            with pytest.raises(NoLeaderError, match="permission_denied"):
                await anext(eve.changes(begin="beginning", patience_s=1.0))
            lazy = [ann.changes(begin="beginning") for _ in range(2)]
            for feed in lazy:
                await anext(feed)
            with pytest.raises(NoLeaderError, match="2 of them of this caller"):
                await anext(ann.changes(begin="beginning", patience_s=1.0))
            quick = rob.changes(begin="now")
            waiting = asyncio.get_running_loop().create_task(first(quick, 60))
            async with asyncio.timeout(60):
                while not quick.revision:
                    await asyncio.sleep(0.05)
            before = resident_mib(one.process.pid)
            for number in range(60):  # 60 MiB, more than the replica keeps of its log.
                await ann.execute("INSERT INTO t VALUES (?, ?)", (number, bytes(1_000_000)))
            assert [change.key["id"] for change in await waiting] == list(range(60))
            assert resident_mib(one.process.pid) < before + 250
            # Who has slept misses nothing.
            slept = await first(lazy[0], 60)
            assert [change.key["id"] for change in slept] == list(range(60))
            await lazy[1].aclose()
            assert (await first(ann.changes(begin=slept[-1].revision), 1))[0] == slept[-1]


def tail(uri: str, log: str, *arguments: str) -> list[dict[str, Any]]:
    """Return what the command prints."""
    command = [sys.executable, "-m", "rsm_spark", "sql", "tail", *arguments]
    done = subprocess.run(  # noqa: S603 - the project's own command
        [*command, "--log", log, "--metadata-uri", uri, "--json"], capture_output=True, timeout=120, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_of_what_was_trimmed_all_doors_say_what_is_there_first(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    pace = ("--roll-records", "60", "--retention-s", "0", "--trim-s", "3600", "--trim-single-copy", "--http-port", "0")

    async def rsm(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "rsm_spark", *arguments, "--metadata-uri", uri]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr

    with stores(uri, log, tmp_path) as replicas:
        one = replicas.start("a", *pace, "--snapshot-s", "0", command=SQL)
        async with await SqlClient.connect(log, uri) as shop:
            await shop.transaction(["CREATE TABLE a (id INTEGER PRIMARY KEY, v)", "CREATE TABLE gone (v)"])
            await shop.execute("INSERT INTO gone VALUES (1)")
            await shop.execute("DROP TABLE gone")
            await shop.execute("ALTER TABLE a RENAME TO b")
            for number in range(1, 61):
                await shop.execute("INSERT INTO b VALUES (?, 0)", (number,))
            await shop.execute("ALTER TABLE b RENAME TO c")
            told = await first(shop.changes(begin="beginning"), 67)
            # As a file of before the catalog's history was kept has it: what the tables were is read from the log.
            assert one.stop() == 0
            with sqlite3.connect(tmp_path / "a" / "tables.db") as file:
                file.execute("DROP TABLE _rsm_catalog_since")
                file.execute("DROP TABLE _rsm_catalog_notes")
            file.close()
            replicas.gone("a")
            one = replicas.start("a", *pace, "--snapshot-s", "0.5", command=SQL)
            assert await first(shop.changes(begin=1), 67) == told
            assert await first(shop.changes("b", begin=told[10].revision), 57) == told[10:]
            held = 1
            while held == 1:  # Until a snapshot has been read back, the log stays.
                for number in range(20):
                    await shop.execute("UPDATE c SET v = v + 1 WHERE id = ?", (number + 1,))
                code, said = await rsm("log", "trim", log, "--accept-unverified", "--json")
                assert code == 0, said
                code, said = await rsm("log", "info", log, "--json")
                held = json.loads(said)["first_revision"]
            with pytest.raises(MissingLogError) as missing:
                await first(shop.changes(begin=1, patience_s=60), 1)
            begin = (missing.value.last_revision or 0) + 1
            assert begin == held
            (change, *_) = await first(shop.changes(begin=begin), 5)
            assert (change.table, change.kind, change.revision >= begin) == ("c", "update", True)
            assert change.old is not None
            code, said = await rsm("sql", "tail", "--from", "1", "--log", log)
            assert code != 0
            assert str(begin) in said
            assert "Traceback" not in said

            def streamed() -> None:
                refused = Stream(one, "?from=1")
                assert refused.status == 410
                assert json.load(refused.answer)["error"]["first_revision"] == begin
                again = Stream(one, last_id=begin - 1)
                assert again.changes(1)[0]["revision"] == change.revision
                again.close()

            await asyncio.to_thread(streamed)
