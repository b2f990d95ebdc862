"""Three machines from `rsm init-cluster`, run by the commands of their units: killed, cut off, replaced, upgraded."""

from __future__ import annotations

import configparser
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.machines import MachineNode, Machines
from tests.integration.namespaces import why_not
from tests.integration.next_version import NEXT_LEVEL

_ROOT = Path(__file__).resolve().parents[2]
_ACK_S_MAX = 240


class Site:
    """A cluster's files, its machines, and a caller on one more machine."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.files = machines.folder / "cluster"
        self.hosts = [machines.address(name) for name in ("a", "b", "c")]
        places = ["--etc", str(machines.etc), "--state", str(machines.state)]
        rsm = ["--rsm", str(Path(sys.executable).with_name("rsm"))]
        zoned = [f"{host}@{zone}" for host, zone in zip(self.hosts, ("north", "south", "east"), strict=True)]
        self.init(*zoned, "--services", "store,gateway,console", *places, *rsm)
        self.environment = self._operators_environment()
        self.acked = 0
        self._acks: queue.Queue[int] = queue.Queue()

    def init(self, *words: str) -> list[str]:
        command = [sys.executable, "-m", "rsm_spark", "init-cluster", *words, "-o", str(self.files), "--json"]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(said.stdout)["changed"]

    def _operators_environment(self) -> dict[str, str]:
        script = ". ./env.sh && env -0"
        shown = subprocess.run(
            ["sh", "-c", script], cwd=self.files / "operator", capture_output=True, check=True
        ).stdout
        pairs = (pair.partition("=") for pair in shown.decode().split("\0") if pair)
        return {**{name: value for name, _, value in pairs}, "PYTHONPATH": str(_ROOT)}

    def place(self) -> None:
        """Set the rule for the places of copies that the files of the cluster say."""
        said = self.operate("cluster", "set-placement", str(self.files / "operator" / "placement.toml"))
        assert said.returncode == 0, said.stderr
        assert "at least 3 zones" in said.stdout

    def start(self, name: str, release: Path | None = None) -> MachineNode:
        """Run what the machine's unit runs; of another release, if its folder is named."""
        folder = self.files / self.machines.address(name)
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment]
        unit.read_string((folder / "rsm-node.service").read_text())
        command = unit["Service"]["ExecStart"].split()
        if release is not None:
            command = ["env", f"PYTHONPATH={release}:{_ROOT}", *command]
        return self.machines.start(name, folder / "etc", *command)

    def stop(self, node: MachineNode) -> None:
        """End a machine's processes as its unit does."""
        node.process.terminate()
        node.hear(lambda line: "all processes have ended" in line)
        assert node.process.wait(60) == 0

    def operate(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `rsm` as the operator, on the machine of the caller."""
        command = [sys.executable, "-m", "rsm_spark", *words]
        return subprocess.run(
            self._at_caller(*command), capture_output=True, text=True, check=False, env=self.environment
        )

    def _at_caller(self, *words: str) -> list[str]:
        return self.machines.command("caller", self.files / "operator", "env", "-C", str(_ROOT), *words)

    def ask(self, url: str) -> dict[str, Any]:
        """Return what a page tells the caller."""
        command = self._at_caller(sys.executable, "-m", "tests.integration.machine_callers", "ask", url)
        said = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_ACK_S_MAX, env=self.environment
        )
        answer: dict[str, Any] = json.loads(said.stdout)
        return answer

    def write(self) -> subprocess.Popen[str]:
        """Begin to write the map for ever."""
        command = self._at_caller(sys.executable, "-m", "tests.integration.machine_callers", "write", "map")
        with (self.machines.folder / "caller.log").open("wb") as log:
            caller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment)
        threading.Thread(target=self._listen, args=(caller.stdout,), daemon=True).start()
        return caller

    def _listen(self, pipe) -> None:
        for line in pipe:
            self._acks.put(int(line))

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more puts are acknowledged."""
        for _ in range(self._acks.qsize() + count):
            try:
                self.acked = self._acks.get(timeout=_ACK_S_MAX) + 1
            except queue.Empty:
                log = (self.machines.folder / "caller.log").read_text()[-2_000:]
                raise AssertionError(f"after {self.acked} puts none is acknowledged any more: {log}") from None

    def read_all(self) -> None:
        command = self._at_caller(
            sys.executable, "-m", "tests.integration.machine_callers", "read", "map", str(self.acked)
        )
        subprocess.run(command, check=True, timeout=_ACK_S_MAX, env=self.environment)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with Machines(tmp_path, ["a", "b", "c", "d", "caller"]) as machines:
        yield Site(machines)


def _serves(node: MachineNode) -> None:
    node.hear(lambda line: ": store is ready" in line)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_when_a_machine_is_killed_cut_off_or_replaced(site: Site) -> None:
    nodes = {name: site.start(name) for name in ("a", "b", "c")}
    for node in nodes.values():
        _serves(node)
    site.place()
    caller = site.write()
    try:
        site.wait_for_more(20)

        nodes["a"].kill()
        site.wait_for_more(20)
        nodes["a"] = site.start("a")
        _serves(nodes["a"])
        site.wait_for_more(20)

        site.machines.unplug("b")
        site.wait_for_more(20)
        site.machines.plug_in("b")
        site.wait_for_more(20)

        nodes["c"].kill()
        shutil.rmtree(site.machines.folder / "state-of-c")
        changed = site.init("--replace", f"{site.hosts[2]}={site.machines.address('d')}")
        assert f"{site.hosts[0]}/etc/zookeeper.toml" in changed
        nodes["d"] = site.start("d")
        for name in ("a", "b"):
            site.stop(nodes[name])
            nodes[name] = site.start(name)
            _serves(nodes[name])
        _serves(nodes["d"])
        site.environment = site._operators_environment()
        site.place()
        _decommissioned(site, site.hosts[2])
        site.wait_for_more(20)
    finally:
        caller.kill()
        caller.wait()
    site.wait_for_more(0)
    site.read_all()
    assert site.acked > 120
    status = site.operate("status", "--log", "map", "--json")
    assert status.returncode == 0, status.stderr
    assert site.machines.address("d") in status.stdout
    _the_consoles_show_it_and_change_nothing(site)


def _decommissioned(site: Site, bookie_id: str) -> None:
    """Take a bookie out that was killed; it counts as serving until its session with ZooKeeper has ended."""
    deadline = time.monotonic() + _ACK_S_MAX
    while True:
        gone = site.operate("cluster", "decommission", bookie_id, "--wait", "--for", "240", "--json")
        if gone.returncode == 0:
            return
        assert "some ten seconds: then ask again" in gone.stderr, gone.stdout + gone.stderr
        assert time.monotonic() < deadline, gone.stderr
        time.sleep(1)


def _the_consoles_show_it_and_change_nothing(site: Site) -> None:
    zones = {"a": "north", "b": "south", "d": "east"}
    expected = {site.machines.address(one): ("writable", zone) for one, zone in zones.items()}
    for name in ("a", "d"):
        deadline = time.monotonic() + _ACK_S_MAX
        while True:  # Bookies are looked at now and then: what was taken out is shown for a while.
            view = site.ask(f"https://{site.machines.address(name)}:8088/api/v1/view")
            shown = {one["bookie_id"]: (one["state"], one["zone"]) for one in view["bookies"]}
            if shown == expected:
                break
            assert time.monotonic() < deadline, shown
        (log,) = view["logs"]
        assert (view["problem"], log["problem"], log["log"]) == ("", "", "map")
        assert {one["replica_id"] for one in log["replicas"]} == {site.machines.address(one) for one in ("a", "b", "d")}
        assert not any(one["problem"] for one in log["replicas"]), log
    etc = site.files / site.machines.address("a") / "etc"
    site.environment |= {"RSM_STORE__TOKEN_FILE": str(etc / "console.token")}
    assert site.operate("map", "get", "--log", "map", "k000000").returncode == 0
    refused = site.operate("map", "put", "--log", "map", "k000000", "mine")
    assert refused.returncode != 0
    assert "console@" in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_when_machines_get_a_new_release_one_after_the_other(site: Site) -> None:
    release = site.machines.folder / "release"
    release.mkdir()
    (release / "sitecustomize.py").write_text("from tests.integration.next_version import install\n\ninstall()\n")
    raising = ("log", "raise-format", "map", "--level", str(NEXT_LEVEL), "--json")
    nodes = {name: site.start(name) for name in ("a", "b", "c")}
    for node in nodes.values():
        _serves(node)
    caller = site.write()
    try:
        site.wait_for_more(20)
        for name in ("a", "b", "c"):
            refused = site.operate(*raising)
            assert refused.returncode != 0
            assert f"not every live replica knows format level {NEXT_LEVEL}" in refused.stderr
            site.stop(nodes[name])
            nodes[name] = site.start(name, release)
            _serves(nodes[name])
            site.wait_for_more(20)
            whole = site.operate("cluster", "wait", "--for", "240", "--json")
            assert whole.returncode == 0, whole.stdout + whole.stderr
            assert json.loads(whole.stdout)["bookies"] == len(nodes)
        raised = site.operate(*raising)
        assert raised.returncode == 0, raised.stderr
        assert json.loads(raised.stdout)["format_level"] == NEXT_LEVEL
        site.wait_for_more(20)
    finally:
        caller.kill()
        caller.wait()
    site.wait_for_more(0)
    site.read_all()
    assert site.acked > 90
    led = site.operate("log", "leaders", "map", "--json")
    assert led.returncode == 0, led.stderr
    ends = [json.loads(line)["before_ended"] for line in led.stdout.splitlines()]
    assert ends[0] is None
    assert "stopped" in ends
    status = site.operate("status", "--log", "map", "--json")
    assert status.returncode == 0, status.stderr
