"""Writes a cluster's files. Secrets are made once and stay; what follows from the plan is written anew when it changes.

1. A folder that holds a cluster is never begun anew: keys and certificates that are in use would be lost.
2. Folders are 0700, files 0600. Each file is whole or as it was before.
3. The plan is written last: a change that was cut off is made by the same command again.
"""

from __future__ import annotations

import json
import os
import secrets
import tomllib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from ledger.errors import UsageError
from ledger.private_files import FILE_MODE, FOLDER_MODE
from rsm_spark.deploy.certificates import SignedPair, new_authority, sign
from rsm_spark.deploy.configuration import OPERATOR, machine_files, operator_files
from rsm_spark.deploy.plan import PLAN_FILE, ClusterPlan
from rsm_spark.deploy.unit import cluster_readme, machine_readme, unit_file
from rsm_spark.log.key_file import new_key, write_key_file

_TOKEN_BYTES = 32
_OWN_PRINCIPALS = "principals.toml"
_OWN_PRINCIPALS_TEXT = """\
# Your own clients, workers, tenants: docs/operations.md, "Who may do what". `rsm init-cluster --update` puts them into
# the files of all machines.
"""
_LOOPBACK = ("localhost", "127.0.0.1")


class WrittenCluster(NamedTuple):
    """Result of a command.

    Attributes:
        plan: As it is now.
        changed: Files that are new or other than before, paths below the folder.

    """

    plan: ClusterPlan
    changed: list[str]


class ClusterFolder:
    """The folder of one cluster's files.

    Args:
        folder: It.
        now: Wall clock, for certificates.
        days: Time of new certificates.

    """

    def __init__(self, folder: Path, *, now: datetime, days: int) -> None:
        self._folder = folder
        self._now = now
        self._days = days
        self._changed: list[str] = []

    def begin(self, plan: ClusterPlan) -> WrittenCluster:
        """Write the files of a new cluster.

        Raises:
            UsageError: The folder holds something, or cannot be written.

        """
        if (self._folder / PLAN_FILE).exists():
            raise UsageError(
                f"{self._folder} holds a cluster already, and its keys are in use: --add, --replace, --renew and "
                "--update change it; another -o begins another one"
            )
        if self._folder.exists() and any(path.name not in _BEGUN for path in self._folder.iterdir()):
            raise UsageError(f"{self._folder} holds other files: give a new folder (-o)")
        return self._write(plan)

    def change(self, plan: ClusterPlan, *, renew: bool = False) -> WrittenCluster:
        """Write what follows from a changed plan.

        Args:
            plan: As it is to be.
            renew: Every machine and the operator get a new certificate and key.

        Raises:
            UsageError: The folder lacks what only its first command makes, or cannot be written.

        """
        for name in ("authority/ca.key", "authority/ca.pem", f"{OPERATOR}/log.key", f"{OPERATOR}/zookeeper.login"):
            if not (self._folder / name).is_file():
                raise UsageError(f"{self._folder}: {name} is gone; put it back from your copy of this folder")
        return self._write(plan, renew=renew)

    def _write(self, plan: ClusterPlan, *, renew: bool = False) -> WrittenCluster:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            authority = self._authority()
            self._operator(authority, renew=renew)
            own = self._own_principals()
            tokens = {name: self._token(name) for name in (OPERATOR, *plan.hosts)}
            for machine in plan.machine:
                etc = f"{machine.host}/etc"
                self._certificate(authority, etc, "host", machine.host, [machine.host, *_LOOPBACK], renew=renew)
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

    def _authority(self) -> SignedPair:
        cert, key = self._folder / "authority/ca.pem", self._folder / "authority/ca.key"
        if not (cert.is_file() and key.is_file()):
            made = new_authority(self._now)
            self._put("authority/ca.key", made.key)
            self._put("authority/ca.pem", made.cert)
        return SignedPair(cert.read_bytes(), key.read_bytes())

    def _operator(self, authority: SignedPair, *, renew: bool) -> None:
        self._certificate(authority, OPERATOR, OPERATOR, OPERATOR, [], renew=renew)
        if not (self._folder / OPERATOR / "zookeeper.login").is_file():
            self._put(f"{OPERATOR}/zookeeper.login", f"digest:rsm:{_secret()}\n".encode())
        path = self._folder / OPERATOR / "log.key"
        if not path.is_file():
            write_key_file(path, [new_key()], replace=False)
            self._changed.append(f"{OPERATOR}/log.key")

    def _certificate(
        self, authority: SignedPair, folder: str, file: str, name: str, hosts: Iterable[str], *, renew: bool
    ) -> None:
        place = self._folder / folder
        if renew or not ((place / f"{file}.pem").is_file() and (place / f"{file}.key").is_file()):
            made = sign(authority, name, list(hosts), self._now, self._days)
            self._put(f"{folder}/{file}.key", made.key)
            self._put(f"{folder}/{file}.pem", made.cert)
        self._put(f"{folder}/ca.pem", authority.cert)

    def _own_principals(self) -> str:
        path = self._folder / _OWN_PRINCIPALS
        if not path.is_file():
            self._put(_OWN_PRINCIPALS, _OWN_PRINCIPALS_TEXT.encode())
        try:
            text = path.read_text(encoding="utf-8")
            tomllib.loads(text)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{path}: cannot be read as TOML: {error}") from error
        return f"\n{text}"

    def _token(self, name: str) -> str:
        place = f"{OPERATOR}/token" if name == OPERATOR else f"{name}/etc/token"
        if not (self._folder / place).is_file():
            self._put(place, f"{_secret()}\n".encode())
        return (self._folder / place).read_text(encoding="ascii").strip()

    def _put(self, name: str, content: bytes) -> None:
        path = self._folder / name
        if path.is_file() and path.read_bytes() == content:
            return
        for folder in reversed(Path(name).parents):  # From the cluster's own folder on.
            (self._folder / folder).mkdir(mode=FOLDER_MODE, exist_ok=True)
        draft = path.with_name(f".{path.name}.new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        self._changed.append(name)


_BEGUN = ("authority", OPERATOR)
"""Folders that a first command which was cut off may have left; it goes on with them."""


def _secret() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def _plan_text(plan: ClusterPlan) -> str:
    values = msgspec.to_builtins(plan)
    machines = values.pop("machine")
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    for machine in machines:
        lines.append("\n[[machine]]\n")
        lines += [f"{key} = {json.dumps(value)}\n" for key, value in machine.items()]
    return "# Written by `rsm init-cluster`, and read by it when the cluster changes.\n" + "".join(lines)
