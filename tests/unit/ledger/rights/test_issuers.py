"""Tokens that somebody else has signed: what is believed, and what is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from ledger.errors import UsageError
from ledger.rights.file import PrincipalsFile
from ledger.rights.principal import Role

NOW_S = 1_000_000.0
EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65_537, 2_048)
ED = ed25519.Ed25519PrivateKey.generate()
ENTRY = """
[[issuer]]
name = "https://login.example"
audience = "rsm"
keys = "keys.json"
leeway_s = 10.0

[[issuer.rule]]
claim = "groups"
value = "operators"
role = "operator"

[[issuer.rule]]
claim = "scope"
value = "tasks"
role = "tenant"
tenant_claim = "org"
"""


def jwk(key: Any, kid: str) -> dict[str, Any]:
    known = jwt.algorithms
    algorithm = {"ec": known.ECAlgorithm, "rsa": known.RSAAlgorithm, "ed": known.OKPAlgorithm}
    made: Any = algorithm[kid]
    return {**json.loads(made.to_jwk(key.public_key())), "kid": kid}


def pem(key: Any) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.fixture
def found(tmp_path: Path) -> PrincipalsFile:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk(EC, "ec"), jwk(RSA, "rsa"), jwk(ED, "ed")]}))
    return principals(tmp_path, ENTRY)


def principals(folder: Path, text: str) -> PrincipalsFile:
    path = folder / "p.toml"
    path.write_text(text)
    path.chmod(0o600)
    return PrincipalsFile(str(path), now_s=0.0)


def signed(key: Any = EC, algorithm: str = "ES256", kid: str | None = "ec", **changes: Any) -> bytes:
    claims = {
        "iss": "https://login.example", "aud": "rsm", "sub": "anna", "exp": NOW_S + 60, "nbf": NOW_S - 60,
        "groups": ["staff", "operators"], **changes,
    }  # fmt: skip
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else None).encode()


@pytest.mark.parametrize(("key", "algorithm", "kid"), [(EC, "ES256", "ec"), (RSA, "RS256", "rsa"), (ED, "EdDSA", "ed")])
def test_a_signed_token_is_who_it_says_as_the_first_rule_that_fits_has_it(
    found: PrincipalsFile, key: Any, algorithm: str, kid: str
) -> None:
    operator = found.of_token(signed(key, algorithm, kid), NOW_S)
    assert operator is not None
    assert (operator.name, operator.role, operator.expires_s) == ("anna", Role.OPERATOR, NOW_S + 70)
    tenant = found.of_token(signed(key, algorithm, kid, groups=None, scope="mail tasks", org="acme"), NOW_S)
    assert tenant is not None
    assert (tenant.role, tenant.tenant) == (Role.TENANT, "acme")


def test_a_token_is_in_force_between_its_times_give_or_take_the_leeway(found: PrincipalsFile) -> None:
    token = signed()
    for wall_s, is_known in ((-71, False), (-69, True), (0, True), (69, True), (70, False), (0, False)):
        # The last one: what has ended once is out of the cache, and the signature still says what it said.
        expected = is_known or (wall_s == 0)
        assert (found.of_token(token, NOW_S + wall_s) is not None) is expected, wall_s


def _none() -> bytes:
    header = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=")
    body = signed().split(b".")[1]
    return header + b"." + body + b"."


def _hmac_with_public_key() -> bytes:
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT","kid":"ec"}').rstrip(b"=")
    text = header + b"." + signed().split(b".")[1]
    mac = hmac.new(pem(EC).encode(), text, hashlib.sha256).digest()
    return text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")


@pytest.mark.parametrize(
    "token",
    [
        signed(ec.generate_private_key(ec.SECP256R1())),
        signed(kid="other"),
        signed(kid=None),
        signed(RSA, "RS256", "ec"),
        signed(RSA, "PS256", "rsa"),
        signed(iss="https://other.example"),
        signed(iss=None),
        signed(aud="other"),
        signed(aud=None),
        signed(exp=None),
        signed(sub=None),
        signed(sub=""),
        signed(sub="a\nb"),
        signed(groups=["staff"]),
        signed(groups=None, scope="tasks"),
        signed(groups=None, scope="tasks", org=["acme"]),
        signed()[:-4] + b"AAAA",
        b"..",
        b"a.b.c",
        b"e30." + b"W" * 8_000 + b".e30",
        _none(),
        _hmac_with_public_key(),
    ],
)
def test_what_is_not_signed_for_us_stands_for_nobody(found: PrincipalsFile, token: bytes) -> None:
    assert found.of_token(token, NOW_S) is None


def test_one_key_may_be_a_pem_file_and_is_read_again(tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key.pem").write_text(pem(EC))
    found = principals(tmp_path, ENTRY.replace("keys.json", "key.pem"))
    assert found.of_token(signed(kid=None), NOW_S)
    assert found.of_token(signed(kid="any"), NOW_S)
    (tmp_path / "key.pem").write_text(pem(other))
    found.look(2.0)
    assert found.of_token(signed(), NOW_S) is None, "a key that is gone signs for nobody, whatever it signed before"
    assert found.of_token(signed(other), NOW_S)
    (tmp_path / "key.pem").write_text("rubbish")
    found.look(4.0)
    assert found.of_token(signed(other), NOW_S)
    assert "cannot read public keys" in found.failure


@pytest.mark.parametrize(
    ("change", "keys", "says"),
    [
        (("keys.json", "none.json"), {}, "it does not exist"),
        (("leeway_s = 10.0", 'algorithms = ["HS256"]'), {}, "not one that a public key proves"),
        (("leeway_s = 10.0", 'algorithms = ["none"]'), {}, "not one that a public key proves"),
        (('audience = "rsm"', 'audience = ""'), {}, "needs an audience"),
        (('role = "operator"', 'role = "king"'), {}, "role 'king' is none of"),
        (("x", "x"), {"kty": "oct", "k": "c2VjcmV0", "kid": "s"}, "holds a secret key"),
        (("x", "x"), json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC)), "holds a secret key"),
    ],
)
def test_an_issuer_that_makes_no_sense_is_refused(
    tmp_path: Path, change: tuple[str, str], keys: dict[str, Any], says: str
) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [keys or jwk(EC, "ec")]}))
    with pytest.raises(UsageError, match=says):
        principals(tmp_path, ENTRY.replace(*change))


def test_a_private_key_is_no_public_one(tmp_path: Path) -> None:
    text = EC.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(UsageError, match="private key"):
        principals(tmp_path, ENTRY)
