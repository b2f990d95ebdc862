"""SASL's DIGEST-MD5 (RFC 2831) as BookKeeper's own log-in plugin speaks it: both ends, without any I/O.

    client -> bookie   nothing
    bookie -> client   challenge: realm, nonce, algorithm
    client -> bookie   response: user, both nonces, proof that it knows the password
    bookie -> client   proof that the bookie knows it too

The password does not cross the network, but whoever hears a log-in can try passwords against it, at the speed of MD5:
it must be long and random.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from ledger.errors import LoginError

PLUGIN: Final = "sasl"
"""Name of the plugin in BookKeeper's packets."""
DISABLED_PLUGIN: Final = "AuthDisabledPlugin"
"""Plugin that a bookie without log-in names in its answers."""

_REALM: Final = "bookkeeper"
_URI: Final = "bookkeeper/bookkeeper"  # protocol and host; BookKeeper puts a fixed word for the host
_COUNT: Final = "00000001"  # a nonce serves one log-in
_TOKEN_BYTES_MAX: Final = 4096
_DIRECTIVE: Final = re.compile(r'[\s,]*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?=,|$)')


class ClientLogin:
    """A client's part of one log-in.

    Args:
        user: Who logs in.
        password: Its password.
        nonce: At least 64 random bits, as text.

    """

    def __init__(self, user: str, password: str, nonce: str) -> None:
        self._user = user
        self._password = password
        self._nonce = nonce
        self._expected: str | None = None

    def step(self, token: bytes) -> bytes | None:
        """Return what answers the bookie's token; None: it has let us in, and proved that it knows the password.

        Raises:
            LoginError: It is not what this mechanism says.

        """
        fields = _parse(token)
        if self._expected is not None:
            if not _are_equal(fields.get("rspauth", ""), self._expected):
                raise LoginError("the bookie does not prove that it knows the password: it may be an impostor")
            return None
        nonce, realm = fields.get("nonce"), fields.get("realm")
        if not nonce or fields.get("algorithm") != "md5-sess" or "auth" not in fields.get("qop", "auth").split(","):
            raise LoginError(
                f"the bookie asks for a log-in other than DIGEST-MD5 ({', '.join(fields) or 'an empty challenge'}): "
                "only that one is known here, not Kerberos"
            )
        secret = _secret(self._user, realm or "", self._password, nonce, self._nonce)
        self._expected = _proof(secret, nonce, self._nonce, "")
        named = f',realm="{_escape(realm)}"' if realm is not None else ""
        text = (
            f'charset=utf-8,username="{_escape(self._user)}"{named},nonce="{_escape(nonce)}",nc={_COUNT},'
            f'cnonce="{self._nonce}",digest-uri="{_URI}",maxbuf=65536,'
            f"response={_proof(secret, nonce, self._nonce, 'AUTHENTICATE')},qop=auth"
        )
        return text.encode()


class ServerLogin:
    """A bookie's part of one log-in.

    Args:
        passwords: By user.
        nonce: At least 64 random bits, as text; of this log-in alone.

    Attributes:
        user: Who has logged in; None before.

    """

    def __init__(self, passwords: Mapping[str, str], nonce: str) -> None:
        self._passwords = passwords
        self._nonce = nonce
        self._is_challenged = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """Return what answers the client's token; `user` is set when that was the last one.

        Raises:
            LoginError: It is not let in; what the client said does not show in the text.

        """
        if not self._is_challenged:
            if token:
                raise LoginError("a log-in begins with a token that is not empty")
            self._is_challenged = True
            return f'realm="{_REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()
        fields = _parse(token)
        wanted = {"nonce": self._nonce, "nc": _COUNT, "digest-uri": _URI, "realm": _REALM}
        if any(fields.get(name) != value for name, value in wanted.items()) or fields.get("qop", "auth") != "auth":
            raise LoginError("the response is not to this challenge")
        user, client_nonce = fields.get("username", ""), fields.get("cnonce", "")
        asked_for = fields.get("authzid")
        if not client_nonce or asked_for not in (None, user):
            raise LoginError("the response names another user than the one who logs in, or has no nonce")
        password = self._passwords.get(user)
        # The same work for a user that is not known: how long it takes tells nothing.
        secret = _secret(user, _REALM, password or "", self._nonce, client_nonce, asked_for)
        is_right = _are_equal(fields.get("response", ""), _proof(secret, self._nonce, client_nonce, "AUTHENTICATE"))
        if password is None or not is_right:
            raise LoginError("the user is not known, or the password is not the user's")
        self.user = user
        return f"rspauth={_proof(secret, self._nonce, client_nonce, '')}".encode()


def _parse(token: bytes) -> dict[str, str]:
    """Return the directives of a token by name, names in lower case; all of them at most once, but for `realm`."""
    if len(token) > _TOKEN_BYTES_MAX:
        raise LoginError(f"a log-in token of {len(token)} bytes; at most {_TOKEN_BYTES_MAX} are taken")
    try:
        text = token.decode()
    except UnicodeDecodeError as error:
        raise LoginError("a log-in token is no text: not DIGEST-MD5") from error
    if not text.isprintable():
        raise LoginError("a log-in token is no text: not DIGEST-MD5")
    fields: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip(" ,")):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise LoginError("a log-in token cannot be read as DIGEST-MD5")
        name, quoted, plain = match[1].lower(), match[2], match[3]
        if name in fields and name != "realm":  # The first realm of several is as good as any.
            raise LoginError(f"a log-in token says {name} twice")
        fields.setdefault(name, plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = match.end()
    return fields


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _encode(text: str) -> bytes:
    """Return the bytes that are hashed: Latin-1 where that can say it, as the mechanism has it."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _secret(user: str, realm: str, password: str, nonce: str, client_nonce: str, asked_for: str | None = None) -> str:
    key = _md5(b":".join((_encode(user), _encode(realm), _encode(password)))).digest()
    parts = [key, nonce.encode(), client_nonce.encode()]
    if asked_for is not None:
        parts.append(asked_for.encode())
    return _md5(b":".join(parts)).hexdigest()


def _proof(secret: str, nonce: str, client_nonce: str, method: str) -> str:
    what = _md5(f"{method}:{_URI}".encode()).hexdigest()
    return _md5(f"{secret}:{nonce}:{_COUNT}:{client_nonce}:auth:{what}".encode()).hexdigest()


def _are_equal(said: str, expected: str) -> bool:
    return hmac.compare_digest(said.encode(), expected.encode())


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)  # The mechanism prescribes it.
