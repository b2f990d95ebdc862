"""Jails of one pool's children: a plan for each, with a user, a scratch folder and cgroups of its own."""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import logging
import tempfile
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from broker.worker.jail.cgroups import Cgroups
from broker.worker.jail.plan import JailPlan
from broker.worker.jail.reading import readable_places
from broker.worker.jail.support import JailSupport, look_at_jail, uid_of
from broker.worker.option_units import files_unit
from ledger.options import MIB, NAMES, Option

_LOGGER = logging.getLogger(__name__)
_numbers = itertools.count(1)


class JailSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jail of a worker for the code that comes with tasks."""

    is_code_trusted: Annotated[
        bool,
        Option("Run code that comes with tasks without a jail: it may do what this worker may.", name="trust_code"),
    ] = False
    networks: Annotated[
        tuple[str, ...],
        Option(
            "Code pools that get the network if they ask for it; * and ? stand for letters.",
            name="grant_network",
            unit=NAMES,
            metavar="POOL,…",
            shown="none",
        ),
    ] = ()
    reads: Annotated[
        tuple[str, ...],
        Option(
            "Files and folders that jailed code may read besides those of the system and of Python.",
            name="code_reads",
            unit=files_unit("--code-reads"),
            metavar="PATH,…",
        ),
    ] = ()
    memory_bytes: Annotated[
        int,
        Option(
            "Most MiB of memory of a jailed child process, unless --memory-mb says otherwise.",
            name="code_memory_mb",
            unit=MIB,
            ge=64 << 20,
        ),
    ] = 2 * 1024 * 1024 * 1024
    scratch_bytes: Annotated[
        int, Option("Most MiB that jailed code may write, in memory.", name="code_scratch_mb", unit=MIB, ge=1 << 20)
    ] = 64 * 1024 * 1024
    processes: Annotated[int, Option("Most processes and threads of a jailed child.", name="code_processes", ge=1)] = 64
    cpu_s: Annotated[
        int,
        Option(
            "Processor time of a run in a jailed child; a process ends at twice as much. 0 = no limit.",
            name="code_cpu_s",
            ge=0,
            le=1 << 30,
        ),
    ] = 24 * 3600
    uid_base: Annotated[
        int,
        Option(
            "First of 16,777,216 user ids that jailed children of a worker run by root become.", name="code_uids", ge=0
        ),
    ] = 0x7F00_0000

    def grants_network(self, code: str) -> bool:
        """Return whether a pool may have the network."""
        return any(fnmatch.fnmatchcase(code, pattern) for pattern in self.networks)


class MachineJail(msgspec.Struct, frozen=True):
    """Parts of a jail that this machine can make.

    Attributes:
        support: What of a jail can be made.
        cgroups: Makes cgroups.

    """

    support: JailSupport
    cgroups: Cgroups


@cache
def machine_jail(uid_base: int) -> MachineJail:
    """Find out what this machine can do; it blocks for a fraction of a second, the first time."""
    cgroups = Cgroups()
    with tempfile.TemporaryDirectory(prefix="rsm-jail-") as folder:
        for name in ("code", "home", "root"):
            Path(folder, name).mkdir()
        return MachineJail(look_at_jail(Path(folder), uid_base=uid_base, cgroups=cgroups), cgroups)


async def look_for_jail(settings: JailSettings) -> MachineJail:
    """Find out what of a jail can be made here, and say it in a line of the log."""
    try:
        machine = await asyncio.to_thread(machine_jail, settings.uid_base)
    except OSError as error:
        machine = MachineJail(JailSupport(reasons=(f"it cannot be tried: {error}",)), Cgroups())
    if machine.support.missing:
        _LOGGER.warning(
            "no code that comes with tasks is run here, no jail can be made for it: %s. Where all of it may do what "
            "this worker may, say so by --trust-code",
            machine.support,
        )
    else:
        _LOGGER.info("code that comes with tasks goes to jail: %s", machine.support)
    return machine


class Jails:
    """See the module.

    Args:
        machine: What can be made here.
        settings: Bounds and what is shown.
        folder: Of the pool, as `PoolFolder.make` returns it.
        has_network: Whether the pool was granted it.
        memory_bytes: Of a child; 0 = as the settings say.
        has_name: Whether the user of a child has a name; see `JailPlan`.

    """

    def __init__(
        self,
        machine: MachineJail,
        settings: JailSettings,
        folder: Path,
        *,
        has_network: bool,
        memory_bytes: int,
        has_name: bool = False,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._folder = folder
        support = machine.support
        self._plan = JailPlan(
            code=str(folder / "code"),
            scratch=str(folder / "home"),
            root=str(folder / "root"),
            reads=readable_places(settings.reads, has_network=has_network),
            has_namespaces=support.has_namespaces,
            landlock_abi=support.landlock_abi,
            has_seccomp=support.has_seccomp,
            has_network=has_network,
            memory_bytes=memory_bytes or settings.memory_bytes,
            scratch_bytes=settings.scratch_bytes,
            cpu_s=settings.cpu_s,
            processes=settings.processes if support.has_namespaces or support.has_own_user else 0,
            has_name=has_name,
        )

    @property
    def cpu_s(self) -> int:
        """Seconds of processor after which a child is not given another run; 0 = no bound."""
        return self._plan.cpu_s

    @property
    def code_inside(self) -> str:
        """Folder of the pool's code as its children see it."""
        return self._plan.code_inside

    def around(self, folder: Path) -> Jails:
        """Return jails as these, around another folder that `PoolFolder.make` has returned."""
        made = copy(self)
        made._folder = folder
        places = {"code": folder / "code", "scratch": folder / "home", "root": folder / "root"}
        made._plan = msgspec.structs.replace(self._plan, **{name: str(place) for name, place in places.items()})
        return made

    def open_code(self) -> None:
        """Let children that are users of their own read the code; on the outside nobody else comes that far."""
        if not self._machine.support.has_own_user:
            return
        code = self._folder / "code"
        for place in [code, *code.rglob("*")]:
            place.chmod(0o755 if place.is_dir() else 0o644)
        if not self._machine.support.has_namespaces:
            # They have to get there by its path.
            for above in (self._folder.parent, self._folder, self._folder / "home"):
                above.chmod(0o711)

    def enter(self) -> tuple[JailPlan, Callable[[], None]]:
        """Return the plan of another child, and what is called when it is gone."""
        number = next(_numbers)
        settings, support = self._settings, self._machine.support
        # The first two processes of a jail only wait.
        cgroups = self._machine.cgroups.make(
            str(number), memory_bytes=self._plan.memory_bytes, processes=settings.processes + 2
        )
        plan = msgspec.structs.replace(
            self._plan,
            scratch=str(self._folder / "home" / str(number)),
            uid=uid_of(settings.uid_base, number) if support.has_own_user else 0,
            cgroups=cgroups,
        )
        return plan, lambda: self._machine.cgroups.remove(str(number))
