"""The kit's real cluster for tests of users: replicas in this process, and as processes that are killed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from ledger.errors import UsageError
from rsm_spark.errors import MachineVersionError, RsmError
from rsm_spark.testing import LocalCluster
from tests.integration.rolled_bank import Bank1, Bank2, Rigid

pytestmark = pytest.mark.asyncio
_MODULE = "tests.integration.rolled_bank"


async def test_replicas_in_this_process_are_called_handed_over_and_rolled(cluster: DevCluster) -> None:
    async with LocalCluster(Bank1, metadata_uri=cluster.metadata_uri) as bank:
        folder = bank._folder
        async with await bank.client() as client:
            assert (await client.execute(b"ann 1")).payload == b"1"
            leader = await bank.leader()
            with pytest.raises(UsageError, match="in this process"):
                await bank.kill(leader)
            with pytest.raises(UsageError, match=f"replica {leader} of log {bank.log} runs"):
                await bank.start(leader)
            for name in bank.replicas:
                await bank.stop(name)
                await bank.start(name, Bank2)
                assert (await client.execute(b"ann 2")).revision <= await bank.agree()
            assert (await client.query(b"ann")).payload == b"4"
            await bank.stop("a")
            assert bank.replicas == ["b", "c"]
            with pytest.raises(UsageError, match="replica a of log .* does not run; b, c do"):
                await bank.status("a")
    assert not folder.exists()


async def test_replicas_that_are_processes_are_killed_and_come_back() -> None:
    async with LocalCluster(f"{_MODULE}:Bank1", replicas=2, bookies=2, options=("--snapshot-s", "2")) as bank:
        assert bank.servers is not None
        pids = bank.servers.pids()
        async with await bank.client(timeout_s=60) as client:
            for number in range(1, 4):
                assert (await client.execute(b"ann %d" % number)).payload == b"%d" % number
                leader = await bank.leader()
                await bank.kill(leader)
                await bank.start(leader)
            await bank.agree()
        with pytest.raises(RsmError, match="ended at its start: .*ModuleNotFoundError"):
            await bank.start("c", "nowhere:Bank")
        assert bank.replicas == ["a", "b"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())


async def test_the_test_of_the_page_passes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)  # noqa: S102 - the page's own code
    await names["test_another_replica_goes_on"]()


async def test_what_cannot_start_leaves_nothing_behind(cluster: DevCluster) -> None:
    class Broken(Bank1):
        def __init__(self) -> None:
            raise RuntimeError("cannot be made")

    bank = LocalCluster(Broken, metadata_uri=cluster.metadata_uri)
    with pytest.raises(RuntimeError, match="cannot be made"):
        await bank.__aenter__()
    assert not bank._folder.exists()


async def test_a_machine_that_cannot_follow_refuses_a_newer_log_before_it_serves(cluster: DevCluster) -> None:
    async with LocalCluster(Bank2, metadata_uri=cluster.metadata_uri, replicas=1) as bank:
        async with await bank.client() as client:
            await client.execute(b"ann 1")
        with pytest.raises(MachineVersionError, match="is of version 2 of machine 'bank', this replica runs version 1"):
            await bank.start("older", Rigid)
        assert bank.replicas == ["a"]
        await bank.start("another", Bank1)
        await bank.agree()
