"""Settings of the door: it is guarded as its replica is, or by what it has of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.errors import UsageError
from rsm_spark.files.settings import FileHttpSettings, FileSettings
from rsm_spark.transport.security import Security


def _door(security: Security, **http: Any) -> FileHttpSettings:
    return FileSettings(data_dir=Path("a"), security=security, http=FileHttpSettings(**http)).door()


def test_the_door_has_the_principals_and_the_certificate_of_the_replica_unless_it_has_its_own() -> None:
    security = Security(principals="who.toml", tls_cert="a.pem", tls_key="a.key", token_file="token")
    door = _door(security)
    assert (door.principals, door.tls_cert, door.tls_key) == ("who.toml", "a.pem", "a.key")
    own = _door(security, principals="others.toml", tls_cert="b.pem", tls_key="b.key")
    assert (own.principals, own.tls_cert, own.tls_key) == ("others.toml", "b.pem", "b.key")
    tokens = _door(security, tokens_file="tokens.toml")
    assert (tokens.principals, tokens.tokens_file) == (None, "tokens.toml")


def test_a_replica_with_a_token_has_no_door_without_one() -> None:
    with pytest.raises(UsageError, match="who may use WebHDFS"):
        _door(Security(token_file="token"))
    assert _door(Security()).principals is None
