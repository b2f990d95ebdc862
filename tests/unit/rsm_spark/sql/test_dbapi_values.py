"""Values, types and errors of the DB-API, without a replica."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger.errors import MetadataUnavailableError, UsageError
from rsm_spark.errors import NoLeaderError
from rsm_spark.sql import SqlAbortedError, SqlConflictError, SqlError, dbapi
from rsm_spark.sql.dbapi.errors import translated
from rsm_spark.sql.dbapi.values import kind_of, sent


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SqlError("x", kind="sql"), dbapi.ProgrammingError),
        (SqlError("x", kind="constraint"), dbapi.IntegrityError),
        (SqlError("x", kind="refused"), dbapi.NotSupportedError),
        (SqlError("x", kind="limit"), dbapi.OperationalError),
        (SqlError("x", kind="of a later version"), dbapi.DatabaseError),
        (SqlConflictError("x", kind="conflict"), dbapi.RetryableTransactionError),
        (SqlAbortedError("x", kind="aborted"), dbapi.RetryableTransactionError),
        (UsageError("x"), dbapi.InterfaceError),
        (NoLeaderError("x"), dbapi.OperationalError),
        (MetadataUnavailableError("x"), dbapi.OperationalError),
    ],
)
def test_each_error_has_one_of_the_dbapi(error, kind):
    with pytest.raises(dbapi.Error) as raised, translated():
        raise error
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error


def test_kinds_of_declared_types():
    for declared, kind in (
        ("", "STRING"), ("VARCHAR(20)", "STRING"), ("JSON", "STRING"), ("BIGINT", "NUMBER"),
        ("double precision", "NUMBER"), ("NUMERIC(3, 2)", "NUMBER"), ("BLOB", "BINARY"), ("VARBINARY(3)", "BINARY"),
        ("TIMESTAMP", "DATETIME"),
        ("date", "DATETIME"),
    ):  # fmt: skip
        assert kind_of(declared) == kind


def test_what_is_sent():
    assert sent([True, dt.date(2026, 1, 2)]) == (1, "2026-01-02")
    assert sent({"a": bytearray(b"x")}) == {"a": b"x"}
    for wrong in ("abc", b"abc", 7, [object()]):
        with pytest.raises(dbapi.InterfaceError):
            sent(wrong)
