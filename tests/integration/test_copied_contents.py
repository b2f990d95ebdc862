"""Large files of a file store in backups, restored logs and forks: real bookies, commands as typed, bytes compared."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import NoSuchLedgerError
from rsm_spark.core.orphans import content_number
from rsm_spark.log.chain_store import ChainStore
from tests.integration.backed_up_log import BackupCommand
from tests.integration.file_stores import SERVE, FileCaller, exception_of
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

_MIB = 1024 * 1024
_OPTIONS = ("--http-port", "0", "--ledger-files", "--snapshot-s", "1", "--checkpoint-records", "5")
_TRIMMED = ("--roll-s", "1", "--retention-s", "0", "--trim-s", "0.5", "--verify-s", "0.5")


def _content(seed: int, size: int = 2 * _MIB + 17) -> bytes:
    return random.Random(seed).randbytes(size)


@asynccontextmanager
async def _served(uri: str, log: str, folder: Path, *options: str) -> AsyncIterator[FileCaller]:
    """Serve a log, until its servers are stopped in an orderly way: by one, or by two where it is trimmed."""
    folder.mkdir(exist_ok=True)
    with stores(uri, log, folder) as running:
        replicas = "ab" if options else "a"
        ready = [
            await asyncio.to_thread(running.start, replica, *_OPTIONS, *options, command=SERVE) for replica in replicas
        ]
        async with FileCaller(ready[0].ready["http_address"]) as caller:
            yield caller
        for replica in replicas:
            await asyncio.to_thread(running.gone(replica).stop)


async def _ledgers_of(client: LedgerClient, log: str) -> dict[int, int]:
    """Return the ledgers of contents that a log has made, each with the number of its file."""
    log_id, found = (await ChainStore(client.store, log).read())[0].log_id, {}
    for ledger in await client.list():
        with contextlib.suppress(NoSuchLedgerError):  # Trimmed meanwhile.
            custom = (await client.metadata(ledger)).custom
            number = content_number(custom)
            if number is not None and custom["rsm_log_id"].decode() == log_id:
                found[ledger] = number
    return found


async def _until_left(client: LedgerClient, caller: FileCaller, log: str, count: int) -> None:
    """Write on, so that the log is rolled and trimmed, until so many ledgers of contents are left."""
    for number in range(300):
        if len(await _ledgers_of(client, log)) == count:
            return
        assert (await caller.create(f"/on/{number % 5}", b"x", overwrite="true")).status_code == 201
        await asyncio.sleep(0.3)
    raise AssertionError(f"there are {await _ledgers_of(client, log)}")


async def test_a_backup_has_contents_and_a_restored_log_its_own(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    log, uri, commands = unique_name, cluster.metadata_uri, BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    old, two, new = _content(1), _content(2, 70 * _MIB), _content(3)
    async with await LedgerClient.connect(uri) as client:
        async with _served(uri, log, tmp_path / "live") as caller:
            for path, content in (("/l/one", old), ("/l/two", two), ("/small", b"small")):
                assert (await caller.create(path, content)).status_code == 201
            first = await commands.create(log)
            assert first["new_contents"] == first["contents"] == 2
            assert (await caller.create("/l/one", new, overwrite="true")).status_code == 201
            assert (await caller.ask("DELETE", "/l/two", "DELETE")).json() == {"boolean": True}
            second = await commands.create(log)
            assert (second["new_contents"], second["contents"]) == (1, 3), "what was there is not copied again"
            assert (await commands.create(log, "--no-snapshot"))["new_contents"] == 0
        assert (await commands.verify(log))["ok"]
        files = sorted((tmp_path / "backups" / log).glob("*/contents/*"))
        assert [path.stat().st_size // _MIB for path in files] == [2, 64, 6, 2], "files of 64 chunks"
        await _refuse_damage(commands, log, files[1])
        before = await _ledgers_of(client, log)
        # As of the end: its own ledgers, which it frees without the origin's.
        said = await commands.restore(log, f"{log}-new", "--data-dir", str(tmp_path / "new" / "a"))
        assert said["contents"] == 1
        async with _served(uri, f"{log}-new", tmp_path / "new") as caller:
            assert await caller.read("/l/one") == new
            assert await caller.read("/small") == b"small"
            assert exception_of(await caller.ask("GET", "/l/two", "OPEN")) == "FileNotFoundException"
            assert (await caller.create("/l/three", old)).status_code == 201
        assert len(await _ledgers_of(client, f"{log}-new")) == 2
        await commands.create(f"{log}-new", "--data-dir", str(tmp_path / "new" / "a"))
        # Of older states, too, as long as the origin has them.
        assert (await commands.verify(f"{log}-new"))["contents"] == 4
        async with _served(uri, f"{log}-new", tmp_path / "new", *_TRIMMED) as caller:
            for path in ("/l/one", "/l/three"):
                assert (await caller.ask("DELETE", path, "DELETE")).json() == {"boolean": True}
            await _until_left(client, caller, f"{log}-new", 0)
        # As of before: what was deleted since is there again.
        at = ("--at-revision", str(first["last_revision"]))
        said = await commands.restore(log, f"{log}-then", *at, "--data-dir", str(tmp_path / "then" / "a"))
        assert said["contents"] == 2
        assert await _ledgers_of(client, log) == before
        await commands.done("log", "delete", log, "--yes", "--json", "--metadata-uri", uri)
        async with _served(uri, f"{log}-then", tmp_path / "then") as caller:
            assert await caller.read("/l/one") == old
            assert await caller.read("/l/two", offset=64 * _MIB - 5, length=10) == two[64 * _MIB - 5 : 64 * _MIB + 5]
        # A backup of what the restored log has been made of, and of nothing else.
        await commands.create(f"{log}-then", "--data-dir", str(tmp_path / "then" / "a"))
        await commands.restore(f"{log}-then", f"{log}-last", "--data-dir", str(tmp_path / "last" / "a"))
        async with _served(uri, f"{log}-last", tmp_path / "last") as caller:
            assert await caller.read("/l/two") == two


async def _refuse_damage(commands: BackupCommand, log: str, file: Path) -> None:
    """Neither verify nor restore what somebody has changed; leave it as it was."""
    whole = file.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1], whole + b"x"):
        file.write_bytes(damaged)
        assert "changed" in await commands.refused("verify", log)
    at = ("--at-revision", str((await commands.backups(log))[-1]["last_revision"]))
    words = ("restore", log, "--as", f"{log}-damaged", *at, "--metadata-uri", commands.metadata_uri)
    assert "changed" in await commands.refused(*words)
    file.write_bytes(whole)
    assert (await commands.verify(log))["ok"]


async def test_contents_that_the_log_names_no_more_are_found_in_a_snapshot(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    log, uri, commands = unique_name, cluster.metadata_uri, BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    kept, gone = _content(4), _content(5)
    async with await LedgerClient.connect(uri) as client:
        async with _served(uri, log, tmp_path / "live", *_TRIMMED) as caller:
            for path, content in (("/l/kept", kept), ("/l/gone", gone)):
                assert (await caller.create(path, content)).status_code == 201
            assert (await caller.ask("DELETE", "/l/gone", "DELETE")).json() == {"boolean": True}
            await _until_left(client, caller, log, 1)
            said = await commands.create(log)
            assert said["first_revision"] > 1
            assert said["contents"] == 1
        await commands.verify(log)
        await commands.done("log", "delete", log, "--yes", "--json", "--metadata-uri", uri)
        await commands.restore(log, f"{log}-new", "--data-dir", str(tmp_path / "new" / "a"))
        async with _served(uri, f"{log}-new", tmp_path / "new") as caller:
            assert await caller.read("/l/kept") == kept


async def test_a_fork_shares_contents_until_the_last_one_lets_them_go(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    log, uri, commands = unique_name, cluster.metadata_uri, BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    one, two = _content(6), _content(7)

    async def fork(origin: str, name: str, *options: str) -> None:
        folder = ("--data-dir", str(tmp_path / name / "a"))
        await commands.done(
            "log", "fork", origin, "--as", f"{log}-{name}", *folder, *options, "--json", "--metadata-uri", uri
        )

    async with await LedgerClient.connect(uri) as client:
        async with _served(uri, log, tmp_path / "live", *_TRIMMED) as caller:
            await commands.done("log", "raise-format", log, "--json", "--metadata-uri", uri)
            for path, content in (("/l/one", one), ("/l/two", two)):
                assert (await caller.create(path, content)).status_code == 201
            await fork(log, "shares")
            await fork(log, "copies", "--independent")
            assert len(await _ledgers_of(client, f"{log}-copies")) == 2
            assert await _ledgers_of(client, f"{log}-shares") == {}
            shared = await _ledgers_of(client, log)
            assert (await caller.ask("DELETE", "/l/one", "DELETE")).json() == {"boolean": True}
            # The origin forgets the file, and its ledger stays for the fork.
            while "rsm_files_ledgers_freed 0.0" not in await _metrics(caller):
                assert (await caller.create("/small", b"x", overwrite="true")).status_code == 201
                await asyncio.sleep(0.3)
            assert await _ledgers_of(client, log) == shared
        await commands.done("log", "delete", log, "--yes", "--json", "--metadata-uri", uri)
        async with _served(uri, f"{log}-shares", tmp_path / "shares", *_TRIMMED) as caller:
            assert [await caller.read(path) for path in ("/l/one", "/l/two")] == [one, two]
            await fork(f"{log}-shares", "third")
            assert (await caller.ask("DELETE", "/l/two", "DELETE")).json() == {"boolean": True}
        await commands.done("log", "delete", f"{log}-shares", "--yes", "--json", "--metadata-uri", uri)
        async with _served(uri, f"{log}-third", tmp_path / "third") as caller:
            assert [await caller.read(path) for path in ("/l/one", "/l/two")] == [one, two]
        await commands.done("log", "delete", f"{log}-third", "--yes", "--json", "--metadata-uri", uri)
        for ledger in shared:
            with pytest.raises(NoSuchLedgerError):
                await client.metadata(ledger)
        async with _served(uri, f"{log}-copies", tmp_path / "copies") as caller:
            assert [await caller.read(path) for path in ("/l/one", "/l/two")] == [one, two]


async def _metrics(caller: FileCaller) -> list[str]:
    answer = await caller.http.get(f"http://{caller.http.base_url.netloc.decode()}/metrics")
    return answer.text.splitlines()
