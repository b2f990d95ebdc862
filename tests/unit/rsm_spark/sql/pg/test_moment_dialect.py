"""Arithmetic of dates and times, respelled: what SQLite then answers is what PostgreSQL answers."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from rsm_spark.sql.pg.dialect import respelled
from rsm_spark.sql.pg.lexing import statements_of

_AT = "timestamp '2026-03-04 05:06:07.5'"


def _respelled(sql: str) -> str:
    (one,) = statements_of(sql)
    return respelled(one)


def _answer(sql: str, *rows: Any) -> Any:
    base = apsw.Connection(":memory:")
    base.execute("CREATE TABLE m (t TIMESTAMPTZ, v REAL, n INTEGER)")
    base.executemany("INSERT INTO m VALUES (?, ?, ?)", rows)
    return base.execute(_respelled(sql)).fetchall()


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (f"date_bin('5 minutes', {_AT}, timestamp '2001-01-01')", "2026-03-04 05:05:00"),
        (f"date_bin(interval '15 minutes', {_AT}, '2001-01-01 00:02:30+00')", "2026-03-04 05:02:30"),
        ("date_bin('1 day', timestamp '2000-12-31 23:00:00', timestamp '2001-01-01')", "2000-12-31 00:00:00"),
        (f"date_bin('250 ms', {_AT}, timestamp '2001-01-01 00:00:00.1')", "2026-03-04 05:06:07.35"),
        (f"date_trunc('week', {_AT})", "2026-03-02 00:00:00"),
        ("date_trunc('week', timestamp '2026-01-04 23:59:59')", "2025-12-29 00:00:00"),
        ("date_trunc('week', timestamp '2026-01-05 00:00:00', 'UTC')", "2026-01-05 00:00:00"),
        ("date_trunc('quarter', timestamp '2026-12-31 01:00:00')", "2026-10-01 00:00:00"),
        ("date_trunc('quarter', timestamp '2026-01-01 00:00:00')", "2026-01-01 00:00:00"),
        (f"date_trunc('minute', {_AT})", "2026-03-04 05:06:00"),
        ("to_timestamp(1700000000)", "2023-11-14 22:13:20"),
        ("to_timestamp(1284352323.5)", "2010-09-13 04:32:03.5"),
        ("to_timestamp(-1)", "1969-12-31 23:59:59"),
        ("extract(epoch from timestamptz '2001-02-16 20:38:40.12+00:00')", 982355920.12),
        ("extract(epoch from timestamp '2001-02-16 20:38:40.12')", 982355920.12),
        ("extract(epoch from timestamptz '2026-01-02 03:04:05+02:00')", 1767315845),
        ("extract(epoch from interval '5 days 3 hours')", 442800),
        ("extract(epoch from interval '-1 month')", -2592000),
        ("extract(epoch from interval '1 year 1 month')", 34149600),
        ("extract(epoch from (timestamp '2026-01-02 00:00:00' - timestamp '2026-01-01 12:30:00'))", 41400),
        ("date_part('epoch', timestamp '1970-01-01 00:01:30') / 60", 1.5),
        ("floor(extract(epoch from timestamp '2026-01-02 03:04:59.9')/60)*60", 1767323040),
        ("floor(extract(epoch from timestamp '1969-12-31 23:59:30')/60)*60", -60),
        ("extract(week from date '2006-01-01'), extract(isoyear from date '2006-01-01')", (52, 2005)),
        ("extract(isodow from date '2001-02-18'), extract(quarter from date '2001-02-16')", (7, 1)),
        ("timestamp '2001-09-28 01:00:00' + interval '23 hours'", "2001-09-29 00:00:00"),
        ("timestamp '2001-09-28 23:00:00' - interval '23 hours'", "2001-09-28 00:00:00"),
        ("date '2001-09-28' + interval '1 hour'", "2001-09-28 01:00:00"),
        ("timestamp '2026-01-31 00:00:00' + interval '1 month'", "2026-02-28 00:00:00"),
        ("timestamp '2024-02-29 00:00:00' + '1 year'::interval", "2025-02-28 00:00:00"),
        ("timestamp '2026-03-31 12:00:00' - interval '1 month 1 day'", "2026-02-27 12:00:00"),
        ("interval '1 day 2 hours' + timestamp '2026-01-01 00:00:00'", "2026-01-02 02:00:00"),
        ("timestamp '2026-01-01 00:00:00' + 3 * interval '1 day'", "2026-01-04 00:00:00"),
        ("timestamp '2026-01-01 00:00:00' - interval '-01:30:00'", "2026-01-01 01:30:00"),
        (f"{_AT} + interval '1.5 seconds'", "2026-03-04 05:06:09"),
        (f"{_AT} - interval '250 milliseconds'", "2026-03-04 05:06:07.25"),
        (f"{_AT} - interval '1 week'", "2026-02-25 05:06:07.5"),
        ("timestamp '2026-01-01 00:00:00' + interval '1.5 months'", "2026-02-16 00:00:00"),
        ("date '2026-01-01' + (n - 1) * interval '10 minutes' FROM (SELECT 4 AS n)", "2026-01-01 00:30:00"),
    ],
)  # fmt: skip
def test_the_answers_are_those_of_postgresql(sql: str, found: Any) -> None:
    (row,) = _answer(f"SELECT {sql}")
    assert row == (found if isinstance(found, tuple) else (found,))


_ROWS = [
    ("2026-01-02 03:04:05", 1.0, 1767323045),
    ("2026-01-02T03:04:06Z", 2.0, 1767323046),
    ("2026-01-02 05:04:07+02:00", 3.0, 1767323047),
    ("2026-01-01 20:05:07-07:00", 6.0, 1767323107),
    ("2026-01-02 03:05:08.250+00:00", 4.0, 1767323108),
    ("2026-01-02 03:05:09+00", 5.0, 1767323109),
    ("infinity", None, None),
    (None, None, None),
]


def test_a_panel_of_grafana_groups_rows_of_its_range_by_time() -> None:
    sql = (
        'SELECT floor(extract(epoch from t)/60)*60 AS "time", avg(v) AS "v" FROM m '
        "WHERE t BETWEEN '2026-01-02T03:04:05Z' AND '2026-01-02T03:05:08.25Z' GROUP BY 1 ORDER BY 1"
    )
    assert _answer(sql, *_ROWS) == [(1767323040, 2.0), (1767323100, 5.0)]
    assert _answer("SELECT sum(v) FROM m WHERE n >= 1767323046 AND n <= 1767323047", *_ROWS) == [(5.0,)]
    grouped = "SELECT floor((n)/60)*60 AS time, sum(v) FROM m WHERE n >= 1767323045 AND n <= 1767323108 GROUP BY 1"
    assert _answer(grouped, *_ROWS) == [(1767323040, 6.0), (1767323100, 10.0)]
    buckets = "SELECT date_bin('1 minute', t, timestamptz '2001-01-01 00:00:00+00:00') AS b, max(v) FROM m"
    assert _answer(f"{buckets} WHERE t < '2026-01-02T03:05:07.001Z' GROUP BY 1 ORDER BY 1", *_ROWS) == [
        ("2026-01-02 03:04:00", 3.0), ("2026-01-02 03:05:00", 6.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("t >= '2026-01-02T03:05:08.250Z'", [4.0, 5.0, None]),
        ("t > '2026-01-02T04:05:08.250+01:00'", [5.0, None]),
        ("t <= '2026-01-02T03:04:06Z'::timestamptz", [1.0, 2.0]),
        ("t < '2026-01-02T03:04:06Z'", [1.0]),
        ("t NOT BETWEEN '2026-01-02T03:04:06Z' AND '2026-01-02T03:05:09Z'", [1.0, None]),
    ],
)
def test_moments_are_compared_however_they_are_kept(words: str, found: list[float | None]) -> None:
    assert _answer(f"SELECT v FROM m WHERE {words} ORDER BY v NULLS LAST", *_ROWS) == [(one,) for one in found]


def test_moments_are_compared_with_now_however_they_are_kept() -> None:
    ages = [
        ("2 hours", "%Y-%m-%dT%H:%M:%SZ"),
        ("30 minutes", "%Y-%m-%d %H:%M:%S"),
        ("20 minutes", "%Y-%m-%dT%H:%M:%SZ"),
    ]
    base = apsw.Connection(":memory:")
    rows = [
        (*base.execute("SELECT strftime(?, 'now', ?)", (form, f"-{age}")).fetchone(), place, None)
        for place, (age, form) in enumerate(ages)
    ]
    rows.append((*base.execute("SELECT strftime('%Y-%m-%d %H:%M:%S+00', 'now', '-10 minutes')").fetchone(), 3, None))
    for words, found in (
        ("t > now() - interval '1 hour'", [1, 2, 3]),
        ("t < now() - interval '1 hour'", [0]),
        ("t >= now() - interval '1500.5 seconds'", [2, 3]),
        ("t <= now()", [0, 1, 2, 3]),
        (
            "t > now() + interval '1 month' - interval '1 month 3 hours' AND t < now() - interval '15 minutes'",
            [0, 1, 2],
        ),
        ("(t) > (now() - '1 hour'::interval)", [1, 2, 3]),
    ):
        assert _answer(f"SELECT v FROM m WHERE {words} ORDER BY v", *rows) == [(float(one),) for one in found], words


def test_an_index_of_a_column_serves_a_range() -> None:
    base = apsw.Connection(":memory:")
    base.execute("CREATE TABLE m (t TIMESTAMPTZ, v REAL); CREATE INDEX by_t ON m (t)")
    sql = "SELECT v FROM m WHERE t BETWEEN '2026-01-02T03:04:05Z' AND '2026-01-02T03:05:08Z'"
    (plan,) = base.execute("EXPLAIN QUERY PLAN " + _respelled(sql)).fetchall()
    assert "by_t (t>? AND t<?)" in str(plan[3])
    (plan,) = base.execute("EXPLAIN QUERY PLAN " + _respelled("SELECT v FROM m WHERE t > now() - interval '1 day'"))
    assert "by_t (t>?)" in str(plan[3])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT date_bin('1 month', t, timestamp '2001-01-01') FROM m",
        "SELECT date_trunc('week', t, 'Europe/Paris') FROM m",
        "SELECT t + interval '1 fortnight' FROM m",
        "SELECT t + interval '1 day' * 1e400 FROM m",
        "SELECT extract(microseconds from t) FROM m",
    ],
)
def test_what_is_not_respelled_is_an_error(sql: str) -> None:
    with pytest.raises(apsw.SQLError):
        _answer(sql)


@pytest.mark.parametrize("moment", ["2026-13-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+01:00"])
def test_a_text_that_is_no_moment_is_compared_as_it_is(moment: str) -> None:
    assert _respelled(f"SELECT 1 FROM m WHERE t < '{moment}'") == f"SELECT 1 FROM m WHERE t < '{moment}'"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(", " < '2026-01-02T03:04:05Z')"),
        ("date_trunc('quarter', ", ")"),
        ("date_bin('1 hour', t, ", ")"),
        ("extract(epoch from ", " - interval '1 day')"),
    ],
)
def test_what_is_nested_grows_with_its_length_alone(before: str, after: str) -> None:
    for depth in (10, 60):
        sql = f"SELECT {before * depth}t{after * depth} FROM m"
        assert len(_respelled(sql)) < 100 * len(sql) + 20_000


def test_rows_of_moments_are_not_spelled_anew() -> None:
    (one,) = statements_of("INSERT INTO m (t) VALUES ('2026-01-02T03:04:05Z'), ('2026-01-02T03:04:06Z')")
    assert not one.is_foreign
