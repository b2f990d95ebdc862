"""The runbook of docs/operations.md: each fault is caused, then its commands are run as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.dev.ports import HOST, choose_port
from ledger.wire.codes import Status
from rsm_spark.deploy.certificates import SignedPair, sign
from rsm_spark.log.election import election_path
from rsm_spark.map.client.client import MapClient
from tests.hostile.forger import Attacker
from tests.integration.next_version import NEXT_LEVEL
from tests.integration.shifted_clock import OFFSET_S
from tests.integration.store_processes import Stores, stores

_TEXT = (Path(__file__).parents[2] / "docs" / "operations.md").read_text().partition("\n## Runbook\n")[2]
_SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^###? |\Z)", _TEXT, re.MULTILINE | re.DOTALL))
_FAULTS = {
    "A replica is lost with its disk",
    "A bookie is lost with its disk",
    "Taking a bookie out",
    "A bookie gets another address",
    "A bookie says that it is in limbo",
    "Two of three bookies are lost",
    "ZooKeeper is lost",
    "A snapshot is wrong",
    "A log holds an entry that is not its own",
    "A certificate has expired",
    "A machine's clock is wrong",
    "A new release is bad",
    "Bookies of a new release are bad",
    "A disk is full",
}
_BLOCKS = {
    "Taking a bookie out": 2,
    "A machine's clock is wrong": 2,
    "A new release is bad": 3,
    "Bookies of a new release are bad": 2,
}
"""Blocks of commands of a section, if not one. Those of bookies' releases run in `test_upgraded_bookies`."""
_DOCTORED = "rsm doctor"
"""Its exit code tells of the fault itself."""


class Site:
    """A cluster with a log `orders`, on two replicas unless told otherwise, and the machine of the operator."""

    def __init__(self, cluster: DevCluster, replicas: Stores, folder: Path) -> None:
        self.cluster = cluster
        self.replicas = replicas
        self.folder = folder
        self.variables = {"RSM_METADATA_URI": cluster.metadata_uri}
        self._running: list[subprocess.Popen[str]] = []

    def do(self, fault: str, replacing: dict[str, str] | None = None, number: int = 0) -> list[str]:
        """Run the commands of a section's block in order; return what each printed."""
        block = re.findall(r"```sh\n(.*?)```", _SECTIONS[fault], re.DOTALL)[number]
        printed = []
        for line in block.strip().splitlines():
            command = line.replace("/var/lib/rsm", str(self.folder))
            for old, new in (replacing or {}).items():
                command = command.replace(old, new)
            is_server = command.startswith(("rsm store run", "rsm bookie run"))
            printed.append(self.serve(command) if is_server else self._run(command))
        return printed

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, **self.variables}

    def ask(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail, if it does so in words."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def _run(self, command: str) -> str:
        done = self.ask(command)
        assert done.returncode == 0 or command.startswith(_DOCTORED), f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, command: str) -> str:
        """Start a server that ends with the site; return the line that it prints when it serves."""
        errors = self.folder / f"server-{len(self._running)}.log"
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [*shlex.split(command), "--json"],
                env=self._environment(),
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._running.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{command} ended with code {process.wait(60)}: {errors.read_text()}"
        return line

    def put(self, key: bytes) -> None:
        """Write a key through a client of its own."""

        async def run() -> None:
            async with await MapClient.connect("orders", self.cluster.metadata_uri) as client:
                await client.put(key, b"value", timeout_s=60)

        asyncio.run(run())

    def candidates(self) -> int:
        """Return how many replicas stand for election."""

        async def run() -> int:
            async with await LedgerClient.connect(self.cluster.metadata_uri) as client:
                return len(await client.store.children(election_path("orders")))

        return asyncio.run(run())

    def status(self) -> dict[str, Any]:
        """Return what `rsm status` says."""
        found: dict[str, Any] = json.loads(self._run("rsm status --log orders --json"))
        return found

    def stop_last(self) -> None:
        """Stop the server that was started last, in good order."""
        self._running[-1].terminate()
        self._running[-1].wait(120)

    def end(self) -> None:
        """End the servers that commands have started."""
        for process in self._running:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def site(start_cluster: Callable[..., DevCluster], tmp_path: Path) -> Iterator[Site]:
    cluster = start_cluster()
    with stores(cluster.metadata_uri, "orders", tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, "--snapshot-s", "1", "--verify-s", "1", "--trim-s", "1")
        site = Site(cluster, replicas, tmp_path)
        try:
            site.put(b"first")
            yield site
        finally:
            site.end()
    cluster.stop()  # Its servers would be a load on all tests that follow.


def _until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_runbook_names_every_fault_and_shows_commands() -> None:
    assert set(_SECTIONS) == _FAULTS
    assert all(text.count("```sh") == _BLOCKS.get(name, 1) for name, text in _SECTIONS.items())


