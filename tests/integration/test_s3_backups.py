"""Backups in S3, as one types the commands: against a real server, with what does harm between, and killed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from tests.integration.backed_up_log import BackupCommand
from tests.integration.s3_server import EXPIRED, SECRETS, SLOW_DOWN, Asked, Bucket, harmful, times
from tests.integration.test_backup import Load, check_restored, ledgers, served

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1200)]


def no_secret(*told: str | bytes) -> None:
    for text in told:
        shown = text if isinstance(text, bytes) else text.encode()
        assert not [secret for secret in SECRETS if secret.encode() in shown]


async def test_backups_are_made_listed_verified_restored_and_removed_in_a_bucket(
    cluster: DevCluster, unique_name: str, bucket: Bucket, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    commands = BackupCommand(uri, f"{bucket.uri}/backups", bucket.environment())
    load = Load(21)
    async with served(uri, unique_name, tmp_path / "live"):
        writing = asyncio.create_task(load.run(unique_name, uri, 300))
        await commands.create(unique_name)
        await writing
        made = await commands.create(unique_name)
        assert made["snapshots"]
    await commands.create(unique_name, "--no-snapshot")
    again = await commands.create(unique_name, "--no-snapshot")
    assert (again["new_entries"], again["new_bytes"]) == (0, 0), "nothing is copied twice"
    records = await commands.cat(unique_name)
    there = len(await commands.backups(unique_name))
    assert (await commands.verify(unique_name))["last_revision"] == records[-1]["revision"]
    revision = random.Random(3).randrange(100, records[-1]["revision"])
    await check_restored(commands, unique_name, f"{unique_name}-then", revision, records, tmp_path)
    # The same by a file of options, without a word in the environment.
    file = ("--storage-options-file", str(bucket.options_file(tmp_path)))
    elsewhere = BackupCommand(uri, f"{bucket.uri}/backups")
    last = await elsewhere.restore(unique_name, f"{unique_name}-now", *file)
    assert last["revision"] == records[-1]["revision"]
    async with served(uri, unique_name, tmp_path / "live"):
        await load.run(unique_name, uri, 50)
        kept = await elsewhere.create(unique_name, "--no-snapshot", "--keep", "1", *file)
    assert len(kept["removed"]) == there
    (listed,) = await commands.backups(unique_name)
    assert listed["backup"] == kept["backup"]
    assert (await commands.verify(unique_name))["ok"]
    info = await commands.done("log", "info", f"{unique_name}-now", "--metadata-uri", uri, "--json")
    assert info["origins"][0]["source"].startswith(f"backup {bucket.uri}/backups/")
    no_secret(json.dumps([made, listed, kept, info, last]), bucket.all_bytes())


async def test_the_backups_of_a_renamed_log_go_on_in_a_bucket(
    cluster: DevCluster, unique_name: str, bucket: Bucket, tmp_path: Path
) -> None:
    uri, new = cluster.metadata_uri, f"{unique_name}-renamed"
    commands = BackupCommand(uri, bucket.uri, bucket.environment())
    async with served(uri, unique_name, tmp_path / "live"):
        await Load(5).run(unique_name, uri, 200)
        first = await commands.create(unique_name)
    await commands.done("log", "rename", unique_name, new, "--metadata-uri", uri, "--json")
    async with served(uri, new, tmp_path / "live"):
        await Load(6).run(new, uri, 20)
        second = await commands.create(new, "--no-snapshot")
    assert second["first_revision"] == 1
    assert second["new_bytes"] < first["new_bytes"] / 2, "only what is new"
    assert bucket.get(f"{new}/{second['log_id']}/former") == unique_name.encode()
    assert (await commands.verify(new))["ok"]


async def test_a_schedule_outlives_a_store_that_is_too_busy_and_credentials_that_expire(
    cluster: DevCluster, unique_name: str, bucket: Bucket, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    with harmful(bucket.url) as proxy:
        environment = {**bucket.environment(proxy.url), "AWS_MAX_ATTEMPTS": "2"}
        async with served(uri, unique_name, tmp_path / "live"):
            await Load(8).run(unique_name, uri, 100)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rsm_spark", "backup", "create", unique_name, "--every", "1s", "--keep", "2",
                "--json", "--place", f"{bucket.uri}/b", "--metadata-uri", uri,
                env=environment, stdout=PIPE, stderr=PIPE,
            )  # fmt: skip
            assert process.stdout is not None
            assert process.stderr is not None
            out, errors = [], []
            try:
                for number, harm in enumerate((SLOW_DOWN, EXPIRED, SLOW_DOWN)):
                    out.append(await asyncio.wait_for(process.stdout.readline(), 60))
                    proxy.rule = times(10_000, harm, _writes if number == 2 else _all)
                    await Load(number).run(unique_name, uri, 20)
                    errors.append(await asyncio.wait_for(process.stderr.readline(), 60))
                    proxy.rule = times(0, harm)
                    await Load(number).run(unique_name, uri, 20)
                for _ in range(3):
                    out.append(await asyncio.wait_for(process.stdout.readline(), 60))
            finally:
                process.kill()
                rest = await process.communicate()
    told = [line.decode() for line in errors]
    for line, code in zip(told, ("SlowDown", "ExpiredToken", "SlowDown"), strict=True):
        assert line.startswith(f"log {unique_name}: no backup: {bucket.uri}/b"), line
        assert code in line
    no_secret(*out, *errors, *rest, bucket.all_bytes())
    commands = BackupCommand(uri, f"{bucket.uri}/b", bucket.environment())
    assert (await commands.verify(unique_name))["ok"]
    assert len(await commands.backups(unique_name)) <= 3


def _all(_asked: Asked) -> bool:
    return True


def _writes(asked: Asked) -> bool:
    return asked.method in {"PUT", "POST"}


async def test_a_backup_that_is_killed_while_it_uploads_is_none_and_its_parts_go_with_the_next_one(
    cluster: DevCluster, unique_name: str, bucket: Bucket, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    commands = BackupCommand(uri, f"{bucket.uri}/b", bucket.environment())
    async with served(uri, unique_name, tmp_path / "live"):
        await Load(12).run(unique_name, uri, 200)
        for step in ("upload_part", "complete_multipart_upload"):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _KILLED, step, "backup", "create", unique_name, "--place", f"{bucket.uri}/b",
                "--metadata-uri", uri, env=bucket.environment(),
            )  # fmt: skip
            assert await process.wait() == -signal.SIGKILL
        assert await commands.backups(unique_name) == []
        assert len(bucket.uploads()) == 2
        bucket.begin_upload("b/other/log/entries/file")
        bucket.begin_upload("elsewhere")
        async with await LedgerClient.connect(uri) as client:
            while any("-running-" in name for name in await client.store.children("/rsm/backups")):
                await asyncio.sleep(0.2)  # Until the sessions of those that were killed end.
        made = await commands.create(unique_name)
        assert made["swept"] == 2
        assert sorted(bucket.uploads()) == ["b/other/log/entries/file", "elsewhere"], "those of others stay"
    assert (await commands.verify(unique_name))["last_revision"] == made["last_revision"]


_KILLED = """
import os, signal, sys
from rsm_spark.object_stores import s3
step = sys.argv.pop(1)
s3._PUT_BYTES_MAX = 0
put = s3.S3Store.__init__
def init(self, uri, options=None):
    put(self, uri, options, put_bytes_max=1000)
    setattr(self._client, step, lambda **_: os.kill(os.getpid(), signal.SIGKILL))
