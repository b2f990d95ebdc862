"""The key file of a log: JSON, for its owner alone, re-read while a process runs.

    {"format": 1,
     "keys": [{"id": "…16 hex digits", "created": "2026-11-22T18:00:00Z", "secret": "…64 hex digits",
               "private": "…64 hex digits"}]}

Oldest first: the last one seals, all of them verify. `id` is made from the secret (`rsm_spark.core.seal.key_id_of`),
so that a mistyped one is noticed. `private` is the Ed25519 key that signs checkpoints; a file for readers may leave it
out.

The file of public keys is for auditors, and no secret: `{"format": 1, "public_keys": [{"id": …, "public": …}]}`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import UsageError
from ledger.private_files import is_loose
from ledger.rereads import Reread, names_changed, reread
from rsm_spark.core.seal import SECRET_BYTES, KeyRing, LogKey, key_id_of
from rsm_spark.log.signatures import new_private_key, public_key_of, signer

_FORMAT = 1
_FILE_BYTES_MAX = 1_000_000


class KeyLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key as the file says it; hex."""

    id: str
    created: str
    secret: str
    private: str = ""

    def __repr__(self) -> str:
        """Show which key it is, never what it is."""
        return f"KeyLine({self.id})"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    keys: tuple[KeyLine, ...]


class _PublicKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    public: str


class _PublicFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    public_keys: tuple[_PublicKey, ...]


class KeyFile(KeyRing):
    """The keys of a file; `refresh` takes what it holds now.

    Args:
        path: Of the file.
        keys: What it held.
        seen: Identity of the file as read.
        may_sign: Take the private keys too.

    Attributes:
        failure: Why the file could not be read last; "" if it could.

    """

    def __init__(self, path: Path, keys: Sequence[LogKey], seen: tuple[int, ...], *, may_sign: bool = True) -> None:
        super().__init__(keys)
        self.path = path
        self._seen = seen
        self._may_sign = may_sign
        self.failure = ""

    @classmethod
    def read(cls, path: Path, *, may_sign: bool = True) -> Self:
        """Read a key file; a reader leaves the private keys alone.

        Raises:
            UsageError: It cannot be read, others may read it, or it is none.

        """
        seen = _identity(path)
        return cls(path, _log_keys(path, may_sign=may_sign), seen, may_sign=may_sign)

    def refresh(self) -> bool:
        """Read the file again if it is another one; the keys stay as they are while it cannot be read."""
        try:
            seen = _identity(self.path)
            if seen == self._seen:
                return False
            before = self.ids
            self.replace(_log_keys(self.path, may_sign=self._may_sign))
        except UsageError as error:
            if self.failure != str(error):
                reread(Reread("log key", str(self.path), "", str(error)), str(error))
            self.failure = str(error)
            return False
        self._seen, self.failure = seen, ""
        if self.ids != before:
            reread(Reread("log key", str(self.path), f"key {names_changed(before, self.ids)}"), seen)
        return self.ids != before


def new_key() -> KeyLine:
    """Draw a key.

    Raises:
        UsageError: The library for signatures is not installed.

    """
    secret = secrets.token_bytes(SECRET_BYTES)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return KeyLine(key_id_of(secret), created, secret.hex(), new_private_key().hex())


def read_key_file(path: Path) -> tuple[KeyLine, ...]:
    """Return the keys of a file, oldest first.

    Raises:
        UsageError: It cannot be read, others may read it, or it is none.

    """
    try:
        with path.open("rb") as file:
            found_file = os.fstat(file.fileno())
            text = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise UsageError(f"key file {path}: {error.strerror}") from None
    if is_loose(found_file):
        mode = stat.S_IMODE(found_file.st_mode)
        raise UsageError(f"key file {path}: mode {mode:04o} lets others read it: chmod 600 {path}")
    try:
        found = json_decoder(_File).decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"key file {path}: {error}. rsm log key new makes such a file") from None
    if found.format != _FORMAT:
        raise UsageError(f"key file {path}: format {found.format}, this version reads {_FORMAT}")
    if not found.keys:
        raise UsageError(f"key file {path}: it holds no key: rsm log key new --file {path}")
    for line in found.keys:
        secret = _bytes(line.secret, SECRET_BYTES, f"key file {path}: secret of key {line.id}")
        if key_id_of(secret) != line.id:
            raise UsageError(f"key file {path}: the secret of key {line.id} is not the one that this id was made from")
    if len({line.id for line in found.keys}) < len(found.keys):
        raise UsageError(f"key file {path}: a key stands there twice")
    return found.keys


def write_key_file(path: Path, keys: Sequence[KeyLine], *, replace: bool) -> None:
    """Write a key file for the owner alone; it is there whole, or as it was before.

    Raises:
        UsageError: It cannot be written, or is there already and is not to be replaced.

    """
    text = msgspec.json.format(msgspec.json.encode(_File(_FORMAT, tuple(keys))), indent=1) + b"\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # Mode 0600.
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(draft, path)  # noqa: PTH105 - as the rest of the file's life
            else:
                os.link(draft, path)  # Fails if there is one.
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)  # noqa: PTH108 - as above
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError:
        raise UsageError(f"key file {path}: it is there already: rsm log key rotate adds a key to it") from None
    except OSError as error:
        raise UsageError(f"key file {path}: {error.strerror}") from None


def public_file(keys: Sequence[KeyLine]) -> bytes:
    """Return the file of public keys for auditors.

    Raises:
        UsageError: A private key is none, or the library for signatures is not installed.

    """
    public = tuple(_PublicKey(line.id, public_key_of(_private(line)).hex()) for line in keys if line.private)
    return msgspec.json.format(msgspec.json.encode(_PublicFile(_FORMAT, public)), indent=1) + b"\n"


def read_public_keys(path: Path) -> dict[str, bytes]:
    """Return the public keys of a file that `public_file` made, by key id.

    Raises:
        UsageError: It cannot be read, or is none.

    """
    try:
        found = json_decoder(_PublicFile).decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"public keys {path}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"public keys {path}: {error}. rsm log key show-public prints such a file") from None
    return {key.id: _bytes(key.public, 32, f"public keys {path}: key {key.id}") for key in found.public_keys}


def _log_keys(path: Path, *, may_sign: bool) -> list[LogKey]:
    return [_log_key(line, path, may_sign=may_sign) for line in read_key_file(path)]


def _log_key(line: KeyLine, path: Path, *, may_sign: bool) -> LogKey:
    secret = bytes.fromhex(line.secret)
    if not line.private or not may_sign:
        return LogKey(line.id, secret)
    try:
        private = _private(line)
        return LogKey(line.id, secret, signer(private), public_key_of(private))
    except UsageError as error:
        raise UsageError(f"key file {path}: key {line.id}: {error}") from None


def _private(line: KeyLine) -> bytes:
    return _bytes(line.private, 32, f"private key of {line.id}")


def _bytes(text: str, count: int, what: str) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != count:
        raise UsageError(f"{what}: expected {2 * count} hex digits")
    return value


def _identity(path: Path) -> tuple[int, ...]:
    """Return what is another as soon as the file is."""
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"key file {path}: {error.strerror}") from None
    return found.st_ino, found.st_mtime_ns, found.st_size
