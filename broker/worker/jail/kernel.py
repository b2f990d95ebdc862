"""System calls that Python has no names for. Each raises `OSError` with what was tried.

The numbers of calls that are younger than 2019 are the same everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_RDONLY, _NOSUID, _NODEV = 1, 2, 4

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x2008_0522
_SIGKILL = 9

_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION_ASKED = 1
_PATH_BENEATH = 1
# Access to files by the version in which it came: 13 kinds at first, then renaming, truncation, device control.
_FILE_KINDS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_EXECUTE, _READ_FILE, _READ_DIR = 1, 4, 8
_OF_FILES = 1 | 2 | 4 | 1 << 14 | 1 << 15
_TCP_BIND_AND_CONNECT = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, second: int, third: int = 0) -> int:
    words = [ctypes.c_ulong(word) for word in (second, third, 0, 0)]
    return int(_libc.prctl(option, *words))


def _syscall(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return int(_libc.syscall(ctypes.c_long(number), *words))


# ---- processes


def die_with_parent(parent: int = 0, *, by: int = _SIGKILL) -> None:
    """Have this process killed when the one that started it ends; a change of user undoes it.

    Args:
        parent: Who started it: if that is gone by now, this process ends at once. 0 = it is not looked at.
        by: The signal.

    """
    with contextlib.suppress(AttributeError):  # Of systems that know nothing of the kind.
        _prctl(_PR_SET_PDEATHSIG, by)
    if parent and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Be the parent of what processes leave behind that this one has started, itself or by others."""
    _checked(_prctl(_PR_SET_CHILD_SUBREAPER, 1), "prctl(child_subreaper)")


def set_dumpable() -> None:
    """Let this process read its own `/proc/self` after a change of user."""
    _prctl(_PR_SET_DUMPABLE, 1)


def no_new_privileges() -> None:
    """Have no program give this process, or what it starts, more rights than it has."""
    _checked(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl(no_new_privs)")


def drop_capabilities(*, of_bounding_set: bool) -> None:
    """Give up all rights of root.

    Args:
        of_bounding_set: Drop those that could come back too, and only those: while still root.

    """
    if of_bounding_set:
        number = 0
        while _prctl(_PR_CAPBSET_DROP, number) == 0:
            number += 1
        return
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, bytes(24)), "capset")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


# ---- mounts


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _checked(result, f"mount of {source or kind} at {target}")


def change_mounts(target: str, *, are_devices: bool = False, is_recursive: bool = True) -> None:
    """Make a mount read only, and what is mounted below it; of devices only that nothing runs as another user."""
    wanted = _NOSUID if are_devices else _RDONLY | _NOSUID | _NODEV
    attributes = struct.pack("QQQQ", wanted, 0, 0, 0)
    flags = _AT_RECURSIVE if is_recursive else 0
    result = _syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, attributes, len(attributes))
    _checked(result, f"mount_setattr of {target}")


def swap_root(root: str) -> None:
    """Make a mount the root of this process, and let go of the old one."""
    os.chdir(root)
    _checked(_syscall(_SYS_PIVOT_ROOT[platform.machine()], b".", b"."), f"pivot_root to {root}")
    _checked(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


# ---- Landlock and seccomp


def landlock_version() -> int:
    """Return which version of Landlock the kernel speaks; 0 = none."""
    return max(_syscall(_SYS_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION_ASKED), 0)


def restrict_files(version: int, *, reads: list[str], writes: list[str], has_network: bool) -> None:
    """Have this process, and all that it starts, open nothing but these files and folders and what is in them.

    Args:
        version: Of Landlock. From 4 on TCP is forbidden without `has_network`; from 6 on nobody outside can be
            signalled, or spoken to by abstract sockets.
        reads: Read and executed.
        writes: Everything.
        has_network: Whether TCP is left alone.

    """
    kinds = (1 << _FILE_KINDS.get(version, 16)) - 1
    wanted = [kinds]
    if version >= 4:
        wanted.append(0 if has_network else _TCP_BIND_AND_CONNECT)
    if version >= 6:
        wanted.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"{len(wanted)}Q", *wanted)
    rules = _checked(_syscall(_SYS_LANDLOCK_CREATE, attributes, len(attributes), 0), "landlock_create_ruleset")
    try:
        for places, allowed in ((reads, _EXECUTE | _READ_FILE | _READ_DIR), (writes, kinds)):
            for place in places:
                _allow(rules, place, allowed & kinds)
        _checked(_syscall(_SYS_LANDLOCK_RESTRICT, rules, 0), "landlock_restrict_self")
    finally:
        os.close(rules)


def _allow(rules: int, place: str, allowed: int) -> None:
    try:
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(place):  # noqa: PTH112 - paths are texts here
            allowed &= _OF_FILES
        rule = struct.pack("=Qi", allowed, opened)
        _checked(_syscall(_SYS_LANDLOCK_ADD, rules, _PATH_BENEATH, rule, 0), f"landlock_add_rule for {place}")
    finally:
        os.close(opened)


def set_filter(program: bytes) -> None:
    """Have every system call of this process, and of all that it starts, judged by a program.

    Args:
        program: Instructions of 8 bytes, as `broker.worker.jail.calls` makes them.

    """
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    pointer = ctypes.create_string_buffer(described, len(described))
    _checked(_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(pointer)), "prctl(seccomp)")
