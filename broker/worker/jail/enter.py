"""Entry of a child process into its jail: it keeps what it has imported; the plan says what it can reach afterwards.

    L   the process that the worker started; waits, and ends as C does
    I   the first process of the new namespaces; puts the file system together, gives up its rights, reaps
    C   runs the pool's code; returns from `enter`

Where the worker ends, or kills L, everything ends: L dies with its parent, and I with L. With I its namespaces end.
Without namespaces I is outside of the jail: it adopts whatever C leaves behind, and kills all of it before it ends.

The order matters: each step needs what the next one gives up. This is called before there is a second thread, so that
forks are safe.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import stat
import struct
from pathlib import Path
from typing import NoReturn

from broker.worker.jail import kernel
from broker.worker.jail.calls import filter_program
from broker.worker.jail.orphans import end_rest, reaped
from broker.worker.jail.plan import JailPlan

_DEVICES = ("null", "zero", "full", "random", "urandom")
_NAMESPACES = (
    kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)  # fmt: skip
_MOST_KILLABLE = "1000"


def enter(plan: JailPlan, fd: int) -> None:
    """Go to jail. With namespaces it is a grandchild that returns.

    Args:
        plan: What the jail is.
        fd: The socket to the worker, which stays open.

    Raises:
        OSError: It cannot be made. What was done stays done: end the process.

    """
    for file in plan.cgroups:
        Path(file).write_text("0")
    if plan.has_namespaces:
        _leave_namespaces(plan)
    reading, writing = os.pipe()
    outer = os.getpid()
    inner = os.fork()
    if inner:
        os.close(writing)
        os.close(fd)
        _end_as(inner, reading)
    os.close(reading)
    if plan.has_namespaces:
        _be_killed_first()
        kernel.die_with_parent()
        _make_file_system(plan)
        _confine(plan)
        _end_if_alone(writing)
        child = os.fork()
        if child:
            os.close(fd)
            _reap(child, writing)
    else:
        _keep(plan, outer, fd, writing)
        _make_scratch(plan)
        _confine(plan)
    os.close(writing)


def _be_killed_first() -> None:
    """If memory runs out, it is not the worker that is killed, nor who is to end the rest."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_MOST_KILLABLE)


# ---- the three processes


def _end_if_alone(writing: int) -> None:
    """End, as I in its namespace, if L is gone: it was before it could be asked to take I with it."""
    looked = select.poll()
    looked.register(writing, 0)
    if looked.poll(0):
        os._exit(1)


