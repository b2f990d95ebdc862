"""Processes that a program starts, known by pid *and* start time; they end with it, or outlive it on wish.

A pid alone names nobody: after a crash or a reboot the system gives it to another program. `ProcessId` adds the
start time from /proc and the boot, so that a signal only ever reaches the process that was started here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ledger.dev.errors import ClusterError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_POLL_S = 0.01
_KILL_WAIT_S_MAX = 10.0
_LEASH_S_MAX = 25.0


class ProcessId(msgspec.Struct, frozen=True):
    """Identity of a process, beyond its pid.

    Attributes:
        pid: Process id as the system counts them.
        started_ticks: Field 22 of /proc/<pid>/stat: start time in clock ticks since the boot.
        boot_id: The boot in which it was started.

    """

    pid: int
    started_ticks: int
    boot_id: str


def spawn(
    command: Sequence[str], *, log: Path, out: Path | None = None, env: Mapping[str, str], outlives: bool = False
) -> ProcessId:
    """Start a process in a session of its own, so that a ctrl-C in this terminal does not reach it.

    Args:
        command: Program and arguments.
        log: File that takes standard error, and standard output too unless `out` is given; appended.
        out: File that takes standard output; emptied first.
        env: The whole environment of the process.
        outlives: It goes on when this program is gone; else it is ended then.

    Raises:
        ClusterError: The program cannot be started or ended at once, or there is no /proc.

    """
    with log.open("ab") as log_file, out.open("wb") if out else contextlib.nullcontext(log_file) as out_file:
        try:
            # The child is ours to reap only while this program lives; afterwards init does it.
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=log_file,
                env=dict(env),
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise ClusterError(f"cannot start {command[0]}: {error.strerror or error}") from error
    _children[child.pid] = child
    process = identify(child.pid)
    if not outlives:
        hold(process)
    return process


def hold(process: ProcessId) -> None:
    """Have a process ended when this program is gone, however it went (`ledger.dev.leash`)."""
    global _leash  # noqa: PLW0603 - one a program
    if _leash is None or _leash[0] != os.getpid():  # A fork has a parent's, which it does not own.
        leash = subprocess.Popen(
            [sys.executable, "-P", "-m", "ledger.dev.leash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        _leash = os.getpid(), leash
        atexit.register(_let_go, leash)
    pipe = _leash[1].stdin
    assert pipe is not None
    with contextlib.suppress(BrokenPipeError):  # Somebody has killed it: then it is as it was without.
        pipe.write(msgspec.json.encode(process) + b"\n")
        pipe.flush()


def _let_go(leash: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        leash.communicate(timeout=_LEASH_S_MAX)


_leash: tuple[int, subprocess.Popen[bytes]] | None = None
"""The process that ends what this program has started, and the pid of this program."""


# Children of this program that may still be zombies. Only `_reap` takes them out.
_children: dict[int, subprocess.Popen[bytes]] = {}


def identify(pid: int) -> ProcessId:
    """Read who holds this pid now.

    Raises:
        ClusterError: Nobody does, or this system has no /proc (the servers run on Linux only).

    """
    started_ticks = _started_ticks(pid)
    if started_ticks is None:
        hint = "" if _BOOT_ID.exists() else "; `rsm up` needs Linux and its /proc"
        raise ClusterError(f"process {pid} is not there{hint}")
    return ProcessId(pid, started_ticks, _boot_id())


def is_alive(process: ProcessId) -> bool:
    """Tell whether this very process runs (a zombie, or another one with its pid, does not count)."""
    _reap(process.pid)
    return process.boot_id == _boot_id() and _started_ticks(process.pid) == process.started_ticks


def send_signal(process: ProcessId, signal_number: int) -> bool:
    """Send a signal to this very process and to nobody else.

    Returns:
        False if it does not run any more.

    """
    try:
        # The descriptor pins the process before it is checked: its pid cannot be given away in between.
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:
        # A strict container forbids descriptors of processes: the check, right before the signal, must do.
        return is_alive(process) and _kill(process.pid, signal_number)
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, signal_number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_frozen(process: ProcessId, timeout_s: float = 5.0) -> None:
    """Wait until every thread of a process that got SIGSTOP stands still: the signal reaches one after the other."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        states: list[str] = []
        for stat in Path(f"/proc/{process.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # A thread that has just ended.
                states.append(stat.read_text().rpartition(")")[2].split()[0])
        if all(state in "TtZX" for state in states):
            return
        time.sleep(0.001)


def _kill(pid: int, signal_number: int) -> bool:
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return False
    return True


def end_all(processes: Sequence[ProcessId], *, grace_s: float, signal_number: int = signal.SIGTERM) -> list[ProcessId]:
    """Ask all of them to end, wait, and kill those that did not.

    Args:
        processes: Whom to end; those that are gone already are passed over.
        grace_s: Seconds between the signal and SIGKILL.
        signal_number: By which they are asked.

    Returns:
        Those that had to be killed.

    Raises:
        ClusterError: A process survived SIGKILL (it hangs in the kernel, on a disk for example).

    """
    for process in processes:
        send_signal(process, signal_number)
        send_signal(process, signal.SIGCONT)  # One that is paused would not see it.
    stubborn = _wait_gone(processes, grace_s)
    for process in stubborn:
        send_signal(process, signal.SIGKILL)
    left = _wait_gone(stubborn, _KILL_WAIT_S_MAX)
    if left:
        raise ClusterError(f"process {left[0].pid} does not end even by SIGKILL: is its disk hanging?")
    return stubborn


def _wait_gone(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    deadline = time.monotonic() + timeout_s
    left = list(processes)
    while left := [process for process in left if is_alive(process)]:
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return left


def _reap(pid: int) -> None:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]


def _started_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command name is in brackets and may hold spaces and brackets itself: count from the last bracket.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" and not _has_threads(pid) else int(fields[19])


def _has_threads(pid: int) -> bool:
    """Tell whether threads outlive their main thread: until the last one is gone, ports and files are held."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return False


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
