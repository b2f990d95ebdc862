"""Who may ask for what: a file of tokens, of which only hashes are written down.

    [[token]]
    name = "ci of acme"                 # for logs
    sha256 = "9f86d081…"                # printf %s "$TOKEN" | sha256sum
    role = "tenant"                     # admin: everything. tenant: its own. viewer: looks only
    tenant = "acme"                     # whose; of a viewer without one: all
    rate_per_s = 100.0                  # requests a second, 0 = no limit; without it the server's
    rate_burst = 200
    expires = 2027-01-01T00:00:00Z

The file is read again when it has changed. One that cannot be read any more changes nothing and is complained of: a
slip of the pen must not lock everybody out, nor let anybody in.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import tomllib
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from broker.core.limits import NAME_BYTES_MAX
from broker.http.rates import TokenBucket
from ledger.errors import UsageError

__all__ = ["ADMINISTRATOR", "Caller", "Role", "TokenEntry", "Tokens"]

_log = logging.getLogger(__name__)
_LOOK_S = 1.0
_TOKEN_BYTES_MAX = 1_024
_HEX = re.compile(r"[0-9a-fA-F]{64}")


class Role(StrEnum):
    """ADMIN: everything. TENANT: what is its own. VIEWER: looks only, at one tenant's or at all."""

    ADMIN = "admin"
    TENANT = "tenant"
    VIEWER = "viewer"


class TokenEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One token of the file; see the module."""

    sha256: str
    role: Role
    name: str = ""
    tenant: str = ""
    rate_per_s: float | None = None
    rate_burst: int | None = None
    expires: datetime | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: list[TokenEntry] = []


class Caller:
    """Who asks.

    Args:
        role: See `Role`.
        tenant: Whose things alone it sees; "" = all.
        name: For logs.
        bucket: Of its requests; None = no limit.
        expires_s: Wall clock after which it is nobody; 0 = never.

    Attributes:
        running: Its requests that are not answered yet.

    """

    __slots__ = ("bucket", "expires_s", "name", "role", "running", "tenant")

    def __init__(
        self, role: Role, tenant: str = "", name: str = "", bucket: TokenBucket | None = None, expires_s: float = 0.0
    ) -> None:
        self.role = role
        self.tenant = tenant
        self.name = name
        self.bucket = bucket
        self.expires_s = expires_s
        self.running = 0


ADMINISTRATOR = Caller(Role.ADMIN)
"""Who asks where there are no tokens: on loopback only."""


class Tokens:
    """The callers of a file.

    Args:
        path: Of the file.
        rate_per_s: Of tokens that say nothing else.
        rate_burst: The same.
        now_s: Monotonic time.

    Attributes:
        failure: Why the file as it is now is not used; "" = it is.

    Raises:
        UsageError: It cannot be used.

    """

    def __init__(self, path: str, *, rate_per_s: float, rate_burst: int, now_s: float) -> None:
        self._path = Path(path)
        self._rate_per_s = rate_per_s
        self._rate_burst = rate_burst
        self._entries: dict[bytes, TokenEntry] = {}
        self._callers: dict[bytes, Caller] = {}
        self.failure = ""
        self._seen = self._stamp()
        self._looked_s = now_s
        self._take(self._read(), now_s)

    def caller(self, authorization: bytes, *, now_s: float, wall_s: float) -> Caller | None:
        """Return whose token a request carries; None = nobody's.

        Args:
            authorization: Header: "Bearer " and the token.
            now_s: Monotonic time.
            wall_s: Wall clock, for tokens that expire.

        """
        if now_s - self._looked_s >= _LOOK_S:
            self._look(now_s)
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not 0 < len(token) <= _TOKEN_BYTES_MAX:
            return None
        digest = hashlib.sha256(token).digest()
        entry = self._entries.get(digest)
        # The look-up is by a hash that nobody can steer; what decides takes the same time whatever it finds.
        expected = bytes.fromhex(entry.sha256) if entry is not None else bytes(32)
        if not hmac.compare_digest(digest, expected) or entry is None:
            return None
        caller = self._callers[digest]
        return None if caller.expires_s and wall_s >= caller.expires_s else caller

    def _look(self, now_s: float) -> None:
        self._looked_s = now_s
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._take(self._read(), now_s)
        except UsageError as error:
            self.failure = str(error)
            _log.error("%s; the tokens read before stay in force", error)
        else:
            self.failure = ""
            _log.info("%s: read again, %d tokens", self._path, len(self._entries))

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - of the fast path
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> list[TokenEntry]:
        try:
            values: dict[str, Any] = tomllib.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            why = "it does not exist" if isinstance(error, FileNotFoundError) else _where(error)
            raise UsageError(f"cannot read tokens from {self._path}: {why}") from None
        try:
            entries = msgspec.convert(values, _File).token
        except msgspec.ValidationError as error:
            raise UsageError(f"{self._path}: {error}") from None
        for number, entry in enumerate(entries, 1):
            _check(entry, f"{self._path}: token {number}{f' ({entry.name})' if entry.name else ''}")
        if len({entry.sha256.lower() for entry in entries}) != len(entries):
            raise UsageError(f"{self._path}: the same token is there twice")
        return entries

    def _take(self, entries: list[TokenEntry], now_s: float) -> None:
        """Take the entries of the file; who stays as it was keeps its bucket."""
        before, kept = self._entries, self._callers
        self._entries, self._callers = {}, {}
        for entry in entries:
            digest = bytes.fromhex(entry.sha256)
            self._entries[digest] = entry
            self._callers[digest] = kept[digest] if before.get(digest) == entry else self._new(entry, now_s)

    def _new(self, entry: TokenEntry, now_s: float) -> Caller:
        rate = self._rate_per_s if entry.rate_per_s is None else entry.rate_per_s
        burst = entry.rate_burst if entry.rate_burst is not None else max(self._rate_burst, int(2 * rate))
        if entry.rate_per_s is not None and entry.rate_burst is None:
            burst = max(1, int(2 * rate))
        bucket = TokenBucket(rate, burst, now_s) if rate else None
        expires_s = entry.expires.timestamp() if entry.expires is not None else 0.0
        return Caller(entry.role, entry.tenant, entry.name, bucket, expires_s)


def _check(entry: TokenEntry, where: str) -> None:
    if not _HEX.fullmatch(entry.sha256):
        raise UsageError(f"{where}: sha256 is 64 hex digits: printf %s $TOKEN | sha256sum")
    if entry.role is Role.TENANT and not entry.tenant:
        raise UsageError(f"{where}: role 'tenant' needs the tenant's name")
    if entry.role is Role.ADMIN and entry.tenant:
        raise UsageError(f"{where}: an administrator belongs to no tenant; role 'tenant' is what it means?")
    if len(entry.tenant.encode()) > NAME_BYTES_MAX:
        raise UsageError(f"{where}: the tenant's name is longer than {NAME_BYTES_MAX} bytes")
    if (entry.rate_per_s or 0) < 0 or (entry.rate_burst if entry.rate_burst is not None else 1) < 1:
        raise UsageError(f"{where}: a rate is not negative, a burst 1 at least")
    if entry.expires is not None and entry.expires.tzinfo is None:
        raise UsageError(f"{where}: expires needs its time zone: {entry.expires.replace(tzinfo=UTC).isoformat()}")


def _where(error: Exception) -> str:
    """Say what is wrong without quoting the file: what a TOML error quotes may be a token."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"no TOML ({str(error).rpartition('(')[2].rstrip(')')})"
    return type(error).__name__
