"""Writes a cluster's files. Secrets are made once and stay; what follows from the plan is written anew when it changes.

1. A folder that holds a cluster is never begun anew: keys and certificates that are in use would be lost.
2. Folders are 0700, files 0600. Each file is whole or as it was before.
3. The plan is written last: a change that was cut off is made by the same command again.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from ledger.errors import UsageError
from rsm_spark.deploy.configuration import CONSOLE, OPERATOR, console_name, machine_files, operator_files
from rsm_spark.deploy.plan import PLAN_FILE, ClusterPlan
from rsm_spark.deploy.secret_folder import LOOPBACK, SecretFolder
from rsm_spark.deploy.unit import cluster_readme, machine_readme, unit_file


class WrittenCluster(NamedTuple):
    """Result of a command.

    Attributes:
        plan: As it is now.
        changed: Files that are new or other than before, paths below the folder.

    """

    plan: ClusterPlan
    changed: list[str]


class ClusterFolder(SecretFolder):
    """The folder of a cluster of machines; see `SecretFolder`."""

    command = "init-cluster"
    places = "machines"
    plan_file = PLAN_FILE

    def begin(self, plan: ClusterPlan) -> WrittenCluster:
        """Write the files of a new cluster.

        Raises:
            UsageError: The folder holds something, or cannot be written.

        """
        self._refuse_another()
        return self._write(plan)

    def change(self, plan: ClusterPlan, *, renew: bool = False) -> WrittenCluster:
        """Write what follows from a changed plan.

        Args:
            plan: As it is to be.
            renew: Every machine and the operator get a new certificate and key.

        Raises:
            UsageError: The folder lacks what only its first command makes, or cannot be written.

        """
        self._refuse_incomplete()
        return self._write(plan, renew=renew)

    def _write(self, plan: ClusterPlan, *, renew: bool = False) -> WrittenCluster:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            authority = self._authority()
            self._operator(authority, renew=renew)
            own = self._own_principals()
            tokens = {OPERATOR: self._token(OPERATOR), **{host: self._token(f"{host}/etc") for host in plan.hosts}}
            if CONSOLE in plan.services:
                tokens |= {console_name(host): self._token(f"{host}/etc", f"{CONSOLE}.token") for host in plan.hosts}
            for machine in plan.machine:
                etc, hosts = f"{machine.host}/etc", [machine.host, *LOOPBACK]
                self._certificate(authority, etc, "host", machine.host, hosts, renew=renew)
                if CONSOLE in plan.services:
                    self._certificate(authority, etc, CONSOLE, console_name(machine.host), hosts, renew=renew)
                for name in ("log.key", "zookeeper.login"):
                    self._put(f"{etc}/{name}", (self._folder / OPERATOR / name).read_bytes())
                for name, text in machine_files(plan, machine, tokens, own).items():
                    self._put(f"{etc}/{name}", text.encode())
                self._put(f"{machine.host}/rsm-node.service", unit_file(plan).encode())
                self._put(f"{machine.host}/README.md", machine_readme(plan, machine).encode())
            for name, text in operator_files(plan).items():
                self._put(f"{OPERATOR}/{name}", text.encode())
            self._put("README.md", cluster_readme(plan).encode())
            self._put(PLAN_FILE, _plan_text(plan).encode())
        except OSError as error:
            raise UsageError(f"{error.filename or self._folder}: {error.strerror or error}") from error
        return WrittenCluster(plan, self._changed)


def _plan_text(plan: ClusterPlan) -> str:
    values = msgspec.to_builtins(plan)
    machines = values.pop("machine")
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    for machine in machines:
        lines.append("\n[[machine]]\n")
        lines += [f"{key} = {json.dumps(value)}\n" for key, value in machine.items()]
    return "# Written by `rsm init-cluster`, and read by it when the cluster changes.\n" + "".join(lines)
