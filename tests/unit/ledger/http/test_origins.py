"""Which names a server answers to, and whose pages may ask it."""

from __future__ import annotations

import pytest

from ledger.http.origins import HostCheck
from ledger.http.problems import HttpProblem


def _check(host: bytes | None, origin: bytes | None = None, bind: str = "127.0.0.1", *allowed: str) -> int:
    checker = HostCheck(bind, allowed, is_encrypted=bind != "127.0.0.1")
    try:
        checker.check(host, origin)
        checker.check(host, origin)
    except HttpProblem as problem:
        return problem.status
    return 200


@pytest.mark.parametrize("host", [b"127.0.0.1:80", b"localhost", b"LOCALHOST:1234", b"[::1]:8080", b"[::1]"])
def test_loopback_is_asked_by_its_own_names(host: bytes) -> None:
    assert _check(host) == 200


@pytest.mark.parametrize(
    "host",
    [b"evil", b"evil:80", b"127.0.0.1.evil.example", b"localhost.evil.example:80", b"10.0.0.1", b"[::2]:80",
     b"xn--localhost", b"127.0.0.1.", b"2130706433"],
)  # fmt: skip
def test_another_name_for_loopback_is_refused(host: bytes) -> None:
    assert _check(host) == 421


@pytest.mark.parametrize(
    "host", [None, b"", b":80", b"localhost:http", b"a@localhost", b"local\x7fhost", b"localhost:8 "]
)
def test_a_request_whose_host_is_none_is_refused(host: bytes | None) -> None:
    assert _check(host) == 400


def test_a_name_that_is_allowed_is_served() -> None:
    assert _check(b"broker.example:443", None, "127.0.0.1", "Broker.example") == 200


def test_beyond_loopback_names_are_checked_only_when_some_are_allowed() -> None:
    assert _check(b"anything", None, "10.0.0.1") == 200
    assert _check(b"anything", None, "10.0.0.1", "broker.example") == 421
    assert _check(b"10.0.0.1:99", None, "10.0.0.1", "broker.example") == 200


def test_pages_of_the_server_itself_may_ask() -> None:
    assert _check(b"localhost:8080", b"http://localhost:8080") == 200
    assert _check(b"a:1", b"https://a:1", "10.0.0.1") == 200


@pytest.mark.parametrize(
    "origin", [b"http://evil", b"null", b"", b"http://localhost:8081", b"https://localhost:8080", b"file://", b"*"]
)
def test_pages_of_other_origins_may_not(origin: bytes) -> None:
    assert _check(b"localhost:8080", origin) == 403
