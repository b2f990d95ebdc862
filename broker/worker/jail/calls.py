"""System calls that jailed code may not make: a seccomp program, which the kernel runs at each call.

Forbidden is what reaches for other processes, for mounts, namespaces and the kernel itself, or what has been the way
out of jails before and is of no use to a task. Sockets are local ones, and the network's only where it is granted.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct

_ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT = 0x4000_0000
_NEW_NAMESPACES = 0x7E02_0000
"""Flags of clone that make a namespace."""

# Numbers on x86_64 and on aarch64; None = there is no such call.
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# As if the kernel were older: libraries do without them.
_UNKNOWN = {"clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426)}
_CLONE, _SOCKET = (56, 220), (41, 198)

_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST_ARGUMENT = 0, 4, 16


def is_known_machine() -> bool:
    """Return whether the numbers of system calls of this machine are known here."""
    return platform.machine() in _ARCHITECTURES


def filter_program(*, has_network: bool, has_local_sockets: bool) -> bytes:
    """Return the program.

    Args:
        has_network: Sockets of the network may be made.
        has_local_sockets: Local ones may; pairs of them always.

    """
    machine = platform.machine()
    column = 0 if machine == "x86_64" else 1
    families = [socket.AF_UNIX] if has_local_sockets else []
    if has_network:
        families += [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK]
    steps = [
        _step(_LOAD, _AT_ARCHITECTURE),
        _step(_JUMP_IF_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _AT_NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(_JUMP_IF_AT_LEAST, _X32_BIT, 0, 1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    for table, number in ((_FORBIDDEN, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for numbers in table.values():
            call = numbers[column]
            if call is not None:
                steps += [_step(_JUMP_IF_EQUAL, call, 0, 1), _step(_RETURN, _ERROR | number)]
    clone = [
        _step(_LOAD, _AT_FIRST_ARGUMENT),
        _step(_AND, _NEW_NAMESPACES),
        _step(_JUMP_IF_EQUAL, 0, 1, 0),
        _step(_RETURN, _ERROR | errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    sockets = [
        _step(_LOAD, _AT_FIRST_ARGUMENT),
        *(_step(_JUMP_IF_EQUAL, family, len(families) - index, 0) for index, family in enumerate(families)),
        _step(_RETURN, _ERROR | errno.EACCES),
        _step(_RETURN, _ALLOW),
    ]
    for numbers, block in ((_CLONE, clone), (_SOCKET, sockets)):
        steps += [_step(_JUMP_IF_EQUAL, numbers[column], 0, len(block)), *block]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
