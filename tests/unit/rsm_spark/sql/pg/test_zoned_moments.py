"""Dates and times with a zone and without a type, as pgjdbc sends them: columns without a zone get them without it."""

from __future__ import annotations

import pytest

from rsm_spark.sql.pg.values import DATE, TEXT, TIME, TIMESTAMP, TIMESTAMPTZ
from rsm_spark.sql.pg.zoned_moments import inserted_columns, without_zone, zoned_places
from tests.unit.rsm_spark.sql.pg import pg_bytes as b
from tests.unit.rsm_spark.sql.pg.pg_talk import Talk


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (DATE, b"2026-01-02 +00", b"2026-01-02"), (DATE, b"2026-01-02 03:04:05+01", b"2026-01-02"),
        (TIMESTAMP, b"2026-01-02 03:04:05.678+05:30", b"2026-01-02 03:04:05.678"),
        (TIMESTAMP, b"2026-01-02 +00", b"2026-01-02 00:00:00"), (TIME, b"03:04:05-03", b"03:04:05"),
        (TIME, b"2026-01-02 +00", b"2026-01-02 +00"), (DATE, b"03:04:05+00", b"03:04:05+00"),
        (TIMESTAMPTZ, b"2026-01-02 03:04:05+00", b"2026-01-02 03:04:05+00"),
        (TEXT, b"2026-01-02 +00", b"2026-01-02 +00"),
    ],
)  # fmt: skip
def test_what_a_column_keeps_of_it(kind: int, value: bytes, kept: bytes) -> None:
    assert zoned_places((0,), (), (value,)) == [0]
    assert without_zone(kind, value) == kept


def test_other_values_are_not_looked_at() -> None:
    values = (b"2026-01-02", b"x", b"5-03", None, b"2026-01-02 +00", b"2026-01-02 +00", b"1" * 100)
    assert zoned_places((0, 0, 0, 0, 25, 0, 0), (0, 0, 0, 0, 0, 1, 0), values) == []


def test_parameters_belong_to_columns() -> None:
    sql = 'INSERT INTO sale ("id","day") VALUES (?1,?2), ( ?3 , ?4 ) ON CONFLICT DO NOTHING'
    assert inserted_columns(sql) == ('SELECT "id","day" FROM sale', {0: 0, 1: 1, 2: 0, 3: 1})
    assert inserted_columns("insert into sale values (?2, ?1)") == ("SELECT * FROM sale", {1: 0, 0: 1})
    for other in (
        "INSERT INTO t VALUES (?1, date(?2))",
        "INSERT INTO t VALUES (?1, ?1)",
        "SELECT ?1",
        "UPDATE t SET d = ?1",
    ):
        assert inserted_columns(other) is None


def test_an_insert_keeps_dates_as_their_columns_do() -> None:
    talk = Talk()
    talk.declared = {"d": "DATE"}
    talk.say(b.query("CREATE TABLE m (d DATE, v TEXT)"))
    insert = b.parse("i", "INSERT INTO m (d, v) VALUES ($1, $2)")
    moment = b"2026-01-02 +00"
    assert talk.say(insert, b.bind("", "i", moment, moment), b.execute(""), b.SYNC)[-2:] == ["C INSERT 0 1", "Z I"]
    assert talk.say(b.query("SELECT d FROM m"))[1] == "D [b'2026-01-02']"
    assert talk.say(b.query("SELECT v FROM m"))[1] == "D [b'2026-01-02 +00']", "a text stays what it is"
    talk.say(b.bind("", "i", moment, None), b.execute(""), b.SYNC)
    assert talk.tasks.count("DescribeRows") == 1, "its columns are learned once"
