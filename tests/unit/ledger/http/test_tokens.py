"""Who a token stands for, and what becomes of a file that changes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from ledger.errors import UsageError
from ledger.http.rates import TokenBucket
from ledger.http.tokens import Caller, Tokens
from ledger.rights.principal import Role
from tests.unit.broker.api.stand import SECRETS, write_tokens


def _tokens(path: Path | str) -> Tokens:
    return Tokens(str(path), rate_per_s=10.0, rate_burst=20, now_s=0.0)


def _caller(tokens: Tokens, secret: str, now_s: float = 0.0, wall_s: float = 0.0) -> Caller | None:
    return tokens.caller(f"Bearer {secret}".encode(), now_s=now_s, wall_s=wall_s)


def _touch(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))


def test_a_token_stands_for_its_role_and_tenant(tmp_path: Path) -> None:
    tokens = _tokens(write_tokens(tmp_path / "tokens.toml"))
    found = {name: _caller(tokens, secret) for name, secret in SECRETS.items()}
    assert {name: (one.role, one.tenant) for name, one in found.items() if one} == {
        "admin": (Role.OPERATOR, ""),
        "acme": (Role.TENANT, "acme"),
        "bolt": (Role.TENANT, "bolt"),
        "viewer": (Role.AUDITOR, ""),
        "acme-viewer": (Role.AUDITOR, "acme"),
    }


@pytest.mark.parametrize(
    "authorization",
    [
        b"", b"Bearer", b"Bearer ", b"Bearer nobody", b"Basic dGhlLWFkbWluaXN0cmF0b3Itcw==",
        b"the-administrator-s", b"Bearer " + b"x" * 2_000, b"Bearer the-administrator-s2",
        b"Bearer eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYWRtaW4ifQ.",
    ],
)  # fmt: skip
def test_what_is_no_token_of_the_file_stands_for_nobody(tmp_path: Path, authorization: bytes) -> None:
    tokens = _tokens(write_tokens(tmp_path / "tokens.toml"))
    assert tokens.caller(authorization, now_s=0.0, wall_s=0.0) is None


def test_a_token_stands_for_nobody_once_it_has_expired(tmp_path: Path) -> None:
    tokens = _tokens(write_tokens(tmp_path / "tokens.toml", acme="expires = 1970-01-01T00:01:40Z"))
    assert _caller(tokens, SECRETS["acme"], wall_s=99.9) is not None
    assert _caller(tokens, SECRETS["acme"], wall_s=100.0) is None


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    tokens = _tokens(write_tokens(path))
    kept = _caller(tokens, SECRETS["admin"])
    text = path.read_text()
    _touch(path, text[: text.index('[[token]]\nname = "acme"')])
    assert _caller(tokens, SECRETS["acme"], now_s=0.5) is not None, "it is looked at once a second"
    assert _caller(tokens, SECRETS["acme"], now_s=1.5) is None
    assert _caller(tokens, SECRETS["admin"], now_s=1.5) is kept, "who stays keeps its bucket"


@pytest.mark.parametrize("broken", ["[[token]", '[[token]]\nrole = "admin"\n', None])
def test_a_file_that_cannot_be_read_any_more_changes_nothing_and_is_complained_of(
    tmp_path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.toml"
    tokens = _tokens(write_tokens(path))
    if broken is None:
        path.unlink()
    else:
        _touch(path, broken)
    with caplog.at_level(logging.ERROR):
        assert _caller(tokens, SECRETS["acme"], now_s=2.0) is not None
    assert tokens.failure in caplog.text
    assert "stay in force" in caplog.text
    write_tokens(path)
    assert _caller(tokens, SECRETS["acme"], now_s=4.0) is not None
    assert tokens.failure == ""


_HASH = "ab" * 32


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "root"', "root"),
        ('[[token]]\nsha256 = "secret"\nrole = "admin"', "64 hex digits"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "tenant"', "needs the tenant"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\ntenant = "acme"', "belongs to no tenant"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\ntenent = "acme"', "tenent"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\nrate_per_s = -1.0', "not negative"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\nrate_tasks_per_s = -1.0', "not negative"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\nrate_bytes_per_s = nan', "not negative"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\nrate_per_s = inf', "not negative"),
        (f'[[principal]]\nname = "w"\nrole = "worker"\ntokens = ["{_HASH}"]\nrate_tasks_per_s = 1.0', "means nothing"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\nexpires = 2027-01-01T00:00:00', "time zone"),
        (f'[[token]]\nsha256 = "{_HASH}"\nrole = "admin"\n' * 2, "twice"),
        ("[[token]", "no TOML"),
        ("[token]\n", "token"),
    ],
)
def test_a_server_does_not_start_with_a_file_that_makes_no_sense(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        _tokens(path)


def test_a_server_does_not_start_when_the_file_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        _tokens(tmp_path / "tokens.toml")


def test_an_error_does_not_quote_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text('secret-by-mistake = "swordfish')
    with pytest.raises(UsageError) as caught:
        _tokens(path)
    assert "swordfish" not in str(caught.value)


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    bucket = TokenBucket(10.0, 3, 0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert bucket.take(0.05) == pytest.approx(0.05)
    assert bucket.take(0.1) == 0.0
    assert bucket.take(0.1) > 0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(1_000.0, 2, 0.0)
    assert [bucket.take(1e6) == 0.0 for _ in range(3)] == [True, True, False]


def test_a_bucket_does_not_empty_when_the_clock_stands() -> None:
    bucket = TokenBucket(1.0, 1, 5.0)
    assert bucket.take(5.0) == 0.0
    assert bucket.take(4.0) == pytest.approx(1.0)


def test_a_bucket_without_a_rate_is_no_limit() -> None:
    bucket = TokenBucket(0.0, 1, 0.0)
    assert {bucket.take(0.0) for _ in range(100)} == {0.0}


def test_a_full_bucket_gives_more_than_it_holds_and_is_empty_for_as_long_as_that_is_worth() -> None:
    bucket = TokenBucket(10.0, 20, 0.0)
    assert bucket.take(0.0, 50) == 0.0
    assert bucket.take(0.0, 1) == pytest.approx(3.1)
    assert bucket.take(3.0, 5) == pytest.approx(0.5)
    assert bucket.take(3.5, 5) == 0.0
    assert bucket.take(4.0, 50) == pytest.approx(1.5), "only once it is full"
    taken = sum(50 for tenth in range(1_000) if bucket.take(4.0 + tenth / 10, 50) == 0.0)
    assert taken <= 10 * 100 + 50, "on average it is the rate"


def test_a_token_has_rates_of_tasks_and_bytes_its_own_or_everybodys(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "tokens.toml", acme="rate_tasks_per_s = 5.0\nrate_bytes_per_s = 0.0")
    tokens = Tokens(
        str(path), rate_per_s=10.0, rate_burst=20, rate_tasks_per_s=50.0, rate_bytes_per_s=1_000.0, now_s=0.0
    )
    acme, bolt = _caller(tokens, SECRETS["acme"]), _caller(tokens, SECRETS["bolt"])
    assert acme is not None
    assert bolt is not None
    assert acme.tasks is not None
    assert acme.bytes is None
    assert [acme.tasks.take(0.0, 10), acme.tasks.take(0.0, 1)] == [0.0, pytest.approx(0.2)]
    assert bolt.tasks is not None
    assert bolt.bytes is not None
    assert [bolt.tasks.take(0.0, 100), bolt.tasks.take(0.0, 1)] == [0.0, pytest.approx(0.02)]
    assert [bolt.bytes.take(0.0, 2_000), bolt.bytes.take(0.0, 1)] == [0.0, pytest.approx(0.001)]