def test_a_lost_replica_is_replaced_by_an_empty_one(site: Site) -> None:
    site.replicas.gone("a").kill()
    site.put(b"second")
    ready = json.loads(site.do("A replica is lost with its disk")[1])
    _until(lambda: all(one.get("behind") == 0 for one in site.status()["replicas"]))
    assert ready["replica_id"] in [one["replica_id"] for one in site.status()["replicas"]]


def test_a_lost_bookie_is_replaced_by_a_new_one(site: Site) -> None:
    site.cluster.kill_bookie(2)
    port = choose_port(taken=())
    printed = site.do("A bookie is lost with its disk", {"3184": str(port)})
    assert json.loads(printed[1])["ready"] is True
    site.put(b"second")


def test_a_bookie_is_taken_out(site: Site) -> None:
    started = site.serve(f"rsm bookie run --data-dir {site.folder}/more --port {choose_port(taken=())}")
    bookie_id = site.cluster.bookies[2]
    shown, _ = site.do("Taking a bookie out", {"10.0.0.3:3181": bookie_id})
    assert json.loads(started)["bookie_id"] in shown
    site.put(b"second")
    site.cluster.stop_bookie(2)
    _, status = site.do("Taking a bookie out", {"10.0.0.3:3181": bookie_id}, 1)
    assert bookie_id not in status
    site.put(b"third")


def test_a_bookie_with_a_name_moves(site: Site) -> None:
    site.serve(f"rsm bookie run --bookie-id shelf-1 --data-dir {site.folder}/bookie-1 --port {choose_port(taken=())}")
    site.stop_last()
    port = choose_port(taken=())
    said, shown = site.do("A bookie gets another address", {"3185": str(port)})
    assert json.loads(said)["address"] == f"127.0.0.1:{port}"
    assert f"shelf-1 at 127.0.0.1:{port}" in shown
    site.put(b"second")


def test_a_bookie_with_a_journal_that_was_cut_short_says_why_it_is_in_limbo(site: Site) -> None:
    site.put(b"second")
    folders = [site.cluster.data_dir / bookie.name for bookie in site.cluster.state.bookies]
    written = [sorted((folder / "journal" / "current").glob("*.j")) for folder in folders]
    number = next(number for number, journals in enumerate(written) if journals)  # Two of three were written to.
    folder, journal = folders[number], written[number][-1]
    site.cluster.kill_bookie(number)
    journal.write_bytes(journal.read_bytes()[:5_000])
    site.cluster.start_bookie(number)
    told = site.do("A bookie says that it is in limbo", {f"{site.folder}/bookie-1": str(folder)})[0]
    assert "repair" in told  # By now it may be done.
    logged = (site.cluster.data_dir / "logs" / f"{folder.name}.log").read_text()
    assert "is in limbo" in logged
    assert journal.name in logged
    site.put(b"third")


def test_two_lost_bookies_stop_the_log_until_one_is_back(site: Site) -> None:
    bookies = site.cluster.state.bookies
    for number in (1, 2):
        site.cluster.kill_bookie(number)
    folder = str(site.cluster.data_dir / bookies[1].name)
    port = str(bookies[1].port)
    site.do("Two of three bookies are lost", {f"{site.folder}/bookie-1": folder, "3182": port})


def test_puts_go_on_without_zookeeper_for_clients_that_have_a_leader(site: Site) -> None:
    site.cluster.kill_zookeeper()
    site.cluster.start_zookeeper()
    site.do("ZooKeeper is lost")
    assert site.status()["leader"] is not None


