"""Statements with many rows of values: one row is respelled for all, and each has its own values."""

from __future__ import annotations

import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.sql.pg.dialect import SpelledStatement, respelled
from rsm_spark.sql.pg.lexing import LexedStatement, statements_of
from rsm_spark.sql.pg.repeated_rows import folded


def _lexed(sql: str) -> LexedStatement:
    (one,) = statements_of(sql)
    return one


def test_many_rows_are_respelled_as_one() -> None:
    rows = ", ".join(f"(${3 * n + 1}::int, ${3 * n + 2}::varchar, {n})" for n in range(500))
    sql = (
        f"INSERT INTO t (a, b) SELECT p0::INT, p1::VARCHAR FROM (VALUES {rows}) AS q(p0, p1, c) ORDER BY c RETURNING a"
    )
    assert len(sql) > 10_000
    spelling = SpelledStatement(_lexed(sql))
    assert spelling.chars < 300
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    values = [value for n in range(500) for value in (str(n), f"v{n}", None)]
    made = base.execute(spelling.sql(), values[:-1]).fetchall()
    assert made == [(n,) for n in range(500)]
    assert base.execute("SELECT a, b FROM t WHERE a = 77").fetchall() == [(77, "v77")]


def test_values_that_were_written_out_stay_in_their_rows() -> None:
    rows = ", ".join(
        f"('it''s ({n}), ?', '2026-01-0{n}'::date, {'-' * (n % 2)}{n}.5, {'NULL' if n % 2 else n})" for n in range(1, 9)
    )
    sql = f"INSERT INTO some_table (name, day, number, other) VALUES {rows} ON CONFLICT (name) DO NOTHING"
    sql += " " * 600
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE some_table (name TEXT UNIQUE, day, number, other)")
    base.execute(respelled(_lexed(sql)))
    assert base.execute("SELECT * FROM some_table").fetchall() == [
        (f"it's ({n}), ?", f"2026-01-0{n}", -n - 0.5 if n % 2 else n + 0.5, None if n % 2 else n) for n in range(1, 9)
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1), (2)",
        "INSERT INTO t VALUES (1), (2), (now())",
        "INSERT INTO t VALUES (DATE '2026-01-01'), (DATE '2026-01-02'), (DATE '2026-01-03')",
        "SELECT * FROM (VALUES (1), (2), (3)), (VALUES (1), (2), (3))",
        "INSERT INTO t VALUES (1), (2), (3",
        "SELECT 'VALUES (1), (2), (3)'",
        'SELECT "VALUES" FROM t WHERE a IN (1)',
    ],
)
def test_rows_that_differ_in_more_than_values_are_left_as_they_are(sql: str) -> None:
    assert folded(sql) is None


@given(
    st.lists(
        st.sampled_from(["VALUES", "(", ")", ",", "1", "'a'", ":p1", "::int", " ", "a", '"', "-", ";"]), max_size=40
    )
)
def test_what_is_folded_unfolds_to_the_same(parts: list[str]) -> None:
    sql = " ".join(parts)
    found = folded(sql)
    if found is None:
        return
    marked = found.sql.replace(":p", "?")
    unfolded = found.unfolded(marked)
    assert unfolded is not None
    spaced = "".join(sql.replace(":p", "?").split())
    assert "".join(unfolded.split()) == spaced


def test_long_texts_are_folded_in_a_time_that_grows_with_their_length() -> None:
    def fold(count: int) -> float:
        began = time.process_time()
        folded("INSERT INTO t VALUES " + ", ".join(["(1, 'a')"] * count))
        return time.process_time() - began

    fold(100)
    assert fold(10_000) < 100 * max(fold(1_000), 0.005), "ten times the text"


def test_long_texts_are_not_read_and_arrays_among_them_become_rows() -> None:
    words = ",".join(f"\"it''s {n}\"" for n in range(2_000))
    numbers = ",".join(map(str, range(2_000)))
    sql = (
        f"INSERT INTO t (a, b) SELECT * FROM UNNEST(('{{{numbers}}}'::int2[])::bigint[], ('{{{words}}}')::varchar[]) "
        "ON CONFLICT DO NOTHING"
    )
    spelling = SpelledStatement(_lexed(sql))
    assert spelling.chars < 300
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    base.execute(spelling.sql())
    assert base.execute("SELECT count(*), max(a) FROM t").fetchone() == (2_000, 1_999)
    assert base.execute("SELECT b FROM t WHERE a = 7").fetchone() == ("it's 7",)


@pytest.mark.parametrize("text", ["?40000", "PG_ARRAY(?32767)", "no array", "{1,2"])
def test_long_texts_are_put_back_as_they_were(text: str) -> None:
    long = text + " " * 600
    assert respelled(_lexed(f"SELECT '{long}', now()")) == f"SELECT '{long}', CURRENT_TIMESTAMP"
