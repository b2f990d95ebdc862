"""Histories of etcd's own client over replicas that are killed and stopped: linearizable, and watched as written."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from tests.compat.go_programs import GoMissingError, build_go
from tests.integration.etcd_calls import EtcdCalls
from tests.integration.store_processes import stores
from tests.integration.test_etcd_api import start, until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(1_800)]

_OPERATIONS = 3_000
_LOAD_S_MAX = 900


async def test_what_clients_see_is_linearizable_while_leaders_die_and_stand_still(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    try:
        program = await asyncio.to_thread(build_go, "etcd", "linear", tmp_path)
    except GoMissingError as error:
        pytest.skip(f"the load cannot be built: {error}")
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        addresses = [start(replicas, name) for name in "abc"]
        with EtcdCalls(addresses[0]) as calls:
            until(lambda: calls.get(b"a"))
        load = subprocess.Popen(  # noqa: ASYNC220 - it is waited for elsewhere
            [program, ",".join(addresses), str(_OPERATIONS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert load.stdout is not None
            assert await asyncio.to_thread(load.stdout.readline) == "step\n", load.communicate()[1]
            frozen = await replicas.leader()
            frozen.pause()
            leader = await replicas.leader()
            while leader is frozen:
                leader = await replicas.leader()
            frozen.resume()
            assert await asyncio.to_thread(load.stdout.readline) == "step\n", load.communicate()[1]
            leader = await replicas.leader()
            replicas.gone(leader.replica_id).kill()
            said, failed = await asyncio.to_thread(load.communicate, timeout=_LOAD_S_MAX)
        finally:
            load.kill()
            load.wait()
        print(said)
        assert load.returncode == 0, failed[-2_000:]
        assert "linearizable: " in said
