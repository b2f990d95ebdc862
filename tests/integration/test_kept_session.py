"""Commands of a shell share a session: two at once, killed ones, one that has ended, and leaders that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.files.limits import PART_BYTES_MAX
from tests.integration.file_stores import SERVE
from tests.integration.store_processes import StoreProcess, Stores, stores

pytestmark = pytest.mark.asyncio


class Shell:
    """A user's shell: commands of one log, and the folder where they keep sessions."""

    def __init__(self, replicas: Stores, state: Path, kind: str = "map") -> None:
        self._kind = kind
        self._options = ("--log", replicas.log, "--metadata-uri", replicas.metadata_uri, "--json", "--timeout", "60")
        self._environment = os.environ | {"XDG_STATE_HOME": str(state)}
        self.sessions = state / "rsm-spark" / "sessions"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rsm_spark", self._kind, *words, *self._options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._environment)

    async def run(self, *words: str) -> dict[str, Any]:
        return await told(self.start(*words))

    @property
    def kept(self) -> list[str]:
        """The sessions that files hold."""
        return [json.loads(path.read_bytes())["session"] for path in sorted(self.sessions.iterdir())]

    async def has_begun(self, process: subprocess.Popen[bytes], before: bytes) -> None:
        """Wait until a command has taken the one session, and so is about to send."""
        (path,) = self.sessions.iterdir()
        while path.read_bytes() == before:
            assert process.poll() is None, await told(process)
            await asyncio.sleep(0.01)

    @property
    def content(self) -> bytes:
        (path,) = self.sessions.iterdir()
        return path.read_bytes()


async def told(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return what a command has printed."""
    output, errors = await asyncio.to_thread(process.communicate, timeout=120)
    assert process.returncode == 0, errors.decode()
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.fixture
def replicas(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[Stores]:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as found:
        yield found


async def revision_of(store: StoreProcess) -> int:
    return int((await store.status())["revision"])


async def test_one_session_serves_commands_one_after_the_other_and_reads_need_none(
    replicas: Stores, tmp_path: Path
) -> None:
    store = replicas.start("a")
    shell = Shell(replicas, tmp_path / "state")
    assert (await shell.run("put", "k", "1"))["revision"] == await revision_of(store)
    (session,) = shell.kept
    at = await revision_of(store)
    assert (await shell.run("get", "k"))["value"] == "1"
    assert (await shell.run("put", "k", "2"))["revision"] == at + 1
    assert (await shell.run("cas", "k", "3", "--expect", "2"))["revision"] == at + 2
    assert (await shell.run("incr", "n"))["value"] == 1
    assert (await shell.run("delete-range", "--prefix", "n"))["keys"] == 1
    assert await revision_of(store) == at + 4
    assert shell.kept == [session]
    # Of commands at once each has a session; those are kept, too: nothing is opened that no file has.
    for _ in range(2):
        at_once = [shell.start("incr", "together") for _ in range(3)]
        assert all([(await told(one))["revision"] for one in at_once])
    assert (await shell.run("incr", "together"))["value"] == 7
    opened = len(set(shell.kept)) - 1
    assert await revision_of(store) == at + 4 + 7 + opened


async def test_commands_of_a_file_store_share_a_session(replicas: Stores, tmp_path: Path) -> None:
    replicas.start("a", "--http-port", "0", command=SERVE)
    shell = Shell(replicas, tmp_path / "state", "files")
    source = tmp_path / "today.csv"
    source.write_bytes(b"x" * (2 * PART_BYTES_MAX + 1))
    await shell.run("mkdir", "/reports")
    (session,) = shell.kept  # A command that opens another one leaves that.
    await shell.run("put", str(source), "/reports/new.csv")
    assert shell.kept == [session]
    await shell.run("mv", "/reports/new.csv", "/reports/today.csv")
    await shell.run("quota", "/reports", "--names", "5")
    summed = await shell.run("du", "/reports")
    assert summed["size_bytes"] == summed["size"] == source.stat().st_size
    await shell.run("rm", "/reports/today.csv")
    shown = await shell.run("ls", "/")
    assert (shown["name"], shown["size_bytes"]) == ("reports", 0)
    assert shell.kept == [session]


async def test_a_session_that_has_ended_is_opened_anew(replicas: Stores, tmp_path: Path) -> None:
    store = replicas.start("a", "--session-ttl-ms", "300")
    shell = Shell(replicas, tmp_path / "state")
    at = (await shell.run("incr", "n"))["revision"]
    before = shell.kept
    while await revision_of(store) == at:  # A record says that it has ended.
        await asyncio.sleep(0.02)
    assert (await shell.run("incr", "n"))["value"] == 2
    assert len({*before, *shell.kept}) == 2


async def test_a_killed_command_is_made_once_or_not_at_all_and_never_later(replicas: Stores, tmp_path: Path) -> None:
    store = replicas.start("a")
    shell = Shell(replicas, tmp_path / "state")
    acknowledged = (await shell.run("incr", "n"))["value"]
    for _ in range(2):
        before = shell.content
        store.pause()
        killed = shell.start("incr", "n")
        await shell.has_begun(killed, before)
        killed.kill()
        await asyncio.to_thread(killed.communicate)
        store.resume()
        value = (await shell.run("incr", "n"))["value"]
        assert value - acknowledged in (1, 2)
        assert (await shell.run("incr", "n"))["value"] == value + 1, "nothing arrives behind the next command"
        acknowledged = value + 1


async def test_a_leader_that_is_killed_costs_no_command_and_doubles_none(replicas: Stores, tmp_path: Path) -> None:
    for name in "ab":
        replicas.start(name)
    shell = Shell(replicas, tmp_path / "state")
    assert (await shell.run("incr", "n"))["value"] == 1
    for value in (2, 3):
        leader = await replicas.leader()
        before = shell.content
        running = shell.start("incr", "n")
        await shell.has_begun(running, before)
        leader.kill()
        assert (await told(running))["value"] == value
        replicas.gone(leader.replica_id)
        replicas.start(leader.replica_id)
    assert (await shell.run("get", "n"))["value"] == "3"
