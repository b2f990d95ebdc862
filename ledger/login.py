"""Log-in at bookies: a client's user and password, and the users that a bookie admits, from files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ledger.errors import UsageError
from ledger.private_files import refuse_loose
from ledger.rereads import Reread, names_changed, reread, shortened
from ledger.rights.file import stamp_of

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 1.0

_SCHEME = "digest"


class LoginSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user of a cluster whose bookies demand a log-in (SASL, DIGEST-MD5).

    Attributes:
        user: Its name.
        password: Its password; shown nowhere.

    """

    user: str
    password: str

    def __repr__(self) -> str:
        """Return who it is, without the password."""
        return f"LoginSettings(user={self.user!r})"


def read_login(path: str) -> LoginSettings:
    """Read a client's log-in: one line, `digest:user:password`.

    Raises:
        UsageError: The file cannot be read, or is of another form. Its contents are not told.

    """
    users = read_users(path)
    if len(users) != 1:
        raise UsageError(f"{path}: expected one line like digest:user:password, found {len(users)}")
    ((user, password),) = users.items()
    return LoginSettings(user=user, password=password)


def read_users(path: str) -> dict[str, str]:
    """Read whom a bookie lets in: lines like `digest:user:password`, empty ones and those with a # in front ignored.

    Returns:
        Passwords by user, at least one.

    Raises:
        UsageError: The file cannot be read, or is of another form. Its contents are not told.

    """
    refuse_loose(path, "users and passwords")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the log-in from {path}: {error}") from error
    users: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        scheme, _, rest = line.partition(":")
        user, _, password = rest.partition(":")
        if scheme != _SCHEME or not user or not password or not line.isprintable():
            raise UsageError(f"{path}: line {number} is not like digest:user:password")
        if user in users:
            raise UsageError(f"{path}: line {number} names a user for the second time")
        users[user] = password
    if not users:
        raise UsageError(f"{path}: expected a line like digest:user:password")
    return users


class UsersFile:
    """Users that a bookie admits, read again when the file has changed; an unreadable change alters nothing.

    Args:
        path: See `read_users`.
        now_s: Monotonic time.

    Raises:
        UsageError: The file cannot be used.

    """

    def __init__(self, path: str, *, now_s: float) -> None:
        self._path = path
        self._looked_s = now_s
        self._seen = stamp_of(Path(path))
        self._users = read_users(path)

    def look(self, now_s: float) -> dict[str, str]:
        """Return passwords by user; looks at the file once a second at most."""
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            stamp = stamp_of(Path(self._path))
            if stamp != self._seen:
                self._seen = stamp
                before = self._users
                try:
                    self._users = read_users(self._path)
                except UsageError as error:
                    _LOGGER.error("%s; the users read before stay in force", error)
                    reread(Reread("users", self._path, "", str(error)), stamp)
                    return self._users
                if self._users != before:
                    reread(Reread("users", self._path, _changes(before, self._users)), stamp)
        return self._users


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    other = [f"{user}: password" for user in sorted(after) if user in before and before[user] != after[user]]
    return ", ".join(filter(None, (names_changed(list(before), list(after)), shortened(other))))
