"""Entries of a file of principals, and the search for a credential's principal. Pure: no IO, no clock.

    [[principal]]
    name = "spark-w1"
    role = "worker"                     # replica, worker, client, tenant, operator, auditor
    tokens = ["9f86d081…"]              # printf %s "$TOKEN" | sha256sum; two while one takes the place of the other
    certificates = ["w1.example.org"]   # names in a client's certificate (subject alternative names: DNS, URI)
    logins = ["w1"]                     # users of a bookie's --auth-file
    scram = "SCRAM-SHA-256$4096:…"      # for PostgreSQL's clients, of one of its tokens: rsm sql verifier TOKEN_FILE
    expires = 2027-01-01T00:00:00Z
    types = ["convert"]                 # the scope: see `ledger.rights.principal.Scope`

    [[token]]                           # as files of tokens have always said it
    name = "ci of acme"
    sha256 = "9f86d081…"
    role = "tenant"                     # admin means operator, viewer means auditor
    tenant = "acme"

Issuers of signed tokens: see `IssuerEntry`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from ledger.decoding import convert
from ledger.errors import UsageError
from ledger.rights.principal import ClientAccess, Principal, Role, Scope
from ledger.rights.scram import ScramVerifier

TOKEN_BYTES_MAX = 8_192
"""Bytes of a token: a signed one is long."""
_NAME_BYTES_MAX = 200
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_OLD_ROLES = {"admin": Role.OPERATOR, "viewer": Role.AUDITOR}
_RATES = frozenset({"rate_per_s", "rate_burst", "rate_tasks_per_s", "rate_bytes_per_s"})
_TABLES = ("tables_read", "tables_write", "tables_schema")
_TABLE_NAMES_MAX = 1_000
_TABLE_CHARS_MAX = 1_024
_SCOPES: dict[Role, frozenset[str]] = {
    Role.REPLICA: frozenset(),
    Role.WORKER: frozenset({"workers", "types", "groups", "tenants"}),
    Role.CLIENT: frozenset({"logs", "prefix", "access", "ledgers", *_TABLES}),
    Role.TENANT: _RATES | {"tenant"},
    Role.OPERATOR: _RATES,
    Role.AUDITOR: _RATES | {"tenant"},
}


class ScopeEntry(Scope, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A role and its scope, as a file says them."""

    role: str
    prefix: str = ""

    def principal(self, name: str, where: str, *, expires_s: float = 0.0, tenant: str = "") -> Principal:
        """Return the principal.

        Args:
            name: Of it.
            where: For messages.
            expires_s: See `Principal`.
            tenant: Instead of the one in the entry; "" = that one.

        Raises:
            UsageError: Role and scope do not go together.

        """
        role = _OLD_ROLES.get(self.role) or _role(self.role, where)
        given = set(msgspec.to_builtins(self)) - {"role", *_CREDENTIALS}
        _check_scope(self, role, given, where, has_tenant=bool(tenant or self.tenant))
        scope = {field: getattr(self, field) for field in Scope.__struct_fields__}
        scope["tenant"] = tenant or self.tenant
        return Principal(name=name, role=role, prefix=self.prefix.encode(), expires_s=expires_s, **scope)


