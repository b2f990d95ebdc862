"""The development cluster with real processes: start, crash, restart on the same data, end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ledger.dev import ClusterError, DevCluster, ports
from ledger.dev.errors import ClusterBusyError, PortTakenError, ProcessDiedError
from ledger.dev.process import identify, is_alive
from ledger.dev.state import cluster_lock, read_state
from ledger.dev.supervisor import Supervisor
from ledger.exit_codes import ExitCode


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Yield a data directory whose cluster is ended after the test, whatever happened."""
    path = tmp_path / "cluster"
    yield path
    if read_state(path) is not None:
        DevCluster(path).stop()


@pytest.fixture
def bookkeeper(data_dir: Path) -> Iterator[DevCluster]:
    """Yield a ZooKeeper without bookies."""
    with DevCluster(data_dir, bookie_count=0) as running:
        yield running


def _write(cluster: DevCluster, path: str, value: bytes) -> None:
    client = KazooClient(cluster.zookeeper)
    client.start()
    client.create(path, value)
    client.stop()
    client.close()


def _read(cluster: DevCluster, path: str) -> bytes:
    client = KazooClient(cluster.zookeeper)
    client.start()
    value = client.get(path)[0]
    client.stop()
    client.close()
    return value


def _rsm(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rsm_spark", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    process = _rsm(*arguments)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_data_and_ports_survive_down_and_up(data_dir: Path) -> None:
    with DevCluster(data_dir, bookie_count=0) as first:
        address = first.zookeeper
        _write(first, "/kept", b"value")
    with DevCluster(data_dir) as second:
        assert second.zookeeper == address
        assert _read(second, "/kept") == b"value"


def test_data_survive_a_crash_of_zookeeper(bookkeeper: DevCluster) -> None:
    _write(bookkeeper, "/kept", b"value")
    bookkeeper.kill_zookeeper()
    assert bookkeeper.pids() == {}
    bookkeeper.start_zookeeper()
    assert _read(bookkeeper, "/kept") == b"value"


def test_a_second_up_on_the_same_directory_is_refused_while_the_first_runs(bookkeeper: DevCluster) -> None:
    with pytest.raises(ClusterError, match="runs already"):
        DevCluster(bookkeeper.data_dir).start()
    assert "zookeeper" in bookkeeper.pids()


def test_a_second_up_is_refused_while_the_first_is_starting(data_dir: Path) -> None:
    data_dir.mkdir()
    with cluster_lock(data_dir), pytest.raises(ClusterBusyError, match="at work"):
        DevCluster(data_dir, bookie_count=0).start()


def test_a_port_taken_by_another_program_is_named(data_dir: Path) -> None:
    with DevCluster(data_dir, bookie_count=0) as first:
        address = first.zookeeper
    host, port = address.split(":")
    with socket.create_server((host, int(port))), pytest.raises(PortTakenError, match=address):
        DevCluster(data_dir).start()


def test_down_never_ends_a_process_that_got_the_recorded_pid(bookkeeper: DevCluster) -> None:
    bookkeeper.kill_zookeeper()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        path = bookkeeper.data_dir / "cluster.json"
        state = json.loads(path.read_bytes())
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        state["zookeeper"]["process"] = {"pid": stranger.pid, "started_ticks": 1, "boot_id": boot_id}
        path.write_text(json.dumps(state))
        assert DevCluster(bookkeeper.data_dir).stop() == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_state_file_from_before_a_reboot_does_not_hinder_up(data_dir: Path) -> None:
    with DevCluster(data_dir, bookie_count=0) as first:
        pid = first.pids()["zookeeper"]
        state = json.loads((data_dir / "cluster.json").read_bytes())
    state["zookeeper"]["process"]["boot_id"] = "another boot"
    (data_dir / "cluster.json").write_text(json.dumps(state))
    with DevCluster(data_dir) as second:
        assert second.pids()["zookeeper"] != pid


def test_a_start_that_fails_ends_what_it_started(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = DevCluster(data_dir, bookie_count=1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ClusterError):
        cluster.start()
    assert cluster.pids() == {}
    assert cluster.state.zookeeper.process is None


def test_a_server_that_dies_while_it_starts_is_reported_with_its_last_words(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "echo listening on nothing >&2; exec sleep 0.2"
    monkeypatch.setattr("ledger.zookeeper_server.server.zookeeper_command", lambda _: ["/bin/sh", "-c", broken])
    with pytest.raises(ProcessDiedError, match="zookeeper ended while it started: listening on nothing"):
        DevCluster(data_dir, bookie_count=0).start()


def test_an_old_java_is_refused_in_one_line(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ClusterError, match=r"Java 1\.8\.0_402: install Java 17"):
        DevCluster(data_dir, bookie_count=0).start()


def test_a_foreign_zookeeper_is_used_and_never_ended(bookkeeper: DevCluster, tmp_path: Path) -> None:
    with DevCluster(tmp_path / "other", bookie_count=0, zookeeper_address=bookkeeper.zookeeper) as other:
        assert other.zookeeper == bookkeeper.zookeeper
        assert other.pids() == {}
    assert "zookeeper" in bookkeeper.pids()


def test_a_zookeeper_that_does_not_answer_is_named(data_dir: Path) -> None:
    address = f"127.0.0.1:{ports.choose_port(taken=())}"
    with pytest.raises(ClusterError, match=f"no ZooKeeper answers at {address}"):
        DevCluster(data_dir, bookie_count=0, zookeeper_address=address).start()


def test_up_detached_prints_one_line_and_down_ends_it(data_dir: Path) -> None:
    up = _run("up", "--bookies", "0", "--data-dir", str(data_dir), "--json", "--detach")
    assert up.returncode == 0, up.stderr
    line = json.loads(up.stdout)
    assert line["ready"] is True
    assert line["metadata_uri"] == f"zk+hierarchical://{line['zookeeper']}/ledgers"
    assert line["bookies"] == []
    assert Path(line["log_key"]).stat().st_mode & 0o777 == 0o600
    ps = json.loads(_run("ps", "--data-dir", str(data_dir), "--json").stdout)
    assert ps == line
    process = identify(line["pids"]["zookeeper"])
    down = _run("down", "--data-dir", str(data_dir), "--json")
    assert json.loads(down.stdout)["ended"] == ["zookeeper"]
    assert not is_alive(process)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_in_the_foreground_ends_the_cluster_on_a_signal(data_dir: Path, number: int) -> None:
    earlier = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a child inherits it if it is ignored, as in the background
    try:
        process = _rsm("up", "--bookies", "0", "--data-dir", str(data_dir), "--json")
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["ready"] is True
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert DevCluster(data_dir).pids() == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP], ids=["killed", "hung up"])
def test_servers_end_with_an_up_in_the_foreground_however_it_ends(data_dir: Path, number: int) -> None:
    process = _rsm("up", "--bookies", "1", "--data-dir", str(data_dir), "--json")
    assert process.stdout is not None
    servers = [identify(pid) for pid in json.loads(process.stdout.readline())["pids"].values()]
    assert len(servers) == 2
    process.send_signal(number)
    process.communicate(timeout=60)
    _wait_until(lambda: not any(map(is_alive, servers)))
    with DevCluster(data_dir) as again:  # The data stay, and nothing is left that would be in the way.
        assert len(again.pids()) == 2


def test_what_a_program_holds_ends_with_it_and_what_outlives_it_does_not(tmp_path: Path) -> None:
    script = f"""
import asyncio, os, sys
from pathlib import Path
from ledger.dev.process import spawn
from rsm_demo.child import Child

sleep = [sys.executable, "-c", "import time; time.sleep(600)"]

async def main():
    child = await Child.start("sleeper", sleep, log_dir=Path({str(tmp_path)!r}))
    held = spawn(sleep, log=Path({str(tmp_path / "log")!r}), env=os.environ)
    free = spawn(sleep, log=Path({str(tmp_path / "log")!r}), env=os.environ, outlives=True)
    print(child.pid, held.pid, free.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
    program = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    child, held, free = (identify(int(pid)) for pid in program.stdout.readline().split())
    try:
        assert all(map(is_alive, (child, held, free)))
        program.kill()
        program.communicate()
        _wait_until(lambda: not is_alive(child) and not is_alive(held))
        assert is_alive(free)
    finally:
        os.kill(free.pid, signal.SIGKILL)


def test_up_in_the_foreground_returns_when_down_ends_the_cluster(data_dir: Path) -> None:
    process = _rsm("up", "--bookies", "0", "--data-dir", str(data_dir), "--json")
    assert process.stdout is not None
    process.stdout.readline()
    assert _run("down", "--data-dir", str(data_dir)).returncode == 0
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_up_in_the_foreground_starts_a_server_again_and_tells_why(data_dir: Path) -> None:
    process = _rsm("up", "--bookies", "0", "--data-dir", str(data_dir), "--json")
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())["pids"]
    try:
        os.kill(pids["zookeeper"], signal.SIGKILL)
        _wait_until(lambda: DevCluster(data_dir).pids().get("zookeeper", pids["zookeeper"]) != pids["zookeeper"])
        _wait_until(lambda: len(DevCluster(data_dir).pids()) == len(pids))
        # What is ended on purpose stays ended.
        _wait_until(lambda: _run("down", "--data-dir", str(data_dir)).returncode == 0)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    assert DevCluster(data_dir).pids() == {}
    for name, pid in pids.items():
        assert f"{name} (" in err
        assert f"pid {pid}) died" in err
        assert f"{name} runs again" in err


def test_up_detached_leaves_a_supervisor_that_starts_a_killed_server_again(data_dir: Path) -> None:
    up = _run("up", "--bookies", "1", "--data-dir", str(data_dir), "--json", "--detach")
    assert up.returncode == 0, up.stderr
    line = json.loads(up.stdout)
    processes = [identify(pid) for pid in (*line["pids"].values(), line["supervisor"])]
    for name in ("bookie-1", "zookeeper"):
        os.kill(line["pids"][name], signal.SIGKILL)
        _wait_until(lambda name=name: DevCluster(data_dir).state.owned()[name != "zookeeper"].restart_count == 1)
    ps = json.loads(_run("ps", "--data-dir", str(data_dir), "--json").stdout)
    assert ps["restarts"] == {"zookeeper": 1, "bookie-1": 1}
    assert (ps["ready"], ps["supervisor"]) == (True, line["supervisor"])
    assert all(ps["pids"][name] != pid for name, pid in line["pids"].items())
    log = (data_dir / "logs" / "supervisor.log").read_text()
    assert f"pid {line['pids']['bookie-1']}) died" in log
    processes += [identify(pid) for pid in ps["pids"].values()]
    down = _run("down", "--data-dir", str(data_dir), "--json")
    assert json.loads(down.stdout)["ended"] == ["zookeeper", "bookie-1"]
    assert not any(map(is_alive, processes))


def test_up_takes_over_from_a_killed_supervisor(data_dir: Path) -> None:
    up = ("up", "--bookies", "0", "--data-dir", str(data_dir), "--json", "--detach")
    first = json.loads(_run(*up).stdout)
    refused = _run(*up)
    assert refused.returncode == ExitCode.CONFLICT
    assert "runs already" in refused.stderr
    os.kill(first["supervisor"], signal.SIGKILL)
    _wait_until(lambda: DevCluster(data_dir).supervisor == 0)
    assert "nobody starts again" in _run("ps", "--data-dir", str(data_dir)).stdout
    assert json.loads(_run("ps", "--data-dir", str(data_dir), "--json").stdout)["pids"] == first["pids"]
    second = json.loads(_run(*up).stdout)
    assert second["pids"] == first["pids"]
    assert second["supervisor"] not in (0, first["supervisor"])
    # Down ends the servers also if nobody supervises them.
    os.kill(second["supervisor"], signal.SIGKILL)
    assert json.loads(_run("down", "--data-dir", str(data_dir), "--json").stdout)["ended"] == ["zookeeper"]
    assert DevCluster(data_dir).pids() == {}


def test_sigterm_for_the_supervisor_ends_the_cluster(data_dir: Path) -> None:
    line = json.loads(_run("up", "--bookies", "0", "--data-dir", str(data_dir), "--json", "--detach").stdout)
    supervisor = identify(line["supervisor"])
    _wait_until(lambda: "supervises" in (data_dir / "logs" / "supervisor.log").read_text())
    os.kill(supervisor.pid, signal.SIGTERM)
    _wait_until(lambda: not is_alive(supervisor))
    assert DevCluster(data_dir).pids() == {}


def test_a_server_that_does_not_stay_is_left_alone_at_last_and_shown(
    bookkeeper: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PAUSE_S_MIN", "_PAUSE_S_MAX", "_POLL_S"):
        monkeypatch.setattr(f"ledger.dev.supervisor.{name}", 0.0)
    monkeypatch.setattr("ledger.dev.supervisor.RESTARTS_MAX", 2)
    monkeypatch.setattr(
        "ledger.zookeeper_server.server.zookeeper_command", lambda _: ["/bin/sh", "-c", "echo no >&2; sleep 0.1"]
    )
    said: list[str] = []

    def say(words: str) -> None:
        said.append(words)
        if "left alone" in words:
            raise InterruptedError

    process = bookkeeper.state.zookeeper.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(InterruptedError):
        Supervisor(bookkeeper, say).run()
    assert [words.partition(";")[2].split(" in ")[0] for words in said[:2]] == [" starts again", " starts again"]
    assert len(said) == 3
    assert bookkeeper.died() == []
    ps = _run("ps", "--data-dir", str(bookkeeper.data_dir), "--json")
    assert json.loads(ps.stdout)["given_up"] == ["zookeeper"]
    monkeypatch.undo()
    bookkeeper.start()
    assert not bookkeeper.state.zookeeper.is_given_up


def test_down_without_a_cluster_says_so(data_dir: Path) -> None:
    down = _run("down", "--data-dir", str(data_dir))
    assert down.returncode == ExitCode.NOT_FOUND
    assert down.stderr.startswith("rsm: no cluster in")
    assert down.stderr.count("\n") == 1


def test_three_bookies_serve_crash_and_come_back_on_their_ports(whole_cluster: DevCluster) -> None:
    cluster = whole_cluster
    assert len(set(cluster.bookies)) == 3
    client = KazooClient(cluster.zookeeper)
    client.start()
    try:
        _wait_until(lambda: set(cluster.bookies) <= set(client.get_children("/ledgers/available")))
        crashed = cluster.pids()["bookie-1"]
        cluster.kill_bookie(0)
        assert "bookie-1" not in cluster.pids()
        cluster.start_bookie(0)
        assert cluster.pids()["bookie-1"] != crashed
        host, port = cluster.bookies[0].split(":")
        socket.create_connection((host, int(port)), timeout=60).close()
    finally:
        client.stop()
        client.close()


def test_a_paused_bookie_is_ended_by_down(start_cluster: Callable[..., DevCluster]) -> None:
    cluster = start_cluster(bookie_count=1)
    process = cluster.state.bookies[0].process
    assert process is not None
    cluster.pause_bookie(0)
    assert cluster.stop() == ["zookeeper", "bookie-1"]
    assert not is_alive(process)
