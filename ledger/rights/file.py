"""A file of principals, read again while the process runs.

One that cannot be read any more changes nothing and is complained of: a slip of the pen must not lock everybody out,
nor let anybody in. A key file of an issuer is read again with it, and when it changes by itself.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ledger.errors import UsageError
from ledger.private_files import refuse_loose
from ledger.rereads import Reread, reread
from ledger.rights.changes import RightsHeld, changes
from ledger.rights.entries import TOKEN_BYTES_MAX, IssuerEntry, Principals, read_entries
from ledger.rights.principal import Principal
from ledger.rights.scram import ScramVerifier

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 1.0


class PrincipalsFile:
    """See the module.

    Args:
        path: Of the file.
        now_s: Monotonic time.
        is_strict: Refuse a file that others may read or change; False for files of tokens, which never were.

    Attributes:
        failure: Why the file as it is now is not used; "" = it is.
        version: Goes up whenever something else is in force: who holds a principal asks again.

    Raises:
        UsageError: It cannot be used.

    """

    def __init__(self, path: str, *, now_s: float, is_strict: bool = True) -> None:
        self.path = Path(path)
        self._is_strict = is_strict
        self.failure = ""
        self.version = 1
        self._looked_s = now_s
        self._watched: Sequence[Path] = (self.path,)
        self._seen = self._stamps()
        self._held = RightsHeld({}, {}, {})
        self._principals, self._issuers = self._read()
        self._seen = self._stamps()

    @property
    def count(self) -> int:
        """Number of principals that the file names."""
        return self._principals.count

    def look(self, now_s: float) -> None:
        """Read the file again if it has changed; looks once a second at most."""
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        before = self._held
        try:
            self._principals, self._issuers = self._read()
        except UsageError as error:
            self.failure = str(error)
            _LOGGER.error("%s; the principals read before stay in force", error)
            reread(Reread("principals", str(self.path), "", self.failure), stamps)
            return
        self.failure = ""
        self.version += 1
        self._seen = self._stamps()
        _LOGGER.info("%s: read again, %d principals", self.path, self.count)
        changed = changes(before, self._held)
        if changed:
            reread(Reread("principals", str(self.path), changed), self._seen)

    def of_token(self, token: bytes, wall_s: float) -> Principal | None:
        """Return whose token this is: of the file, or signed by an issuer; None = nobody's."""
        if not 0 < len(token) <= TOKEN_BYTES_MAX:
            return None
        found = self._principals.of_token(token, wall_s)
        if found is None and self._issuers is not None and token.count(b".") == 2:
            found = self._issuers.of_token(token, wall_s)
        return found

    def of_certificate(self, names: Iterable[str], wall_s: float) -> Principal | None:
        """Return whose certificate has these names; None = nobody's."""
        return self._principals.of_certificate(names, wall_s)

    def of_login(self, user: str, wall_s: float) -> Principal | None:
        """Return who a bookie's user is; None = nobody."""
        return self._principals.of_login(user, wall_s)

    def of_scram(self, user: str, wall_s: float) -> tuple[Principal, ScramVerifier] | None:
        """Return who proves by SCRAM that it is this user, and how that is verified; None = nobody."""
        return self._principals.of_scram(user, wall_s)

    def _stamps(self) -> list[tuple[int, int, int]]:
        return [stamp_of(path) for path in self._watched]

    def _read(self) -> tuple[Principals, Any]:
        try:
            if self._is_strict:
                refuse_loose(self.path, "principals")
            values = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            why = "it does not exist" if isinstance(error, FileNotFoundError) else _why(error)
            raise UsageError(f"cannot read principals from {self.path}: {why}") from None
        principals, entries = read_entries(values, str(self.path))
        watched = [self.path, *(self.path.parent / entry.keys for entry in entries)]
        issuers = _issuers(entries, self.path.parent) if entries else None
        self._watched = watched
        key_ids = {} if issuers is None else issuers.key_ids
        self._held = RightsHeld(principals.entries, {entry.name: entry for entry in entries}, key_ids)
        return principals, issuers


def bearer_token(authorization: bytes) -> bytes:
    """Return the token of a header "Authorization: Bearer …"; empty = there is none."""
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def stamp_of(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file does; zeros if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of a path that is looked at often
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _issuers(entries: list[IssuerEntry], folder: Path) -> Any:
    from ledger.rights.issuers import Issuers  # noqa: PLC0415 - its library only where an issuer is named

    return Issuers(entries, folder)


def _why(error: Exception) -> str:
    """Say what is wrong without quoting the file: what a TOML error quotes may be a token."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"no TOML ({str(error).rpartition('(')[2].rstrip(')')})"
    return type(error).__name__
