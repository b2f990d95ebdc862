"""Plan of a cluster: its machines, and where everything lies on them. It is kept as `cluster.toml` beside the files."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

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
_HOSTS_MIN: Final = 3
_ENSEMBLE_MAX: Final = 5


class PlannedMachine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine.

    Attributes:
        host: Name or IPv4 address by which all others reach it; also the name of its folder.
        zookeeper: Number of its server in ZooKeeper's ensemble, for life; 0 = it runs none.

    """

    host: str
    zookeeper: int = 0


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
        """Return the plan of a new cluster: ZooKeeper on the first three machines, or on the first five of many.

        Raises:
            UsageError: Too few machines, or names that are none.

        """
        if len(hosts) < _HOSTS_MIN:
            raise UsageError(
                f"{len(hosts)} machines: give {_HOSTS_MIN} or more, so that one of them may fail; `rsm up` makes a "
                "cluster on one machine"
            )
        ensemble = _ENSEMBLE_MAX if len(hosts) >= _ENSEMBLE_MAX else _HOSTS_MIN
        machines = [PlannedMachine(host=h, zookeeper=n if n <= ensemble else 0) for n, h in enumerate(hosts, 1)]
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
        hosts = self.hosts
        if twice := [host for host in hosts if hosts.count(host) > 1]:
            raise UsageError(f"{twice[0]} is named twice: each machine has a name or an address of its own")
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
    def ensemble(self) -> list[PlannedMachine]:
        """Machines that run ZooKeeper, by its number."""
        return sorted((one for one in self.machine if one.zookeeper), key=lambda one: one.zookeeper)

    def with_machine(self, host: str) -> Self:
        """Return the plan with one machine more; it runs no ZooKeeper.

        Raises:
            UsageError: It is in the plan already, or is no name.

        """
        return msgspec.structs.replace(self, machine=(*self.machine, PlannedMachine(host=host))).checked()

    def replaced(self, old: str, new: str) -> Self:
        """Return the plan with another machine in the place of one, with the number of its ZooKeeper.

        Raises:
            UsageError: The old one is not in the plan, or the new one is.

        """
        if old not in self.hosts:
            raise UsageError(f"--replace {old}={new}: there is no machine {old}; there are {', '.join(self.hosts)}")
        machines = (msgspec.structs.replace(one, host=new) if one.host == old else one for one in self.machine)
        return msgspec.structs.replace(self, machine=tuple(machines)).checked()


def is_address(host: str) -> bool:
    """Tell whether a machine is called by its address."""
    try:
        return bool(ipaddress.IPv4Address(host))
    except ValueError:
        return False


def _is_number(host: str) -> bool:
    return host.replace(".", "").isdigit()
