"""Plan of a cluster: its machines, and where everything lies on them. It is kept as `cluster.toml` beside the files."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from ledger.bookie.place import check_own_id
from ledger.decoding import convert
from ledger.errors import UsageError
from rsm_spark.log.partition_names import check_name

SERVICES: Final = ("store", "broker", "gateway", "console", "files")
"""Services that a machine may run, beside ZooKeeper and a bookie, in the order of their start."""
USUAL_SERVICES: Final = SERVICES[:4]
"""Those that it runs unless something else is said."""
PLAN_FILE: Final = "cluster.toml"
_HOST: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
_ZONE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOSTS_MIN: Final = 3
_ENSEMBLE_MAX: Final = 5


class PlannedMachine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine.

    Attributes:
        host: Name or IPv4 address by which all others reach it; also the name of its folder.
        zookeeper: Number of its server in ZooKeeper's ensemble, for life; 0 = it runs none.
        bookie_id: Name of its bookie, for life; "" = the bookie's address is its name.
        zone: What may be lost with it, and not with machines of other zones; "" = nobody said.

    """

    host: str
    zookeeper: int = 0
    bookie_id: str = ""
    zone: str = ""

    @classmethod
    def of(cls, text: str, zone: str = "") -> Self:
        """Return a new machine of `HOST` or `HOST@ZONE`; its bookie has the host as its name.

        Args:
            text: As it is typed.
            zone: Where no zone is typed.

        Raises:
            UsageError: A zone is announced, and missing.

        """
        host, separator, own = text.partition("@")
        if separator and not own:
            raise UsageError(f"{text[:100]!r}: a zone follows @")
        return cls(host=host, bookie_id=host, zone=own or zone)


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Machines of a cluster, and what runs on each.

    Attributes:
        machine: The machines.
        log: Name of the map's log.
        services: Those of `SERVICES` that every machine runs.
        etc: Folder of the configuration on a machine.
        state: Folder of the data on a machine.
        rsm: Path of the command on a machine.
        user: Who runs it there.

    """

    machine: tuple[PlannedMachine, ...]
    log: str = "map"
    services: tuple[str, ...] = USUAL_SERVICES
    etc: str = "/etc/rsm-spark"
    state: str = "/var/lib/rsm-spark"
    rsm: str = "/opt/rsm-spark/bin/rsm"
    user: str = "rsm"

    @classmethod
    def of_hosts(cls, hosts: Sequence[str], **settings: object) -> Self:
        """Return the plan of a new cluster: ZooKeeper on three machines, or on five of many; zones take turns.

        Args:
            hosts: Each as `HOST` or `HOST@ZONE`.
            settings: Of the plan.

        Raises:
            UsageError: Too few machines, or names that are none.

        """
        if len(hosts) < _HOSTS_MIN:
            raise UsageError(
                f"{len(hosts)} machines: give {_HOSTS_MIN} or more, so that one of them may fail; `rsm up` makes a "
                "cluster on one machine"
            )
        ensemble = _ENSEMBLE_MAX if len(hosts) >= _ENSEMBLE_MAX else _HOSTS_MIN
        machines = [PlannedMachine.of(text) for text in hosts]
        for number, place in enumerate(_by_turns(machines)[:ensemble], 1):
            machines[place] = msgspec.structs.replace(machines[place], zookeeper=number)
        return convert({"machine": msgspec.to_builtins(machines), **settings}, cls).checked()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the plan that lies in a folder.

        Raises:
            UsageError: There is none, or it is none.

        """
        path = folder / PLAN_FILE
        try:
            return convert(tomllib.loads(path.read_text(encoding="utf-8")), cls).checked()
        except FileNotFoundError:
            raise UsageError(f"{folder}: it holds no {PLAN_FILE}, so no cluster that was made here") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"{path}: {error}") from error

    def checked(self) -> Self:
        """Return the plan itself.

        Raises:
            UsageError: It names a machine twice, or what no machine or no service is called.

        """
        for machine in self.machine:
            if _HOST.fullmatch(machine.host) is None or machine.host in ("authority", "operator"):
                raise UsageError(
                    f"{machine.host[:100]!r}: expected a machine's name, such as a.example.org, or IPv4 address"
                )
            if _is_number(machine.host) and not is_address(machine.host):
                raise UsageError(f"{machine.host!r} is no IPv4 address")
            if is_address(machine.host) and ipaddress.ip_address(machine.host).is_unspecified:
                raise UsageError(f"{machine.host} is no address by which others reach a machine")
            if machine.bookie_id:
                check_own_id(machine.bookie_id)
            if machine.zone and _ZONE.fullmatch(machine.zone) is None:
                raise UsageError(f"{machine.zone[:100]!r} is no zone: at most 64 letters, digits and . _ -")
        hosts = self.hosts
        if twice := [host for host in hosts if hosts.count(host) > 1]:
            raise UsageError(f"{twice[0]} is named twice: each machine has a name or an address of its own")
        ids = [machine.bookie_id for machine in self.machine if machine.bookie_id]
        if twice := [name for name in ids if ids.count(name) > 1]:
            raise UsageError(f"bookie_id {twice[0]} is there twice: each bookie has a name of its own, for life")
        if self.zones and (without := [machine.host for machine in self.machine if not machine.zone]):
            raise UsageError(f"{without[0]} has no zone, and others have: give it as {without[0]}@ZONE")
        if unknown := [name for name in self.services if name not in SERVICES]:
            raise UsageError(f"--services {unknown[0]!r}: known are {', '.join(SERVICES)}")
        for name, value in (("--etc", self.etc), ("--state", self.state), ("--rsm", self.rsm)):
            if not value.startswith("/") or not re.fullmatch(r"[A-Za-z0-9/._+@-]+", value):
                raise UsageError(f"{name} {value!r}: expected a whole path of letters, digits and /._+@-")
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", self.user):
            raise UsageError(f"--user {self.user!r}: expected the name of a user of the machines")
        check_name(self.log)
        return self

    @property
    def hosts(self) -> list[str]:
        """Names of all machines."""
        return [machine.host for machine in self.machine]

    @property
    def zones(self) -> list[str]:
        """Names of the zones in which machines stand, sorted; none if nobody said."""
        return sorted({machine.zone for machine in self.machine if machine.zone})

    @property
    def ensemble(self) -> list[PlannedMachine]:
        """Machines that run ZooKeeper, by its number."""
        return sorted((one for one in self.machine if one.zookeeper), key=lambda one: one.zookeeper)

    def with_machine(self, text: str) -> Self:
        """Return the plan with one machine more, `HOST` or `HOST@ZONE`; it runs no ZooKeeper.

        Raises:
            UsageError: It is in the plan already, or is no name.

        """
        return msgspec.structs.replace(self, machine=(*self.machine, PlannedMachine.of(text))).checked()

    def replaced(self, old: str, new: str) -> Self:
        """Return the plan with another machine in the place of one, with the number of its ZooKeeper.

        Args:
            old: The host that is lost.
            new: `HOST`, which stands in the same zone, or `HOST@ZONE`.

        Raises:
            UsageError: The old one is not in the plan, or the new one is.

        """
        if old not in self.hosts:
            raise UsageError(f"--replace {old}={new}: there is no machine {old}; there are {', '.join(self.hosts)}")
        machines = (
            msgspec.structs.replace(PlannedMachine.of(new, one.zone), zookeeper=one.zookeeper)
            if one.host == old
            else one
            for one in self.machine
        )
        return msgspec.structs.replace(self, machine=tuple(machines)).checked()


def _by_turns(machines: Sequence[PlannedMachine]) -> list[int]:
    """Return the places of machines so that the zones take turns; without zones in their order."""
    before: dict[str, int] = {}
    turns = []
    for place, machine in enumerate(machines):
        turns.append((before.get(machine.zone, 0), place))
        before[machine.zone] = before.get(machine.zone, 0) + 1
    return [place for _, place in sorted(turns)]


def is_address(host: str) -> bool:
    """Tell whether a machine is called by its address."""
    try:
        return bool(ipaddress.IPv4Address(host))
    except ValueError:
        return False


def _is_number(host: str) -> bool:
    return host.replace(".", "").isdigit()
