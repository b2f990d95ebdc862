"""Code that came with a task sees, signals, reaches and fills nothing but its own; its neighbours go on."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from broker.machine.statuses import Outcome, TaskStatus
from broker.worker.executors.children import ChildLimits
from broker.worker.jail.jails import JailSettings, MachineJail, machine_jail
from broker.worker.jail.support import JailSupport
from tests.hostile import jailed_code
from tests.hostile.victim import Victim, Work
from tests.unit.broker.worker.archives import pool
from tests.unit.broker.worker.listening import run
from tests.unit.broker.worker.served_code import Served, handlers, pools

pytestmark = pytest.mark.asyncio
HERE = machine_jail(JailSettings().uid_base).support
CODE = Path(jailed_code.__file__).read_text()


def enemy(*, network: bool = False) -> bytes:
    return pool({"enemy.py": CODE}, *(f"enemy:{name}" for name in jailed_code.__all__), network=network)


def served() -> Served:
    """Serve an enemy's code and an honest neighbour's."""
    made = Served(1_000_000)
    made.archives = {"enemy": enemy(), "online": enemy(network=True), "good": handlers("1")}
    return made


@contextmanager
def listening() -> Iterator[int]:
    """Listen on loopback, and greet whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connected, _ = server.accept()
                except OSError:
                    return
                with connected:
                    connected.sendall(b"welcome")

        threading.Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1]


def ways() -> Iterator[MachineJail]:
    """Return what can be made of this machine's means: all of it, and the jails of containers that forbid more."""
    machine = machine_jail(JailSettings().uid_base)
    yield machine
    if machine.support.has_namespaces and machine.support.landlock_abi:
        support = msgspec.structs.replace(machine.support, has_namespaces=False, has_own_user=False)
        if not support.missing:
            yield msgspec.structs.replace(machine, support=support)


WAYS = list(ways())


class _NoCgroups:
    """Of a machine where none may be made."""

    def make(self, _name: str, **_bounds: int) -> list[str]:
        return []

    def remove(self, _name: str) -> None:
        """Nothing was made."""


def without_cgroups(machine: MachineJail) -> MachineJail:
    """Leave to the jail itself what cgroups would end."""
    return MachineJail(machine.support, _NoCgroups())  # type: ignore[arg-type]


