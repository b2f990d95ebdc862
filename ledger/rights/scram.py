"""Verifiers of SCRAM-SHA-256 (RFC 5802, RFC 7677): by them a server knows that a client has a secret. Pure.

    SCRAM-SHA-256$4096:<salt>$<stored key>:<server key>

Whoever has a verifier cannot log in with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

import msgspec

from ledger.errors import UsageError

ITERATIONS: Final = 4096
"""A token is random: more of them would cost callers time, and protect nothing."""
SALT_BYTES: Final = 16
_FORM = re.compile(r"SCRAM-SHA-256\$(\d{1,7}):([A-Za-z0-9+/=]{4,100})\$([A-Za-z0-9+/=]{44}):([A-Za-z0-9+/=]{44})")
_ITERATIONS_MIN = 4096


class ScramVerifier(msgspec.Struct, frozen=True):
    """See the module.

    Attributes:
        iterations: Of the hash.
        salt: Of it.
        stored_key: Proves the client.
        server_key: Proves the server.

    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of_secret(cls, secret: bytes, salt: bytes, iterations: int = ITERATIONS) -> ScramVerifier:
        """Return the verifier of a secret."""
        salted = hashlib.pbkdf2_hmac("sha256", secret, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        stored_key = hashlib.sha256(client_key).digest()
        return cls(iterations, salt, stored_key, hmac.digest(salted, b"Server Key", "sha256"))

    @classmethod
    def of_text(cls, text: str, where: str) -> ScramVerifier:
        """Read a verifier.

        Args:
            text: As `str` returns it.
            where: For messages.

        Raises:
            UsageError: It is none.

        """
        found = _FORM.fullmatch(text)
        parts = () if found is None else tuple(map(_decoded, found.group(2, 3, 4)))
        if found is None or not all(parts) or int(found[1]) < _ITERATIONS_MIN:
            raise UsageError(
                f"{where}: a verifier of SCRAM begins with SCRAM-SHA-256$4096: — rsm sql verifier TOKEN_FILE makes one"
            )
        salt, stored, server = parts
        return cls(int(found[1]), salt, stored, server)

    def __str__(self) -> str:
        """Return it as files keep it."""
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
