"""A log of the release before there were keys: taken over process by process, its format raised, and given a key.

The older release is what git has of it, in a folder of its own; its replicas are whole processes. Until the format is
raised the way back is open; from then on the older release says what it lacks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.older_release import BEFORE_KEYS, older_release
from tests.integration.store_processes import StoreProcess, Stores, stores

pytestmark = pytest.mark.asyncio

_ROOT = Path(__file__).parents[2]
_OLDER_STORE = ("rsm_spark.store", "run")
_OPTIONS = ("--bookies", "3/3/2", "--checkpoint-records", "10", "--snapshot-s", "2")
_KEEPING = (*_OPTIONS, "--keep-version")
"""Options that leave the way back open."""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Return a folder with the older release."""
    return older_release(BEFORE_KEYS, tmp_path / "older")


def _rsm(replicas: Stores, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "rsm_spark", *arguments]
    if "--file" not in arguments:
        command += ["--metadata-uri", replicas.metadata_uri]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, cwd=_ROOT)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def _start_older(replicas: Stores, older: Path, name: str) -> StoreProcess:
    store = replicas.alive[name] = StoreProcess(
        replicas.metadata_uri,
        replicas.log,
        replicas.folder,
        name,
        *_OPTIONS,
        prefix=("env", "-C", str(older)),
        command=_OLDER_STORE,
    )
    return store


async def _put(replicas: Stores, value: bytes, count: int = 25) -> None:
    """Write; every replica has to follow."""
    async with await MapClient.connect(replicas.log, replicas.metadata_uri, timeout_s=60) as client:
        for number in range(count):
            revision = await client.put(b"k%d" % number, value)
    said = await replicas.agree(revision, timeout_s=60)
    assert len({one["digest"] for one in said}) == 1, said


@pytest.mark.slow
async def test_a_log_from_before_keys_is_upgraded_and_given_one_while_it_is_written(
    cluster: DevCluster, unique_name: str, tmp_path: Path, older: Path
) -> None:
    key, public = tmp_path / "log.key", tmp_path / "log.pub"
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        for name in "abc":
            _start_older(replicas, older, name)
        await _put(replicas, b"older")
        for name in "abc":
            replicas.gone(name).stop()
            replicas.start(name, *_KEEPING)
            await _put(replicas, b"mixed")
            if name == "a":  # One of the others leads.
                said = _rsm(replicas, "log", "raise-format", unique_name)
                assert "format level 1" in said
                assert "does not: upgrade it" in said
        replicas.gone("c").stop()  # One step back, and forward again.
        _start_older(replicas, older, "c")
        await _put(replicas, b"back")
        said = _rsm(replicas, "log", "raise-format", unique_name, "--level", "2", code=1)
        assert "c (level 1)" in said
        replicas.gone("c").stop()
        replicas.start("c", *_KEEPING)
        assert "format level 2" in _rsm(replicas, "log", "raise-format", unique_name, "--level", "2")
        replicas.gone("a").stop()
        with pytest.raises(AssertionError, match="it has format level 2, this version knows up to 1: start a newer"):
            _start_older(replicas, older, "a")
        replicas.start("a", *_OPTIONS)
        _rsm(replicas, "log", "key", "new", "--file", str(key))
        public.write_text(_rsm(replicas, "log", "key", "show-public", "--file", str(key)))
        assert "was given no key" in _rsm(replicas, "log", "key", "adopt", unique_name, code=1)
        for name in "abc":
            replicas.gone(name).stop()
            replicas.start(name, *_OPTIONS, "--log-key", str(key))
        await _put(replicas, b"not sealed yet")
        _rsm(replicas, "log", "key", "adopt", unique_name)
        await _put(replicas, b"sealed")
        leader = await replicas.leader()
        replicas.gone(leader.replica_id).kill()
        await _put(replicas, b"sealed by the next")
        proof = json.loads(_rsm(replicas, "log", "verify", unique_name, "--public-key", str(public), "--json"))
        assert (proof["first_revision"], proof["unknown_keys"]) == (1, [])
        assert proof["signatures"] >= 4
        assert proof["proven_revision"] > proof["last_revision"] - 20
        with pytest.raises(AssertionError, match="lacks the log's key .*--log-key FILE"):
            replicas.start("d", *_OPTIONS)
        replicas.start("e", *_OPTIONS, "--log-key", str(key))
        await _put(replicas, b"all of it, from its first record on")