def test_a_wrong_snapshot_is_found_by_the_commands(site: Site) -> None:
    folder = site.folder / "a" / "snapshots"
    _until(lambda: len(list(folder.glob("0*/manifest.json"))) > 1)
    site.replicas.gone("a").stop()
    newest = max(path for path in folder.iterdir() if not path.name.startswith("."))
    rotten = next(newest.glob("*.parquet"))
    content = bytearray(rotten.read_bytes())
    content[len(content) // 2] ^= 1
    rotten.write_bytes(content)
    printed = site.do("A snapshot is wrong")
    assert newest.name in printed[0]
    assert "damaged" in printed[0]
    assert "whole" in printed[1]


def test_a_foreign_entry_is_set_aside_and_the_replicas_go_on(site: Site) -> None:
    attacker = Attacker(site.cluster, "orders")
    time.sleep(1.2)  # The idle leader tells how far the log is confirmed.
    for name in list(site.replicas.alive):
        site.replicas.gone(name).kill()
    assert set(asyncio.run(attacker.add(b"\xee" * 80))) == {Status.EOK}
    with suppress(AssertionError):  # It ends at once, or once it leads.
        site.replicas.start("a").process.wait(60)
    place = {"--ledger 17": f"--ledger {attacker.ledger_id}", "--entry 4211": f"--entry {attacker.entry_id}"}
    printed = site.do("A log holds an entry that is not its own", place)
    assert "is set aside: entry of 80 bytes is shorter than an envelope" in printed[0]
    assert f"entry {attacker.entry_id} is set aside: forged" in printed[1]
    site.replicas.start("a")
    site.put(b"after")


def test_an_expired_certificate_is_renewed_under_a_replica_that_runs(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster, etc = start_cluster(), tmp_path / "etc"
    with stores(cluster.metadata_uri, "orders", tmp_path) as replicas:
        site = Site(cluster, replicas, tmp_path)
        assert site.ask(f"rsm init-cluster {HOST} 10.0.0.2 10.0.0.3 -o cluster").returncode == 0
        shutil.copytree(tmp_path / "cluster" / HOST / "etc", etc)
        authority = SignedPair(
            *((tmp_path / "cluster" / "authority" / f"ca.{end}").read_bytes() for end in ("pem", "key"))
        )
        began = datetime.fromtimestamp(int(time.time()), UTC) - timedelta(days=10)
        for end, content in sign(authority, HOST, [HOST], began, 2)._asdict().items():
            (etc / f"host.{end.replace('cert', 'pem')}").write_bytes(content)
        files = {"tls-ca": "ca.pem", "tls-cert": "host.pem", "tls-key": "host.key", "token-file": "token"}
        options = [word for name, file in files.items() for word in (f"--{name}", str(etc / file))]
        beyond = ["--bind", "0.0.0.0", "--advertise", HOST, "--http-bind", "0.0.0.0", "--http-port", "0", "--unsigned"]
        ready = replicas.start("a", *options, *beyond).ready
        site.variables |= {"RSM_STORE__TLS_CA": str(etc / "ca.pem"), "RSM_STORE__TOKEN_FILE": str(etc / "token")}

        refused = site.ask("rsm map put --log orders --timeout 3 before renewal")
        assert (refused.returncode, "certificate has expired" in refused.stderr) == (6, True), refused.stderr
        assert "rsm init-cluster --renew" in site.ask("rsm doctor").stdout
        places = {"10.0.0.1:7210": f"{HOST}:{ready['http_address'].rpartition(':')[2]}", "10.0.0.1": HOST}
        printed = site.do("A certificate has expired", places)
        assert str(began.year) in printed[0]
        assert "200 ready" in printed[4]
        assert "has expired" not in site.ask("rsm doctor").stdout
        assert "certificate read again" in replicas.alive["a"].errors()
    cluster.stop()


def test_a_replica_with_a_wrong_clock_leaves_the_log_to_others_until_it_is_set_right(site: Site) -> None:
    fault, replicas = "A machine's clock is wrong", site.replicas
    replicas.gone("b").stop()
    replicas.start("c", command=("tests.integration.shifted_clock", "run"))
    _until(lambda: site.candidates() == 2)
    replicas.start("b")
    _until(lambda: site.candidates() == 3)
    replicas.gone("a").stop()  # The next in line is c.
    site.put(b"second")
    _until(lambda: bool(site.status()["alarms"]))
    assert site.status()["leader"] == "b"
    for told in site.do(fault)[:2]:
        assert f"the clock of replica c is {OFFSET_S}.0 s ahead of that of the metadata store" in told
    replicas.gone("c").stop()
    assert json.loads(site.do(fault, number=1)[0])["replica_id"] == "c"
    replicas.gone("b").stop()
    site.put(b"third")
    said = site.status()
    assert (said["leader"], said["alarms"]) == ("c", [])
    assert abs(time.time() * 1000 - said["replicas"][0]["logged_ms"]) < OFFSET_S * 500, "the wrong clock is in the log"


def test_a_release_goes_back_until_the_format_is_raised_and_then_a_backup_does(site: Site) -> None:
    fault, replicas, newer = "A new release is bad", site.replicas, ("tests.integration.next_version", "run")
    checked, described, _ = site.do(fault)
    assert "of machine map folds it" in checked
    assert json.loads(described)["format_level"] < NEXT_LEVEL
    replicas.gone("b").stop()
    replicas.start("b", command=newer)
    replicas.gone("a").stop()  # The new release leads, and writes.
    site.put(b"second")
    replicas.start("a")
    replicas.gone("b").stop()
    assert json.loads(site.do(fault, number=1)[0])["replica_id"] == "b"
    replicas.gone("a").stop()
    site.put(b"third")  # The older release leads again.

    site.stop_last()
    replicas.start("a", command=newer)
    raised = f"rsm log raise-format orders --level {NEXT_LEVEL}"
    _until(lambda: site.ask(raised).returncode == 0)
    replicas.gone("a").stop()
    with pytest.raises(AssertionError, match="a level once raised is never lowered"):
        replicas.start("b")
    printed = site.do(fault, number=2)
    assert "value" in printed[2]


def test_a_full_disk_is_seen_by_the_commands(site: Site) -> None:
    bookie = str(site.cluster.data_dir / site.cluster.state.bookies[0].name)
    printed = site.do("A disk is full", {f"{site.folder}/bookie-0": bookie})
    assert f"disk of {site.folder}" in printed[0]
