"""Log-in of PostgreSQL's clients: SCRAM as psycopg's own library does it, tokens, certificates."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger.errors import UsageError
from ledger.rights.callers import Callers
from ledger.rights.principal import CLUSTER, Principal, Role
from ledger.rights.scram import ScramVerifier
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg.faults import PgFatalFault
from rsm_spark.sql.pg.log_in import LogInOutcome, LogInRules, log_in

ANN = Principal(name="ann", role=Role.CLIENT)
SECRET = b"pencil"


def _rules(*secrets: bytes, certificates: dict[str, Principal] | None = None) -> LogInRules:
    verifiers = tuple(ScramVerifier.of_secret(secret, b"0123456789abcdef") for secret in secrets)

    def of_certificate(names: Sequence[str]) -> Principal | None:
        return next((found for name in names if (found := (certificates or {}).get(name))), None)

    return LogInRules(
        False,  # noqa: FBT003
        lambda token: ANN if token == SECRET else None,
        of_certificate,
        lambda user: (ANN, verifiers) if user == "ann" and verifiers else None,
    )


def _client(secret: bytes, rules: LogInRules, *, spoil: str = "") -> LogInOutcome:
    """Log in as RFC 5802 says a client does."""
    steps = log_in("ann", (), rules, "server-nonce")
    assert next(steps) == answers.ASK_SCRAM
    bare = "n=,r=client-nonce"
    first = f"n,,{bare}".encode()
    question = steps.send(b"SCRAM-SHA-256\0" + len(first).to_bytes(4, "big") + first)[9:].decode()
    fields = dict(part.split("=", 1) for part in question.split(","))
    assert fields["r"] == "client-nonceserver-nonce"
    salted = hashlib.pbkdf2_hmac("sha256", secret, base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c=biws,r={fields['r']}{spoil}"
    told = f"{bare},{question},{without}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), told, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    try:
        steps.send(f"{without},p={base64.b64encode(proof).decode()}".encode())
    except StopIteration as done:
        found: LogInOutcome = done.value
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), told, "sha256")
        assert b"v=" + base64.b64encode(server) in found.last_words
        return found
    raise AssertionError("one question too many")


def test_scram_lets_in_who_has_a_secret() -> None:
    rules = _rules(b"another", SECRET)
    found = _client(SECRET, rules)
    assert found.principal == ANN
    assert found.again() == ANN


@pytest.mark.parametrize(("secret", "spoil"), [(b"wrong", ""), (SECRET, "x")])
def test_scram_lets_in_nobody_else(secret: bytes, spoil: str) -> None:
    with pytest.raises(PgFatalFault):
        _client(secret, _rules(SECRET), spoil=spoil)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"PLAIN\0\0\0\0\0",
        b"SCRAM-SHA-256\0\0\0\0\5p=x,,",
        b"SCRAM-SHA-256\0\0\0\0\3n,,",
        b"SCRAM-SHA-256\0\0\0\0\1\xff",
    ],
)  # fmt: skip
def test_what_is_no_message_of_scram_is_refused(said: bytes) -> None:
    steps = log_in("ann", (), _rules(SECRET), "nonce")
    next(steps)
    with pytest.raises(PgFatalFault):
        steps.send(said)


def test_without_a_verifier_the_token_is_the_password() -> None:
    for said, is_right in ((SECRET + b"\0", True), (b"wrong\0", False), (SECRET, False)):
        steps = log_in("anybody", (), _rules(SECRET), "nonce")
        assert next(steps) == answers.ASK_PASSWORD
        with pytest.raises(StopIteration if is_right else PgFatalFault):
            steps.send(said)


def test_a_certificate_is_enough_for_its_own_principal() -> None:
    rules = _rules(SECRET, certificates={"ann.example.org": ANN})
    with pytest.raises(StopIteration) as done:
        next(log_in("ann", ("ann.example.org",), rules, "nonce"))
    assert done.value.value.principal == ANN
    assert next(log_in("bob", ("ann.example.org",), rules, "nonce")) == answers.ASK_PASSWORD


def test_a_verifier_is_read_back_and_others_are_refused() -> None:
    one = ScramVerifier.of_secret(SECRET, b"0123456789abcdef")
    assert ScramVerifier.of_text(str(one), "here") == one
    for wrong in ("", "md5abc", str(one)[:-1], str(one).replace("4096", "1"), str(one).replace(":", "")):
        with pytest.raises(UsageError, match="rsm sql verifier"):
            ScramVerifier.of_text(wrong, "here")


def test_the_clusters_tokens_are_secrets_of_every_user(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first-token-0123456789\nsecond-token-0123456789\n")
    path.chmod(0o600)
    callers = Callers(None, str(path))
    rules = LogInRules(callers.is_open, callers.of_token, callers.of_certificate, callers.by_scram)
    for secret in (b"first-token-0123456789", b"second-token-0123456789"):
        assert _client(secret, rules).principal == CLUSTER
    with pytest.raises(PgFatalFault):
        _client(b"third-token-0123456789", rules)
    assert Callers().by_scram("ann") is None