@pytest.mark.skipif(bool(HERE.missing), reason=f"this kernel: {HERE}")
@pytest.mark.parametrize("machine", WAYS, ids=lambda machine: str(machine.support)[:40])
async def test_jailed_code_sees_no_secret_no_process_and_no_port(
    machine: MachineJail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.worker.jail.jails.machine_jail", lambda _: machine)
    secrets = [tmp_path / "cluster.token", tmp_path / "key.pem", tmp_path / "data" / "tasks.parquet"]
    (tmp_path / "data").mkdir()
    for file in secrets:
        file.write_text("a secret")
        file.chmod(0o644)  # Even where nobody took care.
    target = tmp_path / "data" / "written"
    with listening() as port:
        wanted = {
            "reads": [*map(str, secrets), "/etc/passwd", "/proc/1/environ", str(Path.cwd() / "pyproject.toml")],
            "writes": [str(target), "/usr/lib/written", "/etc/written", "/dev/shm/../written", "/pool/code/enemy.py"],
            "pids": [os.getpid(), os.getppid()],
            "ports": [port],
        }
        async with pools(served(), tmp_path / "code") as (made, heard):
            made.run([run(1, "x", json.dumps(wanted).encode(), code="enemy", mode="enemy:look")])
            end = await heard.end_of(1)
            assert end.status == TaskStatus.FINISHED, end.error
            found = json.loads(end.result)
            got = {what: outcome for what, outcome in found.items() if outcome.startswith("GOT")}
            # Its own first process may have this number.
            got = {what: outcome for what, outcome in got.items() if what != "read /proc/1/environ"}
            assert not got, got
            assert len(found) == 25
            assert not target.exists()
            made.run([run(2, "x", b"%d" % port, code="enemy", mode="enemy:reach")])
            assert (await heard.end_of(2)).status == TaskStatus.ERROR
        # The same code without a jail has it all: what was not got above was there to be got.
        async with pools(served(), tmp_path / "code", jail=JailSettings(is_code_trusted=True)) as (made, heard):
            made.run([run(1, "x", json.dumps(wanted).encode(), code="enemy", mode="enemy:look")])
            found = json.loads((await heard.end_of(1)).result)
            tried = [f"read {secrets[0]}", f"write {target}", f"signal {os.getpid()}", f"connect {port}"]
            assert all(found[what].startswith("GOT") for what in tried), found


@pytest.mark.skipif(not HERE.has_namespaces, reason=f"this kernel: {HERE}")
async def test_each_child_is_alone_in_its_namespaces_and_a_user_of_its_own(tmp_path: Path) -> None:
    async with pools(served(), tmp_path) as (made, heard):
        made.run([run(number, "x", code="enemy", mode="enemy:stay") for number in (1,)])
        await heard.word_of(1)
        made.run(
            [run(2, "x", code="enemy", mode="enemy:pids_of_mine"), run(3, "x", code="good", mode="handlers:where")]
        )
        found = json.loads((await heard.end_of(2)).result)
        assert found["pids"] == [1, 2]
        assert found["pid"] == 2
        if HERE.has_own_user:
            assert found["uid"] >= JailSettings().uid_base


@pytest.mark.skipif(bool(HERE.missing), reason=f"this kernel: {HERE}")
async def test_the_network_is_there_for_code_that_asks_for_it_and_was_granted_it(tmp_path: Path) -> None:
    with listening() as port:
        async with pools(served(), tmp_path) as (made, heard):
            made.run([run(1, "x", b"%d" % port, code="online", mode="enemy:reach")])
            end = await heard.end_of(1)
            assert end.outcome == Outcome.REFUSED
            assert "--grant-network online" in end.error
        granted = JailSettings(networks=("on*",))
        async with pools(served(), tmp_path, jail=granted) as (made, heard):
            made.run([run(1, "x", b"%d" % port, code="online", mode="enemy:reach")])
            made.run([run(2, "x", b"%d" % port, code="enemy", mode="enemy:reach")])
            assert (await heard.end_of(1)).result == b"welcome"
            assert (await heard.end_of(2)).status == TaskStatus.ERROR


_CALLS = 20
ATTACKS = {"fork bomb": "enemy:fork_bomb", "memory": "enemy:hog", "disk": "enemy:spill"}


@pytest.mark.skipif(bool(HERE.missing), reason=f"this kernel: {HERE}")
@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_code_takes_is_bounded_and_its_neighbour_goes_on(attack: str, tmp_path: Path) -> None:
    jail = JailSettings(memory_bytes=192 * 1024 * 1024, scratch_bytes=16 * 1024 * 1024)
    numbers = iter(range(10, 100_000))
    async with pools(served(), tmp_path, jail=jail, children=ChildLimits(cancel_s=0.5)) as (made, heard):

        async def call() -> None:
            number = next(numbers)
            made.run([run(number, "x", b"!", code="good", mode="handlers:version")])
            assert (await heard.end_of(number)).result == b"1!"

        await call()
        work, victim = Work(), Victim(call, servers=[os.getpid()])
        quiet = await victim.run(_CALLS)
        made.run([run(1, "x", code="enemy", mode=ATTACKS[attack], timeout_ms=20_000)])
        ending = asyncio.create_task(heard.end_of(1))
        work.ends_with(ending)
        attacked = await victim.run(_CALLS, beside=work)
        end = await ending
        attacked.assert_goes_on_like(quiet)
        match attack:
            case "fork bomb":
                assert int(end.result) < jail.processes
            case "disk":
                # Without a mount of its own what bounds it is the size of a file.
                assert 0 < int(end.result) <= jail.scratch_bytes * (1 if HERE.has_namespaces else 100)
            case _:
                assert end.status == TaskStatus.ERROR
                assert "MemoryError" in end.error or "ProcessDied" in end.error


@pytest.mark.skipif(bool(HERE.missing), reason=f"this kernel: {HERE}")
async def test_a_run_that_burns_processor_time_without_end_is_ended_and_a_child_that_has_used_much_is_replaced(
    tmp_path: Path,
) -> None:
    async with pools(served(), tmp_path, jail=JailSettings(cpu_s=1)) as (made, heard):
        made.run([run(1, "x", b"600", code="enemy", mode="enemy:spin")])
        # Together these two use more than one process may, and each as much as a run may count on.
        for number in (3, 4):
            made.run([run(number, "x", b"1.1", code="enemy", mode="enemy:spin")])
            end = await heard.end_of(number)
            assert (end.status, end.result) == (TaskStatus.FINISHED, b"done"), end.error
        burnt = await heard.end_of(1)
        assert burnt.status == TaskStatus.ERROR
        assert "SIGXCPU" in burnt.error
        assert "--code-cpu-s" in burnt.error


@pytest.mark.skipif(bool(HERE.missing), reason=f"this kernel: {HERE}")
@pytest.mark.parametrize("way", range(len(WAYS)), ids=lambda way: str(WAYS[way].support)[:40])
async def test_what_code_leaves_behind_ends_with_its_child(
    way: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.worker.jail.jails.machine_jail", lambda _: without_cgroups(WAYS[way]))
    mark = f"left-by-{os.getpid()}-{time.monotonic_ns()}"
    async with pools(served(), tmp_path) as (made, heard):
        made.run([run(1, "x", mark.encode(), code="enemy", mode="enemy:burn")])
        assert (await heard.end_of(1)).result == b"left"
        async with asyncio.timeout(60):
            while len(marked(mark)) != 1:  # Until it is the program that it was started as.
                await asyncio.sleep(0.05)
    async with asyncio.timeout(60):
        while marked(mark):
            await asyncio.sleep(0.05)


_DYING = """
import asyncio, sys
from pathlib import Path
from broker.worker.jail import jails
from tests.hostile.test_jail import WAYS, served, without_cgroups
from tests.unit.broker.worker.listening import run
from tests.unit.broker.worker.served_code import pools

jails.machine_jail = lambda _: without_cgroups(WAYS[int(sys.argv[3])])

async def main():
    async with pools(served(), Path(sys.argv[1])) as (made, heard):
        made.run([run(1, "x", sys.argv[2].encode(), code="enemy", mode="enemy:burn")])
        await heard.end_of(1)
        made.run([run(2, "x", code="enemy", mode="enemy:stay")])
        await heard.word_of(2)
        print("up", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(bool(HERE.missing), reason=f"this kernel: {HERE}")
@pytest.mark.parametrize("way", range(len(WAYS)), ids=lambda way: str(WAYS[way].support)[:40])
async def test_a_jail_dies_with_its_worker(way: int, tmp_path: Path) -> None:
    mark = f"orphan-of-{os.getpid()}-{time.monotonic_ns()}"
    worker = subprocess.Popen([sys.executable, "-c", _DYING, str(tmp_path), mark, str(way)], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert await asyncio.to_thread(worker.stdout.readline) == b"up\n"
    async with asyncio.timeout(60):
        while len([pid for pid in marked(mark) if pid != worker.pid]) != 1:
            await asyncio.sleep(0.05)
    worker.kill()
    worker.wait()
    worker.stdout.close()
    async with asyncio.timeout(60):
        while marked(mark):
            await asyncio.sleep(0.05)


async def test_where_no_jail_can_be_made_code_is_refused_unless_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = machine_jail(JailSettings().uid_base)
    bare = msgspec.structs.replace(machine, support=JailSupport(reasons=("namespaces: not permitted",)))
    monkeypatch.setattr("broker.worker.jail.jails.machine_jail", lambda _: bare)
    async with pools(served(), tmp_path) as (made, heard):
        made.run([run(1, "x", code="good", mode="handlers:version")])
        end = await heard.end_of(1)
        assert end.outcome == Outcome.REFUSED
        assert "neither namespaces nor Landlock" in end.error
        assert "namespaces: not permitted" in end.error
        assert "--trust-code" in caplog.text
    async with pools(served(), tmp_path, jail=JailSettings(is_code_trusted=True)) as (made, heard):
        made.run([run(1, "x", code="good", mode="handlers:version")])
        assert (await heard.end_of(1)).result == b"1"


@pytest.mark.skipif(bool(HERE.missing), reason=f"this kernel: {HERE}")
async def test_what_code_prints_is_bounded_and_cannot_play_with_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = (
        "import sys\n"
        "def f(c, p):\n"
        "    print('\\x1b[2Jfirst')\n"
        "    sys.stdout.write('x' * 50_000_000)\n"
        "    sys.stdout.flush()\n"
        "    return b'said'\n"
    )
    made_of = Served(100_000)
    made_of.archives = {"loud": pool({"loud.py": source}, "loud:f")}
    async with pools(made_of, tmp_path) as (made, heard):
        made.run([run(1, "x", code="loud", mode="loud:f")])
        assert (await heard.end_of(1)).result == b"said"
    printed = capfd.readouterr().err
    assert "[2Jfirst" in printed
    assert "\x1b" not in printed
    assert len(printed) < 1_000_000


def marked(mark: str) -> list[int]:
    """Return the processes with this word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found
