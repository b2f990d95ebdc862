"""The examples run as they stand, as processes on the development cluster."""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark import ServiceClient, at_least
from rsm_spark.errors import InvalidCommandError

ROOT = Path(__file__).parents[2]
_READY_S = 60


class Counter:
    """One `examples/counter.py`."""

    def __init__(self, metadata_uri: str, folder: Path, replica_id: str) -> None:
        self.replica_id = replica_id
        self.process = subprocess.Popen(
            [sys.executable, "examples/counter.py", replica_id, str(folder / replica_id)],
            cwd=ROOT,
            env={**os.environ, "RSM_METADATA_URI": metadata_uri, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(_READY_S), f"{replica_id} is not ready"
        said = self.process.stdout.readline().decode()
        assert said.startswith("serving on "), said
        self.address = said.split()[-1]

    def end(self) -> int:
        self.process.terminate()
        return self._reap(20)

    def kill(self) -> None:
        self.process.kill()
        self._reap(20)

    def _reap(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def counters(cluster: DevCluster, tmp_path: Path) -> Iterator[dict[str, Counter]]:
    started = [Counter(cluster.metadata_uri, tmp_path, replica_id) for replica_id in ("a", "b")]
    running = {counter.address: counter for counter in started}
    yield running
    for counter in running.values():
        assert counter.end() == 0


def test_the_counter_is_short() -> None:
    lines = (ROOT / "examples" / "counter.py").read_text().split('"""', 2)[2].splitlines()
    assert len([line for line in lines if line.strip() and '"""' not in line]) <= 35


def test_the_counter_counts_on_when_its_leader_is_killed(cluster: DevCluster, counters: dict[str, Counter]) -> None:
    async def count() -> None:
        async with await ServiceClient.connect("counters", cluster.metadata_uri) as client:
            assert [reply.payload for reply in await client.execute_many([b"visits"] * 3)] == [b"1", b"2", b"3"]
            with pytest.raises(InvalidCommandError, match="UnicodeDecodeError"):
                await client.execute(b"\xff")
            counters.pop(client.address).kill()
            assert (await client.execute(b"visits")).payload == b"4"
            answer = await client.query(b"visits")
            assert answer.payload == b"4"
            assert answer.revision > 4
            assert (await client.query(b"nobody")).payload == b"0"
        (left,) = counters.values()
        async with await ServiceClient.connect("counters", replica=left.address) as client:
            assert (await client.query(b"visits", read=at_least(answer.revision))).payload == b"4"

    asyncio.run(count())


def test_the_commands_of_the_page_serve_and_call_it(start_cluster, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    cluster: DevCluster = start_cluster(bookie_count=2)
    block = next(
        block
        for block in re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "store.md").read_text(), re.DOTALL)
        if "rsm serve" in block
    )
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RSM_METADATA_URI": cluster.metadata_uri,
    }
    script = block.replace("dev/", f"{tmp_path}/") + "kill %1 %2; wait\n"
    done = subprocess.run(
        ["bash", "-mc", script], env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    said = [line for line in done.stdout.splitlines() if "ctrl-C ends it" not in line]
    assert said == ["1", "1"], f"{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
