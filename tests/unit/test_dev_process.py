"""Processes known by more than their pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ledger.dev.errors import ClusterError
from ledger.dev.process import ProcessId, end_all, identify, is_alive, send_signal, spawn, wait_frozen

_DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    process = subprocess.Popen(["sleep", "600"])
    yield identify(process.pid)
    process.kill()
    process.wait()


def test_a_process_is_alive_until_it_ends(tmp_path: Path) -> None:
    process = spawn(["sleep", "600"], log=tmp_path / "log", env=os.environ)
    assert is_alive(process)
    assert end_all([process], grace_s=60) == []
    assert not is_alive(process)


def test_another_process_with_the_same_pid_is_not_alive_and_gets_no_signal(sleeper: ProcessId) -> None:
    earlier = msgspec.structs.replace(sleeper, started_ticks=sleeper.started_ticks - 1)
    assert not is_alive(earlier)
    assert not send_signal(earlier, signal.SIGKILL)
    assert is_alive(sleeper)


def test_a_process_of_an_earlier_boot_is_not_alive_and_gets_no_signal(sleeper: ProcessId) -> None:
    earlier = msgspec.structs.replace(sleeper, boot_id="another boot")
    assert not send_signal(earlier, signal.SIGKILL)
    assert is_alive(sleeper)


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        process = identify(child.pid)
        child.kill()
        deadline = time.monotonic() + 60
        while is_alive(process):  # Nobody has waited for it: it stays a zombie until the block ends.
            assert time.monotonic() < deadline


def test_who_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = spawn([sys.executable, "-c", _DEAF], log=tmp_path / "log", out=out, env=os.environ)
    while out.stat().st_size == 0:
        assert is_alive(process)
    assert end_all([process], grace_s=0.2) == [process]
    assert not is_alive(process)


def test_a_paused_process_ends_within_the_grace(tmp_path: Path) -> None:
    process = spawn(["sleep", "600"], log=tmp_path / "log", env=os.environ)
    assert send_signal(process, signal.SIGSTOP)
    wait_frozen(process)
    assert Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    assert end_all([process], grace_s=60) == []


def test_signals_arrive_where_descriptors_of_processes_are_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    process = spawn(["sleep", "600"], log=tmp_path / "log", env=os.environ)
    assert end_all([process], grace_s=60) == []
    assert not send_signal(process, signal.SIGKILL)


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="cannot start no-such-program: No such file"):
        spawn(["no-such-program"], log=tmp_path / "log", env=os.environ)


def test_output_is_kept_apart_from_the_log_and_emptied_at_each_start(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    for _ in range(2):
        process = spawn(["sh", "-c", "echo said; echo logged >&2; exec sleep 600"], log=log, out=out, env=os.environ)
        while not out.read_text():
            assert is_alive(process)
        end_all([process], grace_s=10)
    assert out.read_text() == "said\n"
    assert log.read_text() == "logged\nlogged\n"
