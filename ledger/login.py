"""Who a client is to bookies that demand a log-in, and whom a bookie lets in: files of users and passwords."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ledger.errors import UsageError

__all__ = ["LoginSettings", "read_login", "read_users"]

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
