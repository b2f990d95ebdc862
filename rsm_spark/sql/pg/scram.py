"""The server's side of SCRAM-SHA-256 (RFC 5802): a client proves a secret that it never says. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from ledger.rights.scram import ScramVerifier
from rsm_spark.sql.pg.faults import BAD_PASSWORD, PROTOCOL_VIOLATION, PgFatalFault

MECHANISM = "SCRAM-SHA-256"
_TEXT_BYTES_MAX = 4_000


class ScramServer:
    """One log-in.

    Args:
        verifiers: Of secrets of which any will do; all with one salt and as many iterations.
        nonce: Of this server: printable, of this log-in alone.

    """

    def __init__(self, verifiers: Sequence[ScramVerifier], nonce: str) -> None:
        self._verifiers = tuple(verifiers)
        self._nonce = nonce
        self._bare = ""
        self._header = ""
        self._question = ""

    def first(self, text: bytes) -> bytes:
        """Take what the client says first; return the question.

        Raises:
            PgFatalFault: It is none of SCRAM's messages.

        """
        said = _said(text)
        flag, _, rest = said.partition(",")
        identity, comma, bare = rest.partition(",")
        if flag not in ("n", "y"):
            raise PgFatalFault(PROTOCOL_VIOLATION, "SCRAM: binding to the channel is not offered here")
        nonce = next((one[2:] for one in bare.split(",") if one.startswith("r=")), "")
        if not comma or identity or not nonce or bare.startswith("m="):
            raise PgFatalFault(PROTOCOL_VIOLATION, "SCRAM: the first message is none")
        self._header, self._bare = f"{flag},,", bare
        self._nonce = nonce + self._nonce
        one = self._verifiers[0]
        self._question = f"r={self._nonce},s={base64.b64encode(one.salt).decode()},i={one.iterations}"
        return self._question.encode()

    def final(self, text: bytes) -> bytes:
        """Take the client's proof; return this server's.

        Raises:
            PgFatalFault: It proves nothing.

        """
        said = _said(text)
        without, _, proof_text = said.rpartition(",p=")
        bound = base64.b64encode(self._header.encode()).decode()
        if without != f"c={bound},r={self._nonce}":
            raise PgFatalFault(PROTOCOL_VIOLATION, "SCRAM: the last message is none of this log-in")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except binascii.Error:
            proof = b""
        told = f"{self._bare},{self._question},{without}".encode()
        found: ScramVerifier | None = None
        for one in self._verifiers:  # All of them are tried, whichever fits: the time tells nothing.
            signature = hmac.digest(one.stored_key, told, "sha256")
            client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
            if len(proof) == len(signature) and hmac.compare_digest(
                hashlib.sha256(client_key).digest(), one.stored_key
            ):
                found = one
        if found is None:
            raise PgFatalFault(BAD_PASSWORD, "the password is not this user's token")
        return b"v=" + base64.b64encode(hmac.digest(found.server_key, told, "sha256"))


def initial(content: bytes) -> bytes:
    """Return what a client says first, of the message that also names the mechanism.

    Raises:
        PgFatalFault: It names another one.

    """
    name, zero, rest = content.partition(b"\0")
    if not zero or name != MECHANISM.encode() or len(rest) < 4:
        raise PgFatalFault(PROTOCOL_VIOLATION, f"the mechanism is {MECHANISM}")
    size = int.from_bytes(rest[:4], "big")
    if size != len(rest) - 4:
        raise PgFatalFault(PROTOCOL_VIOLATION, "SCRAM: the first message is not whole")
    return rest[4:]


def _said(text: bytes) -> str:
    if len(text) > _TEXT_BYTES_MAX:
        raise PgFatalFault(PROTOCOL_VIOLATION, "SCRAM: a message is too long")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise PgFatalFault(PROTOCOL_VIOLATION, "SCRAM: a message is not UTF-8") from None
