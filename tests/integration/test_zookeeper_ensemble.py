"""`rsm zookeeper run`: three real servers with TLS between them, and what holds when one of them is killed."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.dev.ports import HOST, choose_port
from ledger.tls import TlsSettings
from ledger.zookeeper.session import connect
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.timeout(300)
_START_S = "90"


class Ensemble:
    """Three servers on ports of loopback, each with a file as `rsm zookeeper run --conf` takes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder, "authority")
        signed = self.authority.sign("server")
        ports: list[int] = []
        for _ in range(9):
            ports.append(choose_port(taken=ports))
        self.addresses = [f"{HOST}:{port}" for port in ports[:3]]
        servers = ",".join(f"{n + 1}={HOST}:{ports[3 + n]}:{ports[6 + n]}" for n in range(3))
        for n in range(3):
            values = {
                "data_dir": str(folder / f"zk-{n + 1}"),
                "port": ports[n],
                "server_id": n + 1,
                "servers": servers,
                "heap_mib": 96,
                "tls_cert": signed["cert"],
                "tls_key": signed["key"],
                "tls_ca": self.authority.ca,
            }
            lines = (f"{key} = {json.dumps(value)}\n" for key, value in values.items())
            (folder / f"{n + 1}.toml").write_text("".join(lines))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        command = [
            sys.executable,
            "-m",
            "ledger.zookeeper_server",
            "run",
            "--conf",
            str(self.folder / f"{number}.toml"),
        ]
        with (self.folder / f"{number}.log").open("ab") as log:
            self.processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, number: int, by: int = signal.SIGKILL) -> int:
        self.processes[number].send_signal(by)
        return self.processes.pop(number).wait(60)

    def is_ready(self, number: int, wait_s: str = _START_S) -> bool:
        conf = ["--conf", str(self.folder / f"{number}.toml"), "--wait-s", wait_s, "--json"]
        command = [sys.executable, "-m", "ledger.zookeeper_server", "ready", *conf]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        answer: bool = json.loads(said.stdout)["ready"]
        assert said.returncode == (0 if answer else 1)
        return answer

    def tls(self) -> TlsSettings:
        return TlsSettings(ca=self.authority.ca, **self.authority.sign("client"))


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    made = Ensemble(tmp_path)
    try:
        yield made
    finally:
        for number in list(made.processes):
            made.kill(number)


@pytest.mark.asyncio
async def test_an_ensemble_serves_while_two_of_three_live_and_keeps_what_it_took(ensemble: Ensemble) -> None:
    ensemble.start(1)
    assert not ensemble.is_ready(1, "2"), "one of three serves nobody"
    for number in (2, 3):
        ensemble.start(number)
    for number in (1, 2, 3):
        assert ensemble.is_ready(number), (ensemble.folder / f"{number}.log").read_text()[-4000:]
    tls = ensemble.tls()
    store = await connect(ensemble.addresses, session_timeout_ms=4_000, tls=tls)
    await store.create("/kept", b"1")
    await store.close()

    ensemble.kill(2)
    store = await connect([ensemble.addresses[0], ensemble.addresses[2]], session_timeout_ms=4_000, tls=tls)
    await store.set("/kept", b"2", 0)
    await store.close()
    ensemble.start(2)
    assert ensemble.is_ready(2)
    store = await connect([ensemble.addresses[1]], session_timeout_ms=4_000, tls=tls)
    await store.sync("/kept")
    assert (await store.get("/kept")).value == b"2"
    await store.close()

    ensemble.kill(1)
    assert ensemble.kill(3, signal.SIGTERM) in (143, 0)
    deadline = time.monotonic() + 60
    while ensemble.is_ready(2, "0"):
        assert time.monotonic() < deadline, "it serves alone"
    ensemble.start(1)
    assert ensemble.is_ready(1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        ensemble.processes[1].wait(0)


@pytest.mark.asyncio
async def test_one_of_three_that_is_left_gives_its_data_to_an_empty_one_and_both_serve(ensemble: Ensemble) -> None:
    for number in (1, 2, 3):
        ensemble.start(number)
    assert all(ensemble.is_ready(number) for number in (1, 2, 3))
    tls = ensemble.tls()
    store = await connect([ensemble.addresses[0]], session_timeout_ms=4_000, tls=tls)
    await store.create("/kept", b"1")
    await store.close()
    for number in (2, 3):
        ensemble.kill(number)
        shutil.rmtree(ensemble.folder / f"zk-{number}")
    deadline = time.monotonic() + 60
    while ensemble.is_ready(1, "0"):
        assert time.monotonic() < deadline, "it serves alone"
    for number in (2, 3):  # Not both before one of them has the data: empty ones are a majority too.
        ensemble.start(number)
        assert ensemble.is_ready(number)
    store = await connect([ensemble.addresses[2]], session_timeout_ms=4_000, tls=tls)
    await store.sync("/kept")
    assert (await store.get("/kept")).value == b"1"
    await store.close()


def test_a_stranger_with_a_certificate_of_another_authority_is_no_server(ensemble: Ensemble, tmp_path: Path) -> None:
    ensemble.start(1)
    other = tmp_path / "other"
    other.mkdir()
    stranger = Authority(other, "stranger")
    conf = ensemble.folder / "2.toml"
    signed = stranger.sign("server")
    text = conf.read_text().replace(ensemble.authority.ca, stranger.ca)
    for name in ("cert", "key"):
        own = next(line for line in text.splitlines() if line.startswith(f"tls_{name} "))
        text = text.replace(own, f"tls_{name} = {json.dumps(signed[name])}")
    conf.write_text(text)
    ensemble.start(2)
    assert not ensemble.is_ready(1, "8"), "two servers of two authorities are no majority"
    ensemble.start(3)
    assert ensemble.is_ready(1)
    assert not ensemble.is_ready(2, "0")
