"""DIGEST-MD5 against the example of RFC 2831, our two ends against each other, and what neither takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import LoginError
from ledger.wire import sasl_digest
from ledger.wire.sasl_digest import ClientLogin, ServerLogin

USERS = {"hd": "testpwd", 'a "b\\c': 'x"\\,=y', "jürgen": "straße", "яна": "пароль"}


def test_the_example_of_the_rfc(monkeypatch) -> None:
    monkeypatch.setattr(sasl_digest, "_URI", "imap/elwood.innosoft.com")
    client = ClientLogin("chris", "secret", "OA6MHXh6VqTrRk")
    response = client.step(
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    assert b"response=d388dad90d4bbd760a152321f2143af7,qop=auth" in response
    assert client.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


@pytest.mark.parametrize("user", USERS)
def test_the_right_password_lets_in_and_both_ends_prove_it(user: str) -> None:
    server, client = ServerLogin(USERS, "n" * 32), ClientLogin(user, USERS[user], "c" * 32)
    proof = server.step(client.step(server.step(b"")))
    assert server.user == user
    assert client.step(proof) is None


@pytest.mark.parametrize(("user", "password"), [("hd", "other"), ("nobody", "testpwd"), ("nobody", "")])
def test_a_wrong_password_or_user_is_not_let_in_and_not_told_apart(user: str, password: str) -> None:
    server, client = ServerLogin(USERS, "n" * 32), ClientLogin(user, password, "c" * 32)
    with pytest.raises(LoginError, match="not known, or the password is not"):
        server.step(client.step(server.step(b"")))
    assert server.user is None


def test_a_response_to_another_challenge_is_refused() -> None:
    server, client = ServerLogin(USERS, "m" * 32), ClientLogin("hd", "testpwd", "c" * 32)
    server.step(b"")
    with pytest.raises(LoginError, match="not to this challenge"):
        server.step(client.step(ServerLogin(USERS, "n" * 32).step(b"")))


def test_a_bookie_that_does_not_know_the_password_is_an_impostor() -> None:
    client = ClientLogin("hd", "testpwd", "c" * 32)
    client.step(ServerLogin(USERS, "n" * 32).step(b""))
    with pytest.raises(LoginError, match="impostor"):
        client.step(b"rspauth=" + b"0" * 32)


@pytest.mark.parametrize(
    "challenge",
    [b"", b"nonce=x", b'nonce="x",algorithm=sha-256', b'nonce="x",algorithm=md5-sess,qop="auth-conf"', b"\x60\x82"],
)
def test_a_log_in_of_another_kind_is_named(challenge: bytes) -> None:
    with pytest.raises(LoginError, match=r"DIGEST-MD5"):
        ClientLogin("hd", "testpwd", "c" * 32).step(challenge)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_whatever_comes_is_refused_with_one_error(token: bytes) -> None:
    server, client = ServerLogin(USERS, "n" * 32), ClientLogin("hd", "testpwd", "c" * 32)
    server.step(b"")
    for step in (server.step, client.step):
        with pytest.raises(LoginError):
            step(token)


@given(st.data())
def test_a_damaged_response_lets_nobody_in(data: st.DataObject) -> None:
    server = ServerLogin(USERS, "n" * 32)
    response = bytearray(ClientLogin("hd", "testpwd", "c" * 32).step(server.step(b"")))
    maxbuf = response.index(b"maxbuf=") + 6  # what is not part of the proof may be anything
    place = data.draw(st.integers(0, len(response) - 1).filter(lambda i: not maxbuf - 6 <= i < maxbuf + 7))
    response[place] ^= data.draw(st.integers(1, 255))
    try:
        server.step(bytes(response))
    except LoginError:
        assert server.user is None
    else:  # the case of a name, or blanks
        assert server.user == "hd"
