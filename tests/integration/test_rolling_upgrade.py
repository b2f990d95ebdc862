"""A rolling upgrade: replicas of two versions on one log, restarted one after the other while clients work.

The present version and one that knows the next format level; both are whole processes. The new one writes as the old
one reads until an operator raises the level, which is refused while an old one is a member; until then the way back is
open.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.core.envelope import body_of
from rsm_spark.core.records import FORMAT_LEVEL, KernelRecord, decode_records
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.map.client.client import MapClient
from tests.integration.next_version import NEW_TYPE, NEXT_LEVEL
from tests.integration.recorded_callers import RecordedCallers, check_calls
from tests.integration.store_processes import StoreProcess, Stores, stores

pytestmark = pytest.mark.asyncio

OLD, NEW = "rsm_spark.map", "tests.integration.next_version"
OPTIONS = ("--snapshot-s", "2", "--checkpoint-records", "200", "--session-timeout-ms", "2000")


async def _raise_format(replicas: Stores, *options: str) -> tuple[int, dict[str, Any], str]:
    command = ["log", "raise-format", replicas.log, "--json", "--metadata-uri", replicas.metadata_uri, *options]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "rsm_spark", *command],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}, done.stderr


async def _restart(replicas: Stores, callers: RecordedCallers, name: str, module: str) -> None:
    """Replace one replica's process by one of another version; go on when calls are answered again and it is there."""
    assert await asyncio.to_thread(replicas.gone(name).stop) == 0
    await asyncio.to_thread(replicas.start, name, *OPTIONS, command=(module, "run"))
    leader = await replicas.leader()
    await asyncio.to_thread(callers.wait_for_more, 50)
    wanted = (await leader.status())["revision"]
    async with asyncio.timeout(60):
        while (await replicas.alive[name].status())["revision"] < wanted:
            await asyncio.sleep(0.05)


async def _types_up_to(replicas: Stores, revision: int) -> list[int]:
    """Return the types of all records of the log."""
    types: list[int] = []
    async with await LedgerClient.connect(replicas.metadata_uri) as client:
        reader = LogReader(client, ChainStore(client.store, replicas.log))
        while reader.revision < revision:
            for entry in await reader.read():
                types += [record.type for record in decode_records(body_of(entry.payload))]
        await reader.close()
    return types


async def _upgrade(replicas: Stores, callers: RecordedCallers) -> None:
    """Followers first; the leader last, and once more as the old version: a new one leads then."""
    told, level = ("--level", str(NEXT_LEVEL)), FORMAT_LEVEL
    first = (await replicas.leader()).replica_id
    others = [name for name in "abc" if name != first]
    for name in others:
        code, _, said = await _raise_format(replicas, *told)
        assert code != 0
        assert f"{name} (level {level})" in said
        await _restart(replicas, callers, name, NEW)
    await _restart(replicas, callers, first, OLD)  # It reads on where a leader of the new version has written.
    assert (await replicas.leader()).replica_id in others
    code, _, said = await _raise_format(replicas)
    assert code != 0
    assert f"{first} (level {level}). Upgrade them first" in said
    await _restart(replicas, callers, first, NEW)
    code, answer, said = await _raise_format(replicas)
    assert (code, answer.get("format_level")) == (0, NEXT_LEVEL), said
    await asyncio.to_thread(callers.wait_for_more, 100)


@pytest.mark.slow
async def test_replicas_of_two_versions_work_together_until_the_last_old_one_is_gone(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, *OPTIONS)
        callers = RecordedCallers(cluster.metadata_uri, unique_name, tmp_path, seed=1)
        try:
            await asyncio.to_thread(callers.wait_for_more, 50)
            await _upgrade(replicas, callers)
            calls = await asyncio.to_thread(callers.end)
        finally:
            callers.kill()
        with pytest.raises(AssertionError, match=f"has format level {NEXT_LEVEL}, this version knows up to"):
            await asyncio.to_thread(StoreProcess, cluster.metadata_uri, unique_name, tmp_path, "late", *OPTIONS)
        check_calls(calls, callers.path)
        async with await MapClient.connect(unique_name, cluster.metadata_uri, timeout_s=60) as client:
            revision = await client.put(b"end", b"")
        await asyncio.to_thread(replicas.start, "fresh", *OPTIONS, "--follow-only", command=(NEW, "run"))
        said = await replicas.agree(revision, timeout_s=60)
        assert len({one["digest"] for one in said}) == 1, said
        types = await _types_up_to(replicas, revision)
        raised = types.index(KernelRecord.FORMAT_RAISED)
        assert types.count(KernelRecord.FORMAT_RAISED) == 1
        assert NEW_TYPE not in types[:raised], "the new version wrote what the old one cannot read"
        assert types.count(NEW_TYPE) > 10
        print(f"{callers.answered_count} calls answered, {callers.unknown_count} of unknown outcome")