s3.S3Store.__init__ = init
from rsm_spark.cli.main import main
main()
"""


async def test_a_changed_or_cut_object_makes_no_log(
    cluster: DevCluster, unique_name: str, bucket: Bucket, tmp_path: Path
) -> None:
    uri, at = cluster.metadata_uri, ("--metadata-uri", cluster.metadata_uri)
    commands = BackupCommand(uri, bucket.uri, bucket.environment())
    async with served(uri, unique_name, tmp_path / "live"):
        await Load(11).run(unique_name, uri, 300)
        await commands.create(unique_name)
    before = await ledgers(uri)
    key = next(key for key in bucket.objects() if key.endswith(".entries"))
    whole = bucket.get(key)
    for content, words in ((whole[:-9], "cut or changed"), (b"x" + whole[1:], "sha256"), (whole + b"x", "more than")):
        bucket.put(key, content)
        refusal = await commands.refused("restore", unique_name, "--as", "x", *at)
        assert words in refusal
        assert f"{bucket.uri}/{key}" in refusal
    bucket.delete(key)
    refusal = await commands.refused("restore", unique_name, "--as", "x", *at)
    assert f"{bucket.uri}/{key}: it is not there" in refusal
    bucket.put(key, whole)
    assert await ledgers(uri) == before
    with harmful(bucket.url) as proxy:
        harmed = BackupCommand(uri, bucket.uri, bucket.environment(proxy.url))
        proxy.rule = times(100, EXPIRED, lambda asked: asked.path.endswith(".entries"))
        refusal = await harmed.refused("restore", unique_name, "--as", "x", *at)
        assert "the credentials have expired" in refusal
        no_secret(refusal)
    assert await ledgers(uri) == before, "what was written is deleted"
    for place in (f"s3://me:{SECRETS[1]}@{bucket.name}/b", f"{bucket.uri}/b?secret_key={SECRETS[1]}"):
        code, _, errors = await commands.run("backup", "list", "--place", place)
        assert code == 2
        assert "holds a secret" in errors
        no_secret(errors)
