"""Tokens that somebody else has signed (JWT): checked against public keys of a file, never over the network."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ledger.errors import UsageError
from ledger.rights.entries import IssuerEntry, IssuerRule
from ledger.rights.principal import Principal

try:
    import jwt
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
except ImportError as error:
    raise UsageError(
        "the file of principals names an issuer of signed tokens, which needs PyJWT and cryptography: "
        "pip install 'rsm-spark[server]'"
    ) from error


_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Algorithms of signatures that a public key proves: none of them needs a secret that the server knows."""
_KNOWN_MAX = 10_000
_NAME_BYTES_MAX = 200


class Issuers:
    """Issuers by name.

    Args:
        entries: Of the file.
        folder: Of the file: where key files lie that are named without one.

    Raises:
        UsageError: A key file cannot be used, or an algorithm is none that a public key proves.

    """

    def __init__(self, entries: Sequence[IssuerEntry], folder: Path) -> None:
        self._issuers: dict[str, _Issuer] = {}
        for entry in entries:
            if entry.name in self._issuers:
                raise UsageError(f"the issuer {entry.name!r} is there twice")
            self._issuers[entry.name] = _Issuer(entry, folder / entry.keys)
        # Tokens that were right, with the time of their end: a signature is checked once.
        self._known: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    @property
    def key_ids(self) -> dict[str, tuple[str, ...]]:
        """Ids of each issuer's keys; of one without an id, the fingerprint of the public key."""
        return {name: issuer.key_ids for name, issuer in self._issuers.items()}

    def of_token(self, token: bytes, wall_s: float) -> Principal | None:
        """Return who a token says, if an issuer has signed it and it is in force; else None."""
        digest = hashlib.sha256(token).digest()
        known = self._known.get(digest)
        if known is not None:
            if wall_s < known[1]:
                return known[0]
            del self._known[digest]
            return None
        found = self._check(token, wall_s)
        if found is None:
            return None
        self._known[digest] = found, found.expires_s
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return found

    def _check(self, token: bytes, wall_s: float) -> Principal | None:
        try:
            # Only to choose whose keys are tried: nothing of it is believed before the signature is checked.
            said = jwt.decode(token, options={"verify_signature": False})
            issuer = self._issuers.get(str(said.get("iss", "")))
            return None if issuer is None else issuer.principal(token, wall_s)
        except Exception:  # noqa: BLE001 - whatever a stranger's token does to a library means no
            return None


class _Issuer:
    def __init__(self, entry: IssuerEntry, path: Path) -> None:
        strange = sorted(set(entry.algorithms) - _ALGORITHMS)
        if strange or not entry.algorithms:
            raise UsageError(
                f"issuer {entry.name}: algorithm {strange[0] if strange else ''!r} is not one that a public key "
                f"proves; these are: {', '.join(sorted(_ALGORITHMS))}"
            )
        if not entry.audience or not entry.rule:
            raise UsageError(f"issuer {entry.name}: it needs an audience, and a [[issuer.rule]] at least")
        self._entry = entry
        self._keys = _read_keys(path, entry.name)
        self.key_ids = tuple(sorted(name or _fingerprint(key) for name, key in self._keys.items()))

    def principal(self, token: bytes, wall_s: float) -> Principal | None:
        """Return who it says; raises what PyJWT raises, and ValueError."""
        entry = self._entry
        claims = jwt.decode(
            token, self._key(jwt.get_unverified_header(token)), algorithms=list(entry.algorithms),
            audience=entry.audience, issuer=entry.name,
            # The times are compared below, with the caller's clock.
            options={"require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )  # fmt: skip
        ends_s = float(claims["exp"]) + entry.leeway_s
        if wall_s >= ends_s or wall_s < float(claims.get("nbf", 0)) - entry.leeway_s:
            return None
        name = claims.get(entry.name_claim)
        if not isinstance(name, str) or not 0 < len(name.encode()) <= _NAME_BYTES_MAX or not name.isprintable():
            return None
        for rule in entry.rule:
            if _fits(rule, claims):
                return _principal(rule, claims, name, ends_s)
        return None

    def _key(self, header: dict[str, Any]) -> Any:
        wanted = header.get("kid")
        if wanted in self._keys:
            return self._keys[wanted]
        if len(self._keys) == 1 and (wanted is None or None in self._keys):
            return next(iter(self._keys.values()))
        raise ValueError("no key of this id")


def _fingerprint(key: Any) -> str:
    public = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(public).hexdigest()[:16]}"


def _principal(rule: IssuerRule, claims: dict[str, Any], name: str, ends_s: float) -> Principal | None:
    tenant = ""
    if rule.tenant_claim:
        told = claims.get(rule.tenant_claim)
        if not isinstance(told, str) or not told or not told.isprintable() or len(told.encode()) > _NAME_BYTES_MAX:
            return None
        tenant = told
    return rule.principal(name, "a signed token", expires_s=ends_s, tenant=tenant)


def _fits(rule: IssuerRule, claims: dict[str, Any]) -> bool:
    if not rule.claim:
        return True
    said = claims.get(rule.claim)
    if isinstance(said, str):
        return rule.value == said or rule.value in said.split()
    return isinstance(said, list) and rule.value in said


def _read_keys(path: Path, issuer: str) -> dict[str | None, Any]:
    """Return public keys by id; a key without one, and that of a PEM file, by None."""
    try:
        text = path.read_text(encoding="ascii")
        if not text.lstrip().startswith("{"):
            if "PRIVATE KEY" in text:
                raise UsageError(f"issuer {issuer}: {path} holds a private key: give the public one")
            return {None: load_pem_public_key(text.encode())}
        document = json.loads(text)
        keys: dict[str | None, Any] = {}
        for said in document.get("keys", [document]):
            if said.get("kty") == "oct" or "d" in said:
                raise UsageError(f"issuer {issuer}: {path} holds a secret key: give public ones")
            keys[said.get("kid")] = jwt.PyJWK(said).key
    except (OSError, ValueError, TypeError, KeyError, AttributeError, jwt.PyJWTError) as error:
        why = "it does not exist" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise UsageError(f"issuer {issuer}: cannot read public keys (a JWK set, or PEM) from {path}: {why}") from None
    if not keys:
        raise UsageError(f"issuer {issuer}: {path} holds no key")
    return keys