class _PrincipalEntry(ScopeEntry, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    name: str
    tokens: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    scram: str = ""
    expires: datetime | None = None


class _TokenEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sha256: str
    role: str
    name: str = ""
    tenant: str = ""
    rate_per_s: float | None = None
    rate_burst: int | None = None
    rate_tasks_per_s: float | None = None
    rate_bytes_per_s: float | None = None
    expires: datetime | None = None


class IssuerRule(ScopeEntry, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Rule that makes a signed token a principal: the first rule of its issuer that fits decides.

    Attributes:
        claim: Its name; "" = every token fits.
        value: What the claim says, or one of what it lists.
        tenant_claim: Claim that names the tenant; "" = `tenant` does.

    """

    claim: str = ""
    value: str = ""
    tenant_claim: str = ""


class IssuerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Issuer whose signed tokens (JWT) are believed.

    Attributes:
        name: The claim `iss`, letter by letter.
        audience: What the claim `aud` names.
        keys: File of public keys beside this one: a JWK set (.json), or PEM.
        algorithms: That are taken: RS256, ES256, EdDSA.
        name_claim: Claim that names the principal.
        leeway_s: By which clocks may differ.
        rule: See `IssuerRule`.

    """

    name: str
    audience: str
    keys: str
    algorithms: tuple[str, ...] = ("ES256", "RS256", "EdDSA")
    name_claim: str = "sub"
    leeway_s: float = 30.0
    rule: tuple[IssuerRule, ...] = ()


class RightsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    principal: list[_PrincipalEntry] = []
    token: list[_TokenEntry] = []
    issuer: list[IssuerEntry] = []


_CREDENTIALS = frozenset({
    "name", "tokens", "certificates", "logins", "scram", "expires", "claim", "value", "tenant_claim",
})  # fmt: skip


class Principals:
    """Principals by their credentials.

    Attributes:
        count: How many there are.
        entries: (principal, hashes of tokens and its verifier, names of certificates, users at bookies), by name;
            "" = those of tokens without one.

    """

    def __init__(self) -> None:
        self.count = 0
        self.entries: dict[str, list[tuple[Principal, tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {}
        self._by_token: dict[bytes, Principal] = {}
        self._by_certificate: dict[str, Principal] = {}
        self._by_login: dict[str, Principal] = {}
        self._by_scram: dict[str, tuple[Principal, ScramVerifier]] = {}

    def add(
        self,
        principal: Principal,
        where: str,
        *,
        tokens: Iterable[str] = (),
        certificates: Iterable[str] = (),
        logins: Iterable[str] = (),
        scram: str = "",
    ) -> None:
        """Take a principal in.

        Args:
            principal: The principal.
            where: For messages.
            tokens: SHA-256 of its tokens, in hex digits.
            certificates: Names of its certificates.
            logins: Its users at bookies.
            scram: Verifier of one of its tokens; "" = it has none.

        Raises:
            UsageError: A credential is none, or another principal has it.

        """
        tokens, certificates, logins = tuple(tokens), tuple(certificates), tuple(logins)
        self.count += 1
        secrets = (*tokens, scram) if scram else tokens
        self.entries.setdefault(principal.name, []).append((principal, secrets, certificates, logins))
        if scram:
            self._by_scram[principal.name] = principal, ScramVerifier.of_text(scram, where)
        for text in tokens:
            if not _HEX.fullmatch(text):
                raise UsageError(f"{where}: a token is written as 64 hex digits: printf %s $TOKEN | sha256sum")
            _put(self._by_token, bytes.fromhex(text), principal, f"{where}: the same token is there twice")
        for name in certificates:
            _put(self._by_certificate, name.lower(), principal, f"{where}: the certificate {name!r} is there twice")
        for user in logins:
            _put(self._by_login, user, principal, f"{where}: the login {user!r} is there twice")

    def of_token(self, token: bytes, wall_s: float) -> Principal | None:
        """Return whose token this is; None = nobody's."""
        digest = hashlib.sha256(token).digest()
        # The look-up is by a hash that nobody can steer: how long it takes tells nothing of another's token.
        return _live(self._by_token.get(digest), wall_s)

    def of_certificate(self, names: Iterable[str], wall_s: float) -> Principal | None:
        """Return whose certificate has these names; None = nobody's, or that of two principals."""
        found = {
            principal.name: principal
            for name in names
            if (principal := self._by_certificate.get(name.lower())) is not None
        }
        return _live(next(iter(found.values())), wall_s) if len(found) == 1 else None

    def of_login(self, user: str, wall_s: float) -> Principal | None:
        """Return who a bookie's user is; None = nobody."""
        return _live(self._by_login.get(user), wall_s)

    def of_scram(self, user: str, wall_s: float) -> tuple[Principal, ScramVerifier] | None:
        """Return who proves by SCRAM that it is this user, and how that is verified; None = nobody."""
        found = self._by_scram.get(user)
        return None if found is None or found[0].is_over(wall_s) else found


def read_entries(values: Mapping[str, Any], where: str) -> tuple[Principals, list[IssuerEntry]]:
    """Read what a file says.

    Args:
        values: Of the TOML file.
        where: Its name, for messages.

    Raises:
        UsageError: It says something that makes no sense.

    """
    try:
        file = convert(values, RightsFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from None
    principals = Principals()
    names: set[str] = set()
    for number, entry in enumerate(file.principal, 1):
        here = f"{where}: principal {number}{f' ({entry.name})' if entry.name else ''}"
        if not entry.name or not entry.name.isprintable() or len(entry.name.encode()) > _NAME_BYTES_MAX:
            raise UsageError(f"{here}: a name has 1 to {_NAME_BYTES_MAX} bytes that can be printed")
        if entry.name in names:
            raise UsageError(f"{here}: two principals have this name")
        names.add(entry.name)
        principals.add(
            entry.principal(entry.name, here, expires_s=_seconds(entry.expires, here)), here, tokens=entry.tokens,
            certificates=entry.certificates, logins=entry.logins, scram=entry.scram,
        )  # fmt: skip
    for number, token in enumerate(file.token, 1):
        here = f"{where}: token {number}{f' ({token.name})' if token.name else ''}"
        principal = _of_old_token(token, here)
        principals.add(principal, here, tokens=[token.sha256])
    for issuer in file.issuer:
        for number, rule in enumerate(issuer.rule, 1):
            here = f"{where}: issuer {issuer.name}: rule {number}"
            rule.principal("anyone", here, tenant="any" if rule.tenant_claim else "")
    return principals, file.issuer


def _of_old_token(token: _TokenEntry, where: str) -> Principal:
    if token.role not in (*_OLD_ROLES, *(role.value for role in (Role.OPERATOR, Role.TENANT, Role.AUDITOR))):
        raise UsageError(
            f"{where}: a token has no role {token.role!r}: it is operator, tenant or auditor; write others as "
            "[[principal]]"
        )
    scope = ScopeEntry(
        role=token.role, tenant=token.tenant, rate_per_s=token.rate_per_s, rate_burst=token.rate_burst,
        rate_tasks_per_s=token.rate_tasks_per_s, rate_bytes_per_s=token.rate_bytes_per_s,
    )  # fmt: skip
    return scope.principal(token.name, where, expires_s=_seconds(token.expires, where))


def _role(text: str, where: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise UsageError(f"{where}: role {text!r} is none of {', '.join(role.value for role in Role)}") from None


def _check_scope(entry: ScopeEntry, role: Role, given: set[str], where: str, *, has_tenant: bool) -> None:
    if role is Role.OPERATOR and entry.tenant:
        raise UsageError(f"{where}: an operator belongs to no tenant: leave tenant out, or write role 'tenant'")
    wrong = sorted(given - _SCOPES[role])
    if wrong:
        raise UsageError(f"{where}: {wrong[0]} means nothing for the role {role.value!r}")
    if role is Role.TENANT and not has_tenant:
        raise UsageError(f"{where}: role 'tenant' needs the tenant's name")
    if len(entry.tenant.encode()) > _NAME_BYTES_MAX:
        raise UsageError(f"{where}: the tenant's name is longer than {_NAME_BYTES_MAX} bytes")
    if role is Role.CLIENT and entry.access is ClientAccess.NONE and entry.ledgers is ClientAccess.NONE:
        raise UsageError(f"{where}: a client may do nothing: say access = 'read' or 'write', or ledgers")
    _check_tables(entry, where)
    rates = (entry.rate_per_s, entry.rate_tasks_per_s, entry.rate_bytes_per_s)
    burst = 1 if entry.rate_burst is None else entry.rate_burst
    if any(not 0 <= (rate or 0) < math.inf for rate in rates) or burst < 1:
        raise UsageError(f"{where}: a rate is not negative, a burst 1 at least")


def _check_tables(entry: ScopeEntry, where: str) -> None:
    for field in _TABLES:
        names: tuple[str, ...] | None = getattr(entry, field)
        if names is None:
            continue
        if entry.access is ClientAccess.NONE or (names and field != _TABLES[0] and entry.access is ClientAccess.READ):
            needed = "read' or 'write" if field == _TABLES[0] else "write"
            raise UsageError(f"{where}: {field} means nothing without access = '{needed}'")
        if len(names) > _TABLE_NAMES_MAX or not all(0 < len(name) <= _TABLE_CHARS_MAX for name in names):
            raise UsageError(
                f"{where}: {field} has at most {_TABLE_NAMES_MAX} names, of 1 to {_TABLE_CHARS_MAX} letters each"
            )


def _seconds(expires: datetime | None, where: str) -> float:
    if expires is None:
        return 0.0
    if expires.tzinfo is None:
        raise UsageError(f"{where}: expires needs its time zone: {expires.replace(tzinfo=UTC).isoformat()}")
    return expires.timestamp()


def _put(where: dict[Any, Principal], key: Any, principal: Principal, twice: str) -> None:
    if key in where:
        raise UsageError(twice)
    where[key] = principal


def _live(principal: Principal | None, wall_s: float) -> Principal | None:
    return None if principal is None or principal.is_over(wall_s) else principal