def _keep(plan: JailPlan, outer: int, fd: int, writing: int) -> None:
    """Fork C, which returns; I waits until C or L ends, and kills what is left."""
    awaited = {signal.SIGCHLD, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    os.setsid()  # Who kills the group of L leaves I to do the rest.
    kernel.adopt_orphans()
    kernel.die_with_parent(outer, by=signal.SIGTERM)
    keeper = os.getpid()
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _be_killed_first()
        kernel.die_with_parent(keeper)
        return
    os.close(fd)
    status = None
    while status is None and signal.sigwait(awaited) == signal.SIGCHLD:
        for pid, ended in reaped():
            if pid == child:
                status = ended
    end_rest(plan.uid)
    if status is not None:
        os.write(writing, struct.pack("i", status))
    os._exit(0)


def _end_as(inner: int, reading: int) -> NoReturn:
    """Wait, as L, and end the way C did."""
    told = os.read(reading, 4)
    os.waitpid(inner, 0)
    status = struct.unpack("i", told)[0] if len(told) == 4 else signal.SIGKILL
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def _reap(child: int, writing: int) -> NoReturn:
    """Reap, as I, whatever ends; with C everything ends."""
    while True:
        pid, status = os.wait()
        if pid == child:
            os.write(writing, struct.pack("i", status))
            os._exit(0)


# ---- namespaces and mounts


def _leave_namespaces(plan: JailPlan) -> None:
    flags = _NAMESPACES | (0 if plan.has_network else kernel.CLONE_NEWNET)
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        kernel.unshare(flags)
        return
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _make_file_system(plan: JailPlan) -> None:
    """Put a file system together that has what the plan names, and make it the root."""
    root = plan.root
    os.umask(0o022)  # Whatever the worker's is: another user passes through these folders.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    shown: list[str] = []
    for place in sorted(plan.reads):
        if not any(place == one or place.startswith(f"{one}/") for one in shown) and _show(place, root + place):
            shown.append(place)
    _show(plan.code, root + plan.code_inside)
    scratch = plan.scratch_inside
    _make_devices(root, scratch)
    _make_directory(root + scratch)
    owner = f",uid={plan.uid},gid={plan.uid}" if plan.uid else ""
    kernel.mount(
        "tmpfs",
        root + scratch,
        "tmpfs",
        kernel.MS_NOSUID | kernel.MS_NODEV,
        f"size={plan.scratch_bytes},nr_inodes=10000,mode=700{owner}",
    )
    for name in ("tmp", "var/tmp"):
        _make_directory(str(Path(root, name).parent))
        with contextlib.suppress(FileExistsError):  # Something to be read lies there.
            Path(root, name).symlink_to(scratch)
    if plan.has_name:
        _make_accounts(root, plan.uid or os.geteuid(), scratch)
    _make_directory(f"{root}/proc")
    # A container may forbid a new one. Then there is none: that of outside is not shown.
    with contextlib.suppress(OSError):
        kernel.mount(
            "proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        )  # fmt: skip
    kernel.swap_root(root)
    kernel.change_mounts("/", is_recursive=False)
    os.chdir(scratch)


def _show(place: str, target: str) -> bool:
    """Show a file or folder in the new root, read only; return whether it is a folder."""
    try:
        status = os.lstat(place)
    except OSError:
        return False
    _make_directory(os.path.dirname(target))  # noqa: PTH120 - paths are texts here
    if stat.S_ISLNK(status.st_mode) and os.path.isdir(place):  # noqa: PTH112
        # /lib, which is usr/lib now.
        Path(target).symlink_to(Path(place).readlink())
        return False
    is_folder = os.path.isdir(place)  # noqa: PTH112
    if is_folder:
        _make_directory(target)
    elif not os.path.exists(place):  # noqa: PTH110 - a link to nowhere
        return False
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(place, target, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.change_mounts(target)
    return is_folder


def _make_devices(root: str, scratch: str) -> None:
    _make_directory(f"{root}/dev")
    for name in _DEVICES:
        target = f"{root}/dev/{name}"
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.mount(f"/dev/{name}", target, "", kernel.MS_BIND)
        kernel.change_mounts(target, are_devices=True)
    Path(root, "dev", "shm").symlink_to(scratch)
    Path(root, "dev", "fd").symlink_to("/proc/self/fd")


def _make_accounts(root: str, user: int, home: str) -> None:
    _make_directory(f"{root}/etc")
    Path(root, "etc", "passwd").write_text(f"jailed:x:{user}:{user}::{home}:/bin/sh\n")
    Path(root, "etc", "group").write_text(f"jailed:x:{user}:\n")


def _make_directory(path: str) -> None:
    os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103


def _make_scratch(plan: JailPlan) -> None:
    """Make the scratch folder where there are no mounts."""
    Path(plan.scratch).mkdir(mode=0o700, parents=True, exist_ok=True)
    if plan.uid:
        os.chown(plan.scratch, plan.uid, plan.uid)
    os.chdir(plan.scratch)


# ---- rights and bounds


def _confine(plan: JailPlan) -> None:
    """Give up rights, for good, and take bounds on."""
    os.umask(0o077)
    parent = os.getppid()
    _bound(plan)
    if os.geteuid() == 0:
        kernel.drop_capabilities(of_bounding_set=True)
    if plan.uid:
        os.setgroups([])
        os.setresgid(plan.uid, plan.uid, plan.uid)
        os.setresuid(plan.uid, plan.uid, plan.uid)
        # A change of user forgets both.
        kernel.set_dumpable()
        kernel.die_with_parent(parent)
    kernel.drop_capabilities(of_bounding_set=False)
    kernel.no_new_privileges()
    if plan.landlock_abi:
        reads = ["/"] if plan.has_namespaces else [*plan.reads, plan.code]
        devices = ["/dev"] if plan.has_namespaces else [f"/dev/{name}" for name in _DEVICES]
        kernel.restrict_files(
            plan.landlock_abi, reads=reads, writes=[plan.scratch_inside, *devices], has_network=plan.has_network
        )
    if plan.has_seccomp:
        kernel.set_filter(filter_program(has_network=plan.has_network, has_local_sockets=plan.has_namespaces))


def _bound(plan: JailPlan) -> None:
    bounds = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: plan.files,
        resource.RLIMIT_FSIZE: plan.scratch_bytes,
        resource.RLIMIT_AS: plan.memory_bytes,
        resource.RLIMIT_NPROC: plan.processes,
    }
    for kind, most in bounds.items():
        if most or kind == resource.RLIMIT_CORE:
            _, hard = resource.getrlimit(kind)
            bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (bound, bound))
    if plan.cpu_s:
        # A second apart: the first one ends it with a signal that says why, unless it is passed over.
        resource.setrlimit(resource.RLIMIT_CPU, (2 * plan.cpu_s, 2 * plan.cpu_s + 1))
