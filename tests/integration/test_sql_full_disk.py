"""A replica of SQL tables whose disk runs full: a small file system of its own, filled by what clients write."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.sql import BlockingSqlClient, SqlError
from tests.integration.store_processes import Stores, stores
from tests.integration.test_sql_commands import PATIENT, SQL

_SIZE_MIB = 24
_ROOM_MIB = 256
_ROW = "INSERT INTO t VALUES (?, zeroblob(200000))"
_ROWS = 160
_REFUSED_MAX = 5
_WAIT_S = 120.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={_SIZE_MIB}m", "none", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _start(replicas: Stores, name: str) -> None:
    replicas.start(name, *PATIENT, "--snapshot-s", "0", command=SQL)


def _grow(folder: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,size={_ROOM_MIB}m", str(folder)], check=True)


def _seen(client: BlockingSqlClient) -> list[int]:
    return [number for (number,) in client.query("SELECT id FROM t ORDER BY id").rows]


def _alarms(replicas: Stores, name: str) -> str:
    status: dict[str, Any] = asyncio.run(replicas.alive[name].status())
    return " ".join(status["alarms"])


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_leader_whose_disk_is_full_gives_way_and_goes_on_when_there_is_room(
    cluster: DevCluster, unique_name: str, small_disk: Path, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        _start(replicas, "a")
        asyncio.run(replicas.leader())
        _start(replicas, "b")
        written, refused = [], []
        with BlockingSqlClient.connect(unique_name, cluster.metadata_uri, timeout_s=60) as client:
            client.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
            for number in range(_ROWS):  # More than the disk of a has room for: b takes over on the way.
                try:
                    client.execute(_ROW, (number,))
                    written.append(number)
                except SqlError as error:
                    refused.append((number, str(error)))
            assert asyncio.run(replicas.leader()).replica_id == "b"
            assert all("disk of the leader is full" in text for _, text in refused), refused
            assert len(refused) <= _REFUSED_MAX, refused
            _wait(lambda: "disk is full" in _alarms(replicas, "a"), "the replica without room says so")
            assert str(small_disk / "tables.db") in _alarms(replicas, "a")
            assert replicas.alive["a"].process.poll() is None, replicas.alive["a"].errors()
            assert _seen(client) == written, "what was acknowledged is there, what was refused is not"

            # A process that begins without room waits likewise.
            replicas.gone("a").kill()
            _start(replicas, "a")
            _wait(lambda: "disk is full" in _alarms(replicas, "a"), "the next process says so too")
            _grow(small_disk)
            revision = client.transaction([(_ROW, (_ROWS,))]).revision
            written.append(_ROWS)
            asyncio.run(replicas.agree(revision, timeout_s=_WAIT_S))
            assert "room" not in _alarms(replicas, "a")
        with BlockingSqlClient.connect(unique_name, replica=replicas.alive["a"].address, timeout_s=60) as alone:
            assert _seen(alone) == written
