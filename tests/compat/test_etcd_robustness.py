"""etcd's own robustness traffic on replicas that are killed and stopped, judged by etcd's own model.

`go/etcd_robustness` runs the traffic of their robustness tests, from Go's modules, on endpoints that are there already;
their model says whether the history is linearizable, their rules whether watches told all of it, in order, once.

Skipped where Go or the modules cannot be had. More faults: `RSM_ROBUSTNESS_FAULTS=20`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from tests.compat.go_programs import GoMissingError, build_go
from tests.integration.etcd_calls import EtcdCalls
from tests.integration.store_processes import Stores, stores
from tests.integration.test_etcd_api import until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(1_800)]

_FAULTS = int(os.environ.get("RSM_ROBUSTNESS_FAULTS", "3"))
_STEP = 150
"""Changes between two faults."""
_STEP_S_MAX = 300
_JUDGE_S_MAX = 900
_CALLS_MIN = 500
_PLANTED_MIN = 3
"""Faults that were put into the history, and found: of five, those that the traffic has a place for."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_go("etcd_robustness", "judge", tmp_path_factory.mktemp("go"))
    except GoMissingError as error:
        pytest.skip(f"etcd's robustness tests cannot be built: {error}")


class _Judged:
    """The traffic, as a process.

    Args:
        program: `judge`.
        traffic: "etcd", "delete" or "kubernetes".
        addresses: Of replicas.
        folder: For what it complains of.

    """

    def __init__(self, program: Path, traffic: str, addresses: list[str], folder: Path) -> None:
        self._complaints = folder / "judge.log"
        with self._complaints.open("wb") as told:
            self._process = subprocess.Popen(
                [program, traffic, str(_STEP), ",".join(addresses)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True,
            )  # fmt: skip

    async def step(self) -> None:
        """Wait until it has changed so much more."""
        stdout = self._process.stdout
        assert stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(stdout.readline), _STEP_S_MAX)
        assert line == "step\n", self._said()

    async def judge(self) -> dict[str, Any]:
        """End the traffic; return what was judged to be right."""
        said, _ = await asyncio.to_thread(self._process.communicate, "end\n", timeout=_JUDGE_S_MAX)
        assert self._process.returncode == 0, self._said()
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    def _said(self) -> str:
        return self._complaints.read_text(errors="replace")[:6_000]

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


async def _fault(replicas: Stores, number: int) -> None:
    """Stop the leader until another one leads; every other time kill it, and start it again."""
    leader = await replicas.leader()
    if number % 2:
        replicas.gone(leader.replica_id).kill()
        await replicas.leader()
        await asyncio.to_thread(replicas.start, leader.replica_id)
        return
    leader.pause()
    try:
        while (await replicas.leader()) is leader:
            pass
    finally:
        leader.resume()


@pytest.mark.parametrize("traffic", ["etcd", "delete", "kubernetes"])
async def test_etcds_own_model_finds_nothing_wrong_while_leaders_die_and_stand_still(
    traffic: str, judge: Path, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        addresses = [replicas.start_with_etcd(name) for name in "abc"]
        with EtcdCalls(addresses[0]) as calls:
            until(lambda: calls.get(b"key"))
        judged = _Judged(judge, traffic, addresses, tmp_path)
        try:
            for number in range(_FAULTS):
                await judged.step()
                await _fault(replicas, number)
            await judged.step()
            found = await judged.judge()
        finally:
            judged.end()
    print(found)
    assert found["calls"] >= _CALLS_MIN
    assert found["events"] >= (_FAULTS + 1) * _STEP
    assert found["planted"] >= _PLANTED_MIN
