"""Large files of a file store in backups in S3: parts are copied once, read again, and one that rotted is named."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from tests.integration.backed_up_log import BackupCommand
from tests.integration.file_stores import exception_of
from tests.integration.s3_server import SECRETS, Bucket, harmful
from tests.integration.test_copied_contents import _content, _ledgers_of, _served

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1200)]

_MIB = 1024 * 1024


def _parts(bucket: Bucket) -> dict[str, int]:
    return {key: size for key, size in bucket.objects().items() if "/contents/" in key}


async def test_parts_lie_in_the_bucket_once_and_make_the_files_again(
    cluster: DevCluster, unique_name: str, bucket: Bucket, tmp_path: Path
) -> None:
    log, uri = unique_name, cluster.metadata_uri
    one, two, new = _content(11), _content(12, 65 * _MIB), _content(13)
    with harmful(bucket.url) as proxy:
        commands = BackupCommand(uri, f"{bucket.uri}/b", bucket.environment(proxy.url))
        async with _served(uri, log, tmp_path / "live") as caller:
            for path, content in (("/l/one", one), ("/l/two", two)):
                assert (await caller.create(path, content)).status_code == 201
            first = await commands.create(log)
            assert first["new_contents"] == first["contents"] == 2
            parts = _parts(bucket)
            assert sorted(size // _MIB for size in parts.values()) == [1, 2, 64], "parts of 64 MiB"
            # A part that is lost is copied again, and no other; nor is what was there when a file is written anew.
            lost = min(parts, key=lambda key: parts[key])
            bucket.delete(lost)
            assert (await caller.create("/l/one", new, overwrite="true")).status_code == 201
            proxy.asked.clear()
            second = await commands.create(log)
            assert (second["new_contents"], second["contents"]) == (2, 3)
            written = {
                asked.path for asked in proxy.asked if asked.method in {"PUT", "POST"} and "/contents/" in asked.path
            }
            assert lost in {re.sub(r"^/[^/]+/|\?.*", "", path) for path in written}
            assert len(written) == 2, "the lost part and the new file"
            assert parts.items() <= _parts(bucket).items()
        assert (await commands.verify(log))["contents"] == 3
        proxy.asked.clear()
        assert (await commands.create(log, "--no-snapshot"))["new_contents"] == 0
        assert not [asked for asked in proxy.asked if asked.method != "GET" and "/contents/" in asked.path]
        await commands.restore(log, f"{log}-new", "--data-dir", str(tmp_path / "new" / "a"))
        async with _served(uri, f"{log}-new", tmp_path / "new") as caller:
            assert await caller.read("/l/one") == new
            assert await caller.read("/l/two") == two
        # What somebody has cut, or taken, makes no log.
        whole = bucket.get(lost)
        bucket.put(lost, whole[:-1])
        at = ("--metadata-uri", uri)
        assert lost in await commands.refused("restore", log, "--as", f"{log}-cut", *at)
        bucket.delete(lost)
        refusal = await commands.refused("verify", log)
        assert lost in refusal
        assert not [secret for secret in SECRETS if secret in refusal]


async def test_a_file_that_rotted_is_named_and_backups_go_on_when_it_is_deleted(
    start_cluster: Callable[..., DevCluster], bucket: Bucket, tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=2)
    uri, log = cluster.metadata_uri, "files"
    commands = BackupCommand(uri, bucket.uri, bucket.environment())
    good, rotten = _content(14), random.Random(15).randbytes(3 * _MIB)
    async with _served(uri, log, tmp_path / "live") as caller:
        for path, content in (("/l/good", good), ("/l/rotten", rotten)):
            assert (await caller.create(path, content)).status_code == 201
    for number in range(2):
        cluster.stop_bookie(number)
        cluster.start_bookie(number)  # What lay in its journal is in a segment then.
        cluster.stop_bookie(number)
    _let_rot(cluster.data_dir, rotten[1_000:1_100])
    for number in range(2):
        cluster.start_bookie(number)
    async with _served(uri, log, tmp_path / "live") as caller, await LedgerClient.connect(uri) as client:
        assert exception_of(await caller.ask("GET", "/l/rotten", "OPEN")) in ("IOException", "RetriableException")
        (listed,) = [one for one in await _listed(commands, uri) if one["name"] == "rotten"]
        (ledger,) = [one for one, number in (await _ledgers_of(client, log)).items() if number == listed["number"]]
        refusal = await commands.refused("create", log, "--metadata-uri", uri)
        assert f"file {listed['number']}, whose content is ledger {ledger}, cannot be read" in refusal
        assert "if that stays so, delete the file or write it anew" in refusal
        assert await commands.backups(log) == []
        revision = (await commands.cat(log))[-1]["revision"]
        assert (await caller.ask("DELETE", "/l/rotten", "DELETE")).json() == {"boolean": True}
        made = await commands.create(log)
        assert made["contents"] == 1
        assert await caller.read("/l/good") == good
        at = ("--at-revision", str(revision), "--metadata-uri", uri)
        assert "gone or could not be read" in await commands.refused("restore", log, "--as", "then", *at)
        await commands.restore(log, "again", "--data-dir", str(tmp_path / "again" / "a"))
    async with _served(uri, "again", tmp_path / "again") as caller:
        assert await caller.read("/l/good") == good


async def _listed(commands: BackupCommand, uri: str) -> list[dict[str, object]]:
    code, lines, errors = await commands.run("files", "ls", "/l", "--log", "files", "--metadata-uri", uri, "--json")
    assert code == 0, errors
    return lines


def _let_rot(folder: Path, there: bytes) -> None:
    """Turn one bit wherever bookies that do not run hold these bytes."""
    found = 0
    for path in folder.glob("bookie-*/ledgers/current/*.seg"):
        content = path.read_bytes()
        at = content.find(there)
        if at >= 0:
            found += 1
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([there[0] ^ 1]))
    assert found == 2, "both bookies have them in a segment"
