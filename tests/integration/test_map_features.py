"""The map on real processes: transactions, times to live, leases, watches over killed leaders, the past."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import UsageError
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map.cli.map import app
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.commands import Compare, Increment, Put
from rsm_spark.map.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from rsm_spark.map.past import rows_at
from rsm_spark.server.replica_server import SNAPSHOTS_FOLDER
from rsm_spark.snapshots.local import LocalSnapshots
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio


async def rsm_map(uri: str, log: str, *arguments: str, given: str = "") -> tuple[int, list[Any], str]:
    """Run a command of `rsm map`; return its exit code, the JSON that it printed, its errors."""
    command = [*arguments, "--log", log, "--metadata-uri", uri, "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, command, input=given)
    assert done.exception is None or isinstance(done.exception, SystemExit | UsageError), done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], f"{done.stderr}{done.exception}"


async def test_the_command_line_does_what_the_map_does(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a")
        replicas.start("b")
        move = json.dumps(
            {
                "if": [{"key": "a", "exists": False}],
                "then": [{"put": "a", "value": "10"}, {"increment": "a", "amount": -3}, {"get": "a"}],
                "else": [{"get": "a"}],
            }
        )
        code, (done,), _ = await rsm_map(uri, log, "txn", given=move)
        assert (code, done["succeeded"], done["results"][2]["value"]) == (0, True, "7")
        code, (done,), _ = await rsm_map(uri, log, "txn", given=move)
        assert (code, done["succeeded"], done["results"][0]["value"]) == (7, False, "7")
        code, _, errors = await rsm_map(uri, log, "txn", given='{"than": []}')
        assert code == 1
        assert "did you mean 'then'" in errors
        assert (await rsm_map(uri, log, "incr", "a", "--by", "5"))[1][0]["value"] == 12
        _, (granted,), _ = await rsm_map(uri, log, "lease", "grant", "60000")
        lease = str(granted["lease"])
        assert (await rsm_map(uri, log, "put", "w", "1", "--lease", lease))[0] == 0
        assert (await rsm_map(uri, log, "ttl", "w"))[1][0]["lease"] == int(lease)
        assert (await rsm_map(uri, log, "lease", "list"))[1][0]["keys"] == 1
        assert (await rsm_map(uri, log, "lease", "keep", lease))[0] == 0
        assert (await rsm_map(uri, log, "lease", "revoke", lease))[1][0]["keys"] == 1
        assert (await rsm_map(uri, log, "lease", "show", lease))[0] == 4
        assert (await rsm_map(uri, log, "put", "t", "1", "--ttl-ms", "300"))[0] == 0
        _, changes, _ = await rsm_map(uri, log, "watch", "--from", "1", "--limit", "7", "--old-values")
        assert [(one["kind"], one["key"]) for one in changes] == [
            ("put", "a"),
            ("put", "a"),
            ("put", "a"),
            ("put", "w"),
            ("expired", "w"),
            ("put", "t"),
            ("expired", "t"),
        ]
        # Both writes of the transaction have one mod revision: that of its last record.
        moved = changes[1]["revision"]
        assert (changes[0]["old"], changes[4]["old"]["value"]) == (None, changes[3]["value"])
        assert changes[1]["old"] == {
            "value": changes[0]["value"], "revision": moved, "create_revision": moved, "version": 1,
        }  # fmt: skip
        then = str(moved)
        assert (await rsm_map(uri, log, "get", "a", "--at-revision", then))[1][0]["value"] == "7"
        assert (await rsm_map(uri, log, "scan", "--at-revision", then))[1] == [
            {"key": "a", "value": "7", "revision": int(then), "create_revision": moved, "version": 2}
        ]
        assert (await rsm_map(uri, log, "get", "a", "--stale"))[1][0]["value"] == "12"
        assert (await rsm_map(uri, log, "delete-range", "--prefix", "a"))[1][0]["keys"] == 1


async def test_what_expires_waits_its_full_time_after_a_killed_leader_and_then_goes(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name)
        async with await MapClient.connect(log, uri) as client:
            lease = await client.grant_lease(3_000)
            put = await client.put(b"leased", b"", lease=lease)
            await client.put(b"brief", b"", ttl_ms=3_000)
            leader = await replicas.leader()
            leader.kill()
            replicas.gone(leader.replica_id)
            watch = client.watch(from_revision=put - 1)  # The put says the revision of its last record, the lease.
            async with asyncio.timeout(60):
                changes = [await anext(watch) for _ in range(4)]
            await watch.aclose()
            assert {(one.kind, one.key) for one in changes[2:]} == {("expired", b"leased"), ("expired", b"brief")}
            # Counted from the promotion of the new leader, which came after the put.
            assert all(one.logged_ms - changes[0].logged_ms >= 3_000 for one in changes[2:])
            assert await client.leases() == []


@pytest.mark.parametrize("kill_count", [1, pytest.param(5, marks=pytest.mark.slow)])
async def test_watches_miss_nothing_and_double_nothing_while_leaders_are_killed(
    cluster: DevCluster, unique_name: str, tmp_path: Path, kill_count: int
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name)
        async with await MapClient.connect(log, uri) as client, await MapClient.connect(log, uri) as watcher:
            written: dict[int, bytes] = {}
            begun = await client.put(b"k/begin", b"")
            done = asyncio.Event()

            async def write() -> None:
                number = 0
                while not done.is_set():
                    keys = [b"k/%06d" % (number + n) for n in range(20)]
                    revisions = await asyncio.gather(*(client.put(key, b"v") for key in keys))
                    written.update(zip(revisions, keys, strict=True))
                    await client.put(b"other", b"")
                    number += 20

            seen: list[tuple[int, bytes]] = []

            async def see(start: int | None) -> None:
                async for change in watcher.watch(prefix=b"k/", from_revision=start):
                    if change.key == b"k/end":
                        return
                    seen.append((change.revision, change.key))

            tasks = [asyncio.create_task(write()), asyncio.create_task(see(begun + 1))]
            for _ in range(kill_count):
                await asyncio.sleep(1)
                leader = await replicas.leader()
                leader.kill()
                replicas.gone(leader.replica_id)
                count = len(written)
                async with asyncio.timeout(60):
                    while len(written) == count:
                        await asyncio.sleep(0.05)
                replicas.start(leader.replica_id)
            done.set()
            async with asyncio.timeout(60):
                await tasks[0]
                await client.put(b"k/end", b"")
                await tasks[1]
            assert dict(seen) == written
            assert [revision for revision, _ in seen] == sorted(written)
            # Any replica tells the same, from its ring or from the log.
            for replica in replicas.alive.values():
                async with await MapClient.connect(log, uri, replica=replica.address) as other:
                    again = []
                    async with asyncio.timeout(60):
                        async for change in other.watch(prefix=b"k/", from_revision=begun + 1):
                            if change.key == b"k/end":
                                break
                            again.append((change.revision, change.key))
                    assert again == seen


async def test_the_past_is_read_from_snapshots_and_the_log(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        one = replicas.start("a")
        past: dict[int, dict[bytes, bytes]] = {}
        model: dict[bytes, bytes] = {}
        async with await MapClient.connect(log, uri) as client:
            for n in range(40):
                key = b"k/%d" % (n % 7)
                if n % 5 == 4:
                    await client.delete(key)
                    model.pop(key, None)
                else:
                    await client.put(key, b"%d" % n)
                    model[key] = b"%d" % n
                revision = (await client.scan_page()).revision
                past[revision] = dict(model)
                if n == 20:
                    one.stop()
                    replicas.gone("a")
                    one = replicas.start("a")
        folder = LocalSnapshots(tmp_path / "a" / SNAPSHOTS_FOLDER)
        ledgers = await LedgerClient.connect(uri)
        try:
            for stores_given in ([], [folder]):
                for revision, rows in sorted(past.items())[::6]:
                    found = await rows_at(ledgers, log, revision, b"k/", b"k0", stores=stores_given)
                    assert {row.key: row.value for row in found} == rows
                found = await rows_at(ledgers, log, max(past), b"k/3", b"k/4", stores=stores_given)
                assert [row.value for row in found] == [model[b"k/3"]] if b"k/3" in model else not found
            with pytest.raises(InvalidCommandError, match="there is no revision 1000000 yet"):
                await rows_at(ledgers, log, 1_000_000)
        finally:
            await ledgers.close()


async def test_values_and_keys_at_the_border_are_kept_and_beyond_it_refused(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a")
        replicas.start("b")
        async with await MapClient.connect(log, uri) as client:
            key, value = b"k" * KEY_BYTES_MAX, b"v" * VALUE_BYTES_MAX
            revision = await client.put(key, value)
            assert (await client.get(key)).value == value  # type: ignore[union-attr]
            other = key[:-1] + b"l"
            result = await client.transact([Compare(key, "value", "=", value)], [Put(other, value), Increment(b"n")])
            assert result.succeeded
            rows = [row async for row in client.scan(prefix=b"k")]
            assert [(row.key, len(row.value)) for row in rows] == [(key, len(value)), (other, len(value))]
            watch = client.watch(prefix=b"k", from_revision=revision)
            assert [(await anext(watch)).value == value for _ in range(2)] == [True, True]
            await watch.aclose()
            for wrong in ((key + b"k", b""), (b"", b""), (b"k", value + b"v")):
                with pytest.raises(InvalidCommandError):
                    await client.put(*wrong)
                with pytest.raises(InvalidCommandError):
                    await client.transact(then=[Put(*wrong)])
            with pytest.raises(InvalidCommandError, match="does not fit|more than one entry"):
                await client.transact(then=[Put(b"%d" % n, value) for n in range(4)])
