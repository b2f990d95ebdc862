"""Encryption by AES-256-GCM, with keys of a file.

A key file has one key a line, 64 hexadecimal digits; the first one encrypts, all of them decrypt. To change keys: put a
new one on top, everywhere, and take the old one away when no value of it is left. Lines that begin with # are comments.

    openssl rand -hex 32 >payloads.key; chmod 600 payloads.key

A value says which key it needs by four bytes of the key's SHA-256, and is bound to its place: one that was moved to
another key of the map, to another task or another type is refused. Nonces are random, 96 bits: give way to a new key
before 2^32 values are written.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ledger.errors import UsageError
from rsm_spark.codecs.deflate import DeflateCodec
from rsm_spark.codecs.framing import CodecError

_KEY_BYTES = 32
_NAME_BYTES = 4
_NONCE_BYTES = 12


class AesGcmCodec:
    """See the module.

    Args:
        keys: Of 32 bytes; the first encrypts.
        compresses: Make values smaller before they are encrypted; their length then tells something of what is in them.
        reads_plain: Take values that nobody has encoded too: while a map is being encrypted, and no longer.

    Raises:
        UsageError: There is no key, or one has another length.

    """

    def __init__(self, keys: Sequence[bytes], *, compresses: bool = False, reads_plain: bool = False) -> None:
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise UsageError(f"a codec needs keys of {_KEY_BYTES} bytes, one at least")
        self.codec_id = 3 if compresses else 2
        self.reads_plain = reads_plain
        self._packing = DeflateCodec() if compresses else None
        self._ciphers = {hashlib.sha256(key).digest()[:_NAME_BYTES]: AESGCM(key) for key in keys}
        self._name = hashlib.sha256(keys[0]).digest()[:_NAME_BYTES]

    @classmethod
    def from_file(cls, path: Path | str, *, compresses: bool = False, reads_plain: bool = False) -> Self:
        """Return a codec with the keys of a file.

        Raises:
            UsageError: It cannot be read, is no key file, or others may read it.

        """
        try:
            mode = stat.S_IMODE(Path(path).stat().st_mode)
            lines = [line.strip() for line in Path(path).read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"key file {path}: {error}") from error
        if mode & 0o077:
            raise UsageError(f"key file {path}: others may read it (mode {mode:04o}): chmod 600 {path}")
        try:
            keys = [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]
        except ValueError:
            keys = []
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise UsageError(
                f"key file {path}: expected keys of 64 hexadecimal digits, one a line: openssl rand -hex 32"
            )
        return cls(keys, compresses=compresses, reads_plain=reads_plain)

    def encode(self, plain: bytes, place: bytes) -> bytes:
        """Return the value encrypted for its place."""
        content = plain if self._packing is None else self._packing.encode(plain, place)
        nonce = os.urandom(_NONCE_BYTES)
        return self._name + nonce + self._ciphers[self._name].encrypt(nonce, content, place)

    def decode(self, body: bytes, place: bytes) -> bytes:
        """Return the value.

        Raises:
            CodecError: No key of this codec's wrote it for this place.

        """
        name, nonce = body[:_NAME_BYTES], body[_NAME_BYTES : _NAME_BYTES + _NONCE_BYTES]
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise CodecError(f"{place[:120]!r}: the value was encrypted by key {name.hex()}, which is not here")
        try:
            content = cipher.decrypt(nonce, body[_NAME_BYTES + _NONCE_BYTES :], place)
        except (InvalidTag, ValueError):
            raise CodecError(
                f"{place[:120]!r}: the value does not open with its key {name.hex()}: it was changed, or belongs "
                "elsewhere"
            ) from None
        return content if self._packing is None else self._packing.decode(content, place)
