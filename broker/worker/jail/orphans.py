"""Ends what a process that adopts orphans has started, whoever of its descendants started it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_KILLERS_MAX = 100


def reaped() -> Iterator[tuple[int, int]]:
    """Reap what has ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def end_rest(uid: int) -> None:
    """Kill all that this process has started, and what they have: orphans have become its own children.

    Args:
        uid: User of all of them; 0 = they have none of their own.

    """
    for _ in range(_KILLERS_MAX if uid else 0):
        killer = os.fork()
        if not killer:
            # All at once: what forks faster than it can be counted does not get away.
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
            os._exit(0)
        if os.waitpid(killer, 0)[1] != signal.SIGKILL:
            break  # Nobody has killed it before it did.
    while True:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
        for _ in reaped():
            pass


def _children() -> Iterator[int]:
    own = str(os.getpid())
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name of a program may have any letters in it, so read from behind it.
                if (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                    yield int(entry.name)
