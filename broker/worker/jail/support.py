"""Parts of a jail that this machine can make: tried, not guessed, and told in words.

A jail that lets nothing out needs: files hidden (namespaces or Landlock), other processes out of reach (namespaces, a
user of its own, or Landlock 6), no network (namespaces or seccomp), a filter of system calls (seccomp), and a bound of
processes (namespaces, a user of its own, or a cgroup). Each has more than one way, so that a container that forbids
namespaces may still do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from broker.worker.jail.calls import is_known_machine
from broker.worker.jail.cgroups import Cgroups
from broker.worker.jail.kernel import landlock_version
from broker.worker.jail.plan import JailPlan
from broker.worker.jail.reading import jail_path, readable_places

_TRY_S = 30.0
_LANDLOCK_OF_SIGNALS = 6
_UIDS = 1 << 24
_TRIED = (
    "import json, os, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from broker.worker.executors import child; import msgspec; "
    "from broker.worker.jail.enter import enter; from broker.worker.jail.plan import JailPlan; "
    "enter(msgspec.json.decode(sys.argv[2], type=JailPlan), os.dup(0)); os.write(1, b'jailed')"
)


class JailSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a jail that can be made here.

    Attributes:
        has_namespaces: Own mounts, processes, network.
        has_own_user: Each child is a user of its own: this process is root.
        landlock_abi: Version; 0 = none.
        has_seccomp: System calls are filtered.
        cgroups: What cgroups bound: some of memory and pids.
        reasons: Why something is not there.

    """

    has_namespaces: bool = False
    has_own_user: bool = False
    landlock_abi: int = 0
    has_seccomp: bool = False
    cgroups: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Escapes that a jail made here would leave open, each in words; empty = none."""
        found = []
        if not (self.has_namespaces or self.landlock_abi):
            found.append("files cannot be hidden (neither namespaces nor Landlock)")
        if not (self.has_namespaces or self.has_own_user or self.landlock_abi >= _LANDLOCK_OF_SIGNALS):
            found.append("the worker can be signalled (no namespaces, not root, Landlock before 6)")
        if not self.has_seccomp:
            found.append("system calls cannot be filtered, nor the network be closed (no seccomp)")
        if not (self.has_namespaces or self.has_own_user or "pids" in self.cgroups):
            found.append("processes cannot be counted (no namespaces, not root, no cgroup)")
        return found

    @property
    def refusal(self) -> str:
        """Reason why code is not run here, and what to do about it; "" if a jail can be made."""
        if not self.missing:
            return ""
        why = "; ".join([*self.missing, *self.reasons])
        return f"no jail can be made for it here: {why}. It runs where the worker was started with --trust-code"

    def __str__(self) -> str:
        """Say what the jail is made of, and what it lacks."""
        made = [
            word
            for word, is_there in (
                ("namespaces", self.has_namespaces),
                ("a user each", self.has_own_user),
                (f"Landlock {self.landlock_abi}", self.landlock_abi),
                ("seccomp", self.has_seccomp),
                (f"cgroups for {' and '.join(self.cgroups)}", self.cgroups),
            )
            if is_there
        ]
        lacking = [*self.missing, *self.reasons]
        return ", ".join(made or ["nothing"]) + (f"; {'; '.join(lacking)}" if lacking else "")


def uid_of(base: int, number: int) -> int:
    """Return a child's own user, of the 16,777,216 from the base on: other workers of this machine have others."""
    return base + (os.getpid() * 4096 + number % 4096) % _UIDS


def look_at_jail(folder: Path, *, uid_base: int, cgroups: Cgroups | None = None) -> JailSupport:
    """Find out, by going to jail: it takes a fraction of a second, and blocks.

    Args:
        folder: As `PoolFolder.make` returns it.
        uid_base: First of the users that children become, if this process is root; 0 = they stay what it is.
        cgroups: Tried already; None = they are now.

    """
    cgroups = cgroups if cgroups is not None else Cgroups()
    landlock = landlock_version()
    seccomp = is_known_machine() and Path("/proc/sys/kernel/seccomp/actions_avail").exists()
    is_root = bool(uid_base) and os.geteuid() == 0
    reasons: list[str] = []
    for has_namespaces, has_own_user in ((True, is_root), (False, is_root), (False, False)):
        support = JailSupport(
            has_namespaces=has_namespaces,
            has_own_user=has_own_user,
            landlock_abi=landlock,
            has_seccomp=seccomp,
            cgroups=cgroups.controllers,
            reasons=tuple(reasons),
        )
        why = _tried(folder, support, uid_base)
        if not why:
            return support
        what = "namespaces" if has_namespaces else "a user each" if has_own_user else "Landlock and seccomp"
        reasons = list(dict.fromkeys([*reasons, f"{what}: {why}"]))
    return JailSupport(reasons=tuple(reasons))


def _tried(folder: Path, support: JailSupport, uid_base: int) -> str:
    """Make such a jail once; return why it cannot be made, "" if it can."""
    plan = JailPlan(
        code=str(folder / "code"),
        scratch=str(folder / "home" / "tried"),
        root=str(folder / "root"),
        reads=readable_places((), has_network=False),
        has_namespaces=support.has_namespaces,
        uid=uid_of(uid_base, 0) if support.has_own_user else 0,
        landlock_abi=support.landlock_abi,
        has_seccomp=support.has_seccomp,
    )
    words = [sys.executable, "-I", "-B", "-c", _TRIED, json.dumps(jail_path()), msgspec.json.encode(plan).decode()]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TRY_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.stdout == b"jailed":
        return ""
    return (done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]
