"""`rsm node run`: a machine's processes are started in order, started again, ended in order, and die with it."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.dev.ports import HOST, choose_port
from rsm_spark.map import MapClient

pytestmark = pytest.mark.timeout(300)
_WAIT_S = 120


class NodeProcessOf:
    """`rsm node run` on a folder, and what it has said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports: list[int] = []
        for _ in range(3):
            ports.append(choose_port(taken=ports))
        self.uri = f"zk+hierarchical://{HOST}:{ports[0]}/ledgers"
        self.url = f"http://{HOST}:{ports[2]}"
        (folder / "zookeeper.toml").write_text(f'data_dir = "{folder}/zookeeper"\nport = {ports[0]}\nheap_mib = 96\n')
        (folder / "bookie.toml").write_text(f'data_dir = "{folder}/bookie"\nport = {ports[1]}\n')
        (folder / "orders.toml").write_text(
            f'data_dir = "{folder}/orders"\nlog = "orders"\nbookies = "1/1/1"\nsingle_copy = true\n'
        )
        (folder / "node.toml").write_text(
            f'name = "a"\nhttp_port = {ports[2]}\n[environment]\nRSM_METADATA_URI = "{self.uri}"\n'
            '[[process]]\nkind = "zookeeper"\n[[process]]\nkind = "bookie"\n'
            '[[process]]\nkind = "store"\nname = "orders"\n[process.environment]\nRSM_STORE__REPLICA_ID = "b"\n'
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "rsm_spark", "node", "run", "--config", f"{self.folder}/node.toml", "--json"]
        with (self.folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, pipe) -> None:
        for line in pipe:
            self.lines.put(json.loads(line)["line"])

    def hear(self, is_it: Callable[[str], bool]) -> str:
        """Wait for a line."""
        while True:
            try:
                line = self.lines.get(timeout=_WAIT_S)
            except queue.Empty:
                raise AssertionError(f"it said {self.said}, see {self.folder}/node.log") from None
            self.said.append(line)
            if is_it(line):
                return line

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:  # noqa: S310 - our own
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def processes(self) -> dict[str, dict]:
        return {one["name"]: one for one in json.loads(self.page("/status")[1])["processes"]}

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcessOf]:
    made = NodeProcessOf(tmp_path)
    try:
        yield made
    finally:
        made.close()


def _gone(pids: list[int]) -> None:
    """Wait until these processes have ended; they are no children of this one, so the system reaps them."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue
            assert select.select([descriptor], [], [], 60)[0], f"{pid} lives on"
        finally:
            os.close(descriptor)


@pytest.mark.asyncio
async def test_a_machine_starts_what_dies_again_and_ends_in_order_or_all_at_once(node: NodeProcessOf) -> None:
    node.hear(lambda line: line.startswith("orders is ready"))
    started = [line.split()[0] for line in node.said if " started, pid " in line]
    assert started == ["zookeeper", "bookie", "orders"]
    assert node.page("/readyz") == (200, "ready\n")
    before = node.processes()
    assert [one["state"] for one in before.values()] == ["ready"] * 3
    variables = {name: Path(f"/proc/{one['pid']}/environ").read_bytes() for name, one in before.items()}
    assert [name for name, all_of_it in variables.items() if b"RSM_STORE__REPLICA_ID=b" in all_of_it] == ["orders"]
    async with await MapClient.connect("orders", node.uri) as orders:
        await orders.put(b"k", b"1")

        os.kill(before["orders"]["pid"], signal.SIGKILL)
        assert "was ended by SIGKILL; starts again in 1 s" in node.hear(lambda line: "starts again" in line)
        node.hear(lambda line: line.startswith("orders is ready"))
        await orders.put(b"k", b"2")
    after = node.processes()
    assert (after["orders"]["restarts"], after["bookie"]["pid"]) == (1, before["bookie"]["pid"])
    assert 'rsm_node_restarts_total{process="orders"} 1' in node.page("/metrics")[1]

    node.process.send_signal(signal.SIGTERM)
    node.hear(lambda line: line == "all processes have ended")
    assert node.process.wait(60) == 0
    ended = [line.split()[0] for line in node.said if " ended with exit code " in line or " was ended by " in line]
    assert ended[-3:] == ["orders", "bookie", "zookeeper"]
    _gone([one["pid"] for one in after.values()])

    node.start()
    node.hear(lambda line: line.startswith("orders is ready"))
    pids = [one["pid"] for one in node.processes().values()]
    async with await MapClient.connect("orders", node.uri) as orders:
        assert (await orders.get(b"k")).value == b"2"
    node.process.kill()
    node.process.wait(60)
    _gone(pids)


def test_a_file_that_names_what_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[[process]]\nkind = "bookie"\n')
    for words in ("run", "check"):
        command = [sys.executable, "-m", "rsm_spark", "node", words, "--config", str(tmp_path / "node.toml")]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith("rsm: ")
        assert "there is no file" in said.stderr
    (tmp_path / "bookie.toml").write_text("prot = 1\n")
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, "did you mean 'port'" in said.stderr) == (2, True)
