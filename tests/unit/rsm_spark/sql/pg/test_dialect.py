"""Texts cut into statements, and PostgreSQL's spellings respelled as SQLite's."""

from __future__ import annotations

import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.sql.pg.dialect import respelled
from rsm_spark.sql.pg.faults import PgFault
from rsm_spark.sql.pg.lexing import STATEMENTS_MAX, statements_of


def _respelled(sql: str) -> str:
    (one,) = statements_of(sql)
    return respelled(one)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT $1, $12", "SELECT ?1, ?12"),
        ("SELECT 'it''s $1', \"a;$1\"", "SELECT 'it''s $1', \"a;$1\""),
        (r"SELECT E'a\tb\'c\x41\u00e4'", "SELECT 'a\tb''cAä'"),
        ("SELECT $$it's$$, $x$ $$ $x$", "SELECT 'it''s', ' $$ '"),
        ("SELECT 1 /* a; /* b; */ c */ -- d;", "SELECT 1   -- d;"),
        ("SELECT a FROM t LEFT JOIN u ON a = b", "SELECT a FROM t LEFT JOIN u ON a = b"),
        ("SELECT a::text, b::int8 FROM public.t", "SELECT CAST(a AS TEXT), CAST(b AS INTEGER) FROM t"),
        ("SELECT 1 FROM t WHERE a = ANY($1)", "SELECT 1 FROM t WHERE a IN (SELECT value FROM JSON_EACH(?1))"),
        ("SELECT a::int FROM t WHERE a IN ($1,$2)", "SELECT CAST(a AS INTEGER) FROM t WHERE a IN (?1, ?2)"),
        ("SELECT now() - interval '2 weeks'", "SELECT DATETIME(CURRENT_TIMESTAMP, '-14 days')"),
        ("SELECT pg_catalog.current_schema(), pg_advisory_unlock_all()",
         "SELECT 'public' AS \"current_schema\", NULL AS \"pg_advisory_unlock_all\""),
        ("SELECT upper(current_schema())", "SELECT UPPER('public')"),
        ("TRUNCATE t", "DELETE FROM t"),
        ("DROP TABLE a CASCADE", "DROP TABLE a"),
        ("CREATE INDEX CONCURRENTLY i ON t (a varchar_pattern_ops, b)", "CREATE INDEX i ON t(a, b)"),
        ("INSERT INTO t SELECT 1 ON CONFLICT DO NOTHING", "INSERT INTO t SELECT 1 WHERE TRUE ON CONFLICT DO NOTHING"),
        ("SELECT at AT TIME ZONE 'UTC', ARRAY[1, 2] FROM t", "SELECT at, JSON_ARRAY(1, 2) FROM t"),
        ("SELECT a FROM t FOR UPDATE", "SELECT a FROM t"),
        ("CREATE TABLE t (id SERIAL PRIMARY KEY, v VARCHAR(9), ok BOOLEAN)",
         "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v VARCHAR(9), ok BOOLEAN)"),
        ("INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET a = now() RETURNING id",
         "INSERT INTO t (a) VALUES (?1) ON CONFLICT(a) DO UPDATE SET a = CURRENT_TIMESTAMP RETURNING id"),
        ("SELECT " + "(" * 800 + "1::int" + ")" * 800, "SELECT " + "(" * 800 + "1::int" + ")" * 800),
        ("this is :: no SQL", "this is :: no SQL"),
    ],
)  # fmt: skip
def test_a_statement_is_spelled_as_sqlite_does(sql: str, found: str) -> None:
    assert _respelled(sql) == found


def test_respelled_statements_mean_the_same() -> None:
    base = sqlite3.connect(":memory:")
    for sql, found in (
        (
            "SELECT extract(year from date '2026-03-04'), left('abc', 2), right('abc', 2), '7'::int + 1",
            (2026, "ab", "bc", 8),
        ),
        (
            "SELECT date_trunc('month', timestamp '2026-03-04 05:06:07'), greatest(1, 3), 't'::bool",
            ("2026-03-01 00:00:00", 3, 1),
        ),
        ("SELECT count(*), max(n), min(w) FROM unnest(ARRAY[5, 7], ARRAY['a', 'b']) AS x (n, w)", (2, 7, "a")),
        ("SELECT 3 = ANY('{1,2}'::int[]), 'b' = ANY('{a,b}'::text[])", (0, 1)),
        ("SELECT 2 = ANY(ARRAY[1, 2]), strpos('abc', 'c'), 'abc' ILIKE 'A%'", (1, 3, 1)),
    ):
        assert base.execute(_respelled(sql)).fetchone() == found


def test_a_text_is_cut_at_semicolons_outside_of_texts_and_triggers() -> None:
    trigger = "CREATE TRIGGER x AFTER INSERT ON t BEGIN UPDATE t SET a = CASE WHEN 1 THEN 2 END; DELETE FROM u; END"
    found = statements_of(f"SELECT ';'; ; {trigger};\nSELECT 2;")
    assert [one.sql for one in found] == ["SELECT ';'", trigger, "SELECT 2"]
    assert [one.words[0] for one in found] == ["SELECT", "CREATE", "SELECT"]


@pytest.mark.parametrize(
    "sql", ["SELECT 'a", 'SELECT "a', "SELECT /* a", "SELECT $x$ a", "SELECT $0", "SELECT $99999999999"]
)
def test_a_text_without_an_end_is_refused(sql: str) -> None:
    with pytest.raises(PgFault):
        statements_of(sql)


def test_a_text_has_so_many_statements_at_most() -> None:
    with pytest.raises(PgFault):
        statements_of("SELECT 1;" * (STATEMENTS_MAX + 1))


@given(st.text(st.sampled_from("a1 ;'\"$/*-\\E\n()[]:,éBEGIN"), max_size=60))
def test_any_text_is_cut_or_refused(sql: str) -> None:
    try:
        found = statements_of(sql)
    except PgFault:
        return
    for one in found:
        assert one.sql.strip()
        respelled(one)


@pytest.mark.parametrize("piece", ["'", '"', "$a$", "E'\\", "/*", "--", "$", "CREATE TRIGGER x BEGIN ;", "((", "-+"])
def test_long_texts_are_cut_in_a_time_that_grows_with_their_length(piece: str) -> None:
    def cut(count: int) -> float:
        began = time.process_time()
        try:
            statements_of("SELECT " + piece * count)
        except PgFault:
            pass
        return time.process_time() - began

    cut(100)
    assert cut(40_000) < 100 * max(cut(4_000), 0.005), "ten times the text"
