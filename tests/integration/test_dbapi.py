"""DB-API 2.0 on SQL tables of a real replica: its compliance suite, and what that does not ask."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dbapi20
import pytest

import rsm_spark.sql
from ledger.dev import DevCluster
from rsm_spark.sql import dbapi
from tests.integration.store_processes import stores

SQL = ("rsm_spark", "sql", "serve")


@pytest.fixture(scope="module")
def served(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("dbapi")
    with stores(cluster.metadata_uri, folder.name, folder) as replicas:
        replicas.start("a", "--transaction-idle-s", "2", "--command-s-max", "60", command=SQL)
        yield cluster.metadata_uri, folder.name


@pytest.fixture
def connection(served: tuple[str, str]) -> Iterator[dbapi.DatabaseConnection]:
    uri, log = served
    made = dbapi.connect(uri, log=log)
    yield made
    made.close()


class TestCompliance(dbapi20.DatabaseAPI20Test):  # type: ignore[misc]
    driver = rsm_spark.sql
    lower_func = None

    @pytest.fixture(autouse=True)
    def _connected(self, served: tuple[str, str]) -> None:
        self.connect_args = served[:1]
        self.connect_kw_args = {"log": served[1]}

    def test_nextset(self) -> None:
        """Statements return one set of rows: there is no `nextset`."""
        assert not hasattr(dbapi.DatabaseCursor, "nextset")

    def test_setoutputsize(self) -> None:
        """See `test_setoutputsize_basic`: it does nothing."""


def value(connection: dbapi.DatabaseConnection, sql: str, parameters: Any = ()) -> Any:
    (row,) = connection.execute(sql, parameters).fetchall()
    return row[0]


def test_a_transaction_begins_by_itself_and_is_kept_by_commit(
    served: tuple[str, str], connection: dbapi.DatabaseConnection
) -> None:
    connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, v TEXT UNIQUE)")
    connection.commit()
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO kept (v) VALUES (?)", [("a",), ("b",)])
    assert (cursor.rowcount, cursor.lastrowid, connection.in_transaction) == (2, 2, True)
    other = dbapi.connect(served[0], log=served[1], autocommit=True)
    assert value(other, "SELECT count(*) FROM kept") == 0
    with pytest.raises(dbapi.IntegrityError, match="UNIQUE"):
        cursor.execute("INSERT INTO kept (v) VALUES (:v)", {"v": "a"})
    assert [row[0] for row in connection.execute("SELECT v FROM kept ORDER BY v")] == ["a", "b"]
    connection.commit()
    assert value(other, "SELECT count(*) FROM kept") == 2
    with pytest.raises(ZeroDivisionError), connection:
        connection.execute("DELETE FROM kept").fetchone if 1 / 0 else None
    with connection:
        connection.execute("SAVEPOINT s")
        connection.execute("DELETE FROM kept")
        connection.execute("ROLLBACK TO s")
        connection.execute("DELETE FROM kept WHERE v = ?", ("a",))
    assert value(other, "SELECT group_concat(v) FROM kept") == "b"
    other.execute("BEGIN")
    other.execute("DELETE FROM kept")
    with pytest.raises(dbapi.InterfaceError, match="open already"):
        other.execute("BEGIN")
    other.execute("ROLLBACK")
    assert other.execute("UPDATE kept SET v = 'c'").rowcount == 1
    assert value(connection, "SELECT v FROM kept") == "c"
    other.close()


def test_thousands_of_rows_are_inserted_one_by_one_in_one_transaction(
    served: tuple[str, str], connection: dbapi.DatabaseConnection
) -> None:
    alone = dbapi.connect(served[0], log=served[1], autocommit=True)
    alone.execute("CREATE TABLE mass (id INTEGER PRIMARY KEY, v BLOB)")
    cursor = alone.cursor()
    cursor.executemany("INSERT INTO mass (v) VALUES (?)", [(n,) for n in range(5_000)])
    assert (cursor.rowcount, cursor.lastrowid) == (5_000, 5_000)
    ids = [(n * 0x9E3779B97F4A7C15) % (1 << 62) + 1_000_000 for n in range(5_000)]
    cursor.executemany("INSERT INTO mass (id) VALUES (?)", [(one,) for one in ids])
    assert (cursor.rowcount, cursor.lastrowid) == (5_000, ids[-1])
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO mass (id) VALUES (?)", [(-n,) for n in range(1, 5_001)])
    connection.commit()
    assert value(alone, "SELECT count(*) FROM mass") == 15_000
    for many in ([(b"x",)] * 10_001, [(bytes(1_000),)] * 5_000):
        with pytest.raises(dbapi.Error, match="at most|does not fit one entry"):
            alone.cursor().executemany("INSERT INTO mass (v) VALUES (?)", many)
        assert value(alone, "SELECT count(*) FROM mass") == 15_000
    assert alone.execute("DELETE FROM mass WHERE id < 0").rowcount == 5_000
    alone.close()


def test_a_transaction_that_is_over_must_be_rolled_back(connection: dbapi.DatabaseConnection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS idle (a)")
    connection.commit()
    connection.execute("INSERT INTO idle VALUES (1)")
    time.sleep(3)  # Longer than a transaction may wait for its client.
    for _ in range(2):
        with pytest.raises(dbapi.RetryableTransactionError):
            connection.execute("INSERT INTO idle VALUES (2)")
    with pytest.raises(dbapi.OperationalError):
        connection.commit()
    assert value(connection, "SELECT count(*) FROM idle") == 0


def test_errors_are_of_the_dbapis_classes(connection: dbapi.DatabaseConnection) -> None:
    for sql, kind in (
        ("SELEC", dbapi.ProgrammingError),
        ("SELECT * FROM nowhere", dbapi.ProgrammingError),
        ("PRAGMA journal_mode", dbapi.NotSupportedError),
        ("SELECT zeroblob(9999999)", dbapi.OperationalError),
    ):
        with pytest.raises(kind):
            connection.execute(sql)
        connection.rollback()
    for wrong in ("text", {1, 2}, (object(),)):
        with pytest.raises(dbapi.InterfaceError):
            connection.execute("SELECT ?", wrong)  # type: ignore[arg-type]
    with pytest.raises(dbapi.ProgrammingError, match="use execute"):
        connection.cursor().executemany("SELECT ?", [(1,)])
    cursor = connection.cursor()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        cursor.execute("SELECT 1")


def test_values_of_python_are_kept_as_text_and_numbers(connection: dbapi.DatabaseConnection) -> None:
    given = (
        True, 1.5, b"\x00", bytearray(b"x"), memoryview(b"y"), dt.date(2026, 1, 2), dt.time(3, 4),
        dt.datetime(2026, 1, 2, 3, 4, 5), Decimal("1.10"), None,
    )  # fmt: skip
    found = connection.execute(f"SELECT {', '.join('?' for _ in given)}", given).fetchone()
    assert found == (1, 1.5, b"\x00", b"x", b"y", "2026-01-02", "03:04:00", "2026-01-02 03:04:05", "1.10", None)
    connection.execute("CREATE TABLE kinds (a VARCHAR(3), b DOUBLE, c BLOB, d TIMESTAMP, e BOOLEAN)")
    description = connection.execute("SELECT * FROM kinds").description
    assert description is not None
    kinds = (dbapi.STRING, dbapi.NUMBER, dbapi.BINARY, dbapi.DATETIME, dbapi.NUMBER)
    assert tuple(column[1] for column in description) == kinds
    assert (dbapi.STRING == dbapi.NUMBER, dbapi.STRING == 3, repr(dbapi.ROWID)) == (False, False, "ROWID")


def test_rows_become_tables_and_data_frames(connection: dbapi.DatabaseConnection) -> None:
    connection.autocommit = True  # A transaction would be over before these libraries are imported.
    connection.execute("CREATE TABLE framed (id INTEGER PRIMARY KEY, price REAL, name TEXT)")
    connection.execute("INSERT INTO framed VALUES (1, 2, 'pen'), (2, 2.5, NULL)")
    sql = "SELECT *, price * 2 AS double FROM framed ORDER BY id"
    table = connection.execute(sql).fetch_arrow_table()
    assert [str(field.type) for field in table.schema] == ["int64", "double", "string", "double"]
    assert table.column("name").to_pylist() == ["pen", None]
    assert connection.execute(sql).fetch_df()["double"].tolist() == [4.0, 5.0]
    cursor = connection.execute(sql)
    cursor.fetchone()
    assert cursor.fetch_polars().rows() == [(2, 2.5, None, 5.0)]
    with pytest.raises(dbapi.ProgrammingError):
        connection.execute("DELETE FROM framed").fetch_df()
