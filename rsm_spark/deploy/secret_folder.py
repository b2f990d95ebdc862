"""A folder with an authority and the secrets that go with it, which are made once and stay.

1. Keys and certificates that are in use are never lost: nothing is made anew that is there, unless it is asked for.
2. Folders are 0700, files 0600. Each file is whole or as it was before.
"""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from ledger.errors import UsageError
from ledger.private_files import FILE_MODE, FOLDER_MODE
from rsm_spark.deploy.certificates import SignedPair, new_authority, sign
from rsm_spark.deploy.configuration import OPERATOR
from rsm_spark.log.key_file import new_key, write_key_file

LOOPBACK: Final = ("localhost", "127.0.0.1")
"""Names under which a process is asked by a probe beside it."""
_TOKEN_BYTES = 32
_OWN_PRINCIPALS = "principals.toml"
_OWN_PRINCIPALS_TEXT = """\
# Your own clients, workers, tenants: docs/operations.md, "Who may do what". `rsm {command} --update` puts them into
# the files of all {places}.
"""
_BEGUN = ("authority", OPERATOR)
"""Folders that a first command which was cut off may have left; it goes on with them."""


class SecretFolder:
    """The folder of one cluster's files.

    Args:
        folder: It.
        now: Wall clock, for certificates.
        days: Time of new certificates.

    Attributes:
        command: That writes it.
        places: What its files are for, in a word.
        plan_file: The plan, which is written last: a change that was cut off is made by the same command again.

    """

    command = ""
    places = ""
    plan_file = ""

    def __init__(self, folder: Path, *, now: datetime, days: int) -> None:
        self._folder = folder
        self._now = now
        self._days = days
        self._changed: list[str] = []

    def _refuse_another(self) -> None:
        """Refuse to begin where something lies.

        Raises:
            UsageError: The folder holds something.

        """
        if (self._folder / self.plan_file).exists():
            raise UsageError(
                f"{self._folder} holds a cluster already, and its keys are in use: rsm {self.command} --help says how "
                "it is changed; another -o begins another one"
            )
        if self._folder.exists() and any(path.name not in _BEGUN for path in self._folder.iterdir()):
            raise UsageError(f"{self._folder} holds other files: give a new folder (-o)")

    def _refuse_incomplete(self) -> None:
        """Refuse to change what lacks a secret that only the first command makes.

        Raises:
            UsageError: One is gone.

        """
        for name in ("authority/ca.key", "authority/ca.pem", f"{OPERATOR}/log.key", f"{OPERATOR}/zookeeper.login"):
            if not (self._folder / name).is_file():
                raise UsageError(f"{self._folder}: {name} is gone; put it back from your copy of this folder")

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
            self._put(_OWN_PRINCIPALS, _OWN_PRINCIPALS_TEXT.format(command=self.command, places=self.places).encode())
        try:
            text = path.read_text(encoding="utf-8")
            tomllib.loads(text)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{path}: cannot be read as TOML: {error}") from error
        return f"\n{text}"

    def _token(self, folder: str, name: str = "token") -> str:
        place = f"{folder}/{name}"
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


def _secret() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)
