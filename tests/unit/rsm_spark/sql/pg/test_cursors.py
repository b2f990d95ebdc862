"""Cursors in SQL of PostgreSQL's clients: how they are written, how long they live, what is beside a transaction."""

from __future__ import annotations

import pytest

from rsm_spark.sql.pg.cursors import (
    CURSORS_MAX,
    CursorStep,
    DeclaredCursor,
    closed_cursor,
    cursor_step,
    declared_cursor,
)
from rsm_spark.sql.pg.faults import PgFault
from tests.unit.rsm_spark.sql.pg import pg_bytes as b
from tests.unit.rsm_spark.sql.pg.pg_talk import Talk

_ROWS = [f"D [b'{letter}']" for letter in "abcde"]


@pytest.fixture
def talk() -> Talk:
    made = Talk()
    made.say(b.query("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE)"))
    made.say(b.query("INSERT INTO t (v) VALUES ('a'), ('b'), ('c'), ('d'), ('e')"))
    made.tasks.clear()
    return made


def test_what_is_written_is_read() -> None:
    for sql, expected in (
        ("DECLARE c CURSOR FOR SELECT 1", DeclaredCursor("c", is_held=False, query="SELECT 1")),
        ('declare "My ""c" no scroll cursor with hold for SELECT 1', DeclaredCursor('My "c', True, "SELECT 1")),
        ("DECLARE C INSENSITIVE CURSOR WITHOUT HOLD FOR(SELECT 1)", DeclaredCursor("c", False, "(SELECT 1)")),
        (
            "DECLARE c CURSOR FOR SELECT :p1, ':p2', \":p3\" -- it's :p4\n, :p12 ",
            DeclaredCursor("c", False, "SELECT $1, ':p2', \":p3\" -- it's :p4\n, $12"),
        ),
    ):
        assert declared_cursor(sql) == expected
    for sql, rows_max in (
        ("FETCH c", 1), ("FETCH NEXT FROM c", 1), ("FETCH 7 IN c", 7), ("FETCH ALL c", 0), ("FETCH FORWARD c", 1),
        ("FETCH FORWARD 3 FROM C", 3), ('FETCH FORWARD ALL FROM "c"', 0), ("FETCH FROM c", 1),
    ):  # fmt: skip
        assert cursor_step(sql) == CursorStep("c", rows_max, is_move=False)
        assert cursor_step(sql.replace("FETCH", "MOVE")) == CursorStep("c", rows_max, is_move=True)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("DECLARE c SCROLL CURSOR FOR SELECT 1", "0A000"), ("DECLARE c BINARY CURSOR FOR SELECT 1", "0A000"),
        ("DECLARE c FOR SELECT 1", "42601"), ("FETCH", "42601"), ("CLOSE", "42601"),
        ("FETCH PRIOR FROM c", "55000"), ("FETCH -1 FROM c", "55000"), ("FETCH 0 FROM c", "55000"),
        ("FETCH ABSOLUTE 1 FROM c", "55000"), ("MOVE BACKWARD ALL FROM c", "55000"), ("FETCH FORWARD -2 c", "55000"),
        (f"FETCH {'9' * 5_000} FROM c", "42601"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused_in_words(sql: str, code: str) -> None:
    with pytest.raises(PgFault) as refused:
        {"DECLARE": declared_cursor, "CLOSE": closed_cursor}.get(sql.split(maxsplit=1)[0], cursor_step)(sql)
    assert refused.value.code == code


def test_a_cursor_gives_its_rows_in_pieces_and_ends_with_its_transaction(talk: Talk) -> None:
    assert talk.say(b.query("DECLARE c CURSOR FOR SELECT v FROM t")) == ["E 25P01", "Z I"]
    assert talk.say(b.query("BEGIN; DECLARE c CURSOR FOR SELECT v FROM t ORDER BY id")) == [
        "C BEGIN", "C DECLARE CURSOR", "Z T",
    ]  # fmt: skip
    assert talk.say(b.query("FETCH 2 FROM c")) == ["T", *_ROWS[:2], "C FETCH 2", "Z T"]
    assert talk.say(b.query("MOVE c")) == ["C MOVE 1", "Z T"]
    talk.say(b.query("DELETE FROM t"))
    assert talk.say(b.query("FETCH ALL FROM c")) == ["T", *_ROWS[3:], "C FETCH 2", "Z T"], "as it was when declared"
    assert talk.say(b.query("FETCH c")) == ["T", "C FETCH 0", "Z T"]
    assert talk.say(b.query("DECLARE c CURSOR FOR SELECT 1")) == ["E 42P03", "Z E"]
    assert talk.say(b.query("FETCH c")) == ["E 25P02", "Z E"]
    talk.say(b.query("ROLLBACK"))
    assert talk.say(b.query("FETCH c")) == ["E 34000", "Z I"]
    assert talk.say(b.query("CLOSE c")) == ["E 34000", "Z I"]
    assert talk.session.held_bytes == 0
    assert talk.say(b.query("BEGIN; DECLARE c CURSOR FOR SELECT 1; CLOSE c; DECLARE c CURSOR FOR DELETE FROM t")) == [
        "C BEGIN", "C DECLARE CURSOR", "C CLOSE CURSOR", "E 42601", "Z E",
    ]  # fmt: skip


def test_it_takes_values_and_is_described_as_a_portal(talk: Talk) -> None:
    talk.say(b.query("BEGIN"))
    declare = b.parse("", "DECLARE c CURSOR FOR SELECT v, id FROM t WHERE id > $1::int ORDER BY id")
    assert talk.say(declare, b.bind("", "", b"3"), b.describe("P", ""), b.execute(""), b.SYNC) == [
        "1", "2", "n", "C DECLARE CURSOR", "Z T",
    ]  # fmt: skip
    assert talk.say(b.describe("P", "c"), b.SYNC) == ["T", "Z T"]
    fetch = b.parse("f", "FETCH FORWARD 1 FROM c")
    assert talk.say(fetch, b.bind("", "f", results=(0, 1)), b.describe("P", ""), b.execute(""), b.SYNC) == [
        "1", "2", "T", "D [b'd', b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x04']", "C FETCH 1", "Z T",
    ]  # fmt: skip
    assert talk.say(b.execute("c", 1), b.SYNC) == ["D [b'e', b'5']", "C SELECT 1", "Z T"]
    talk.say(b.query("CLOSE c; DECLARE c CURSOR FOR SELECT 'x'"))
    assert talk.say(b.bind("", "f"), b.describe("P", ""), b.execute(""), b.SYNC) == [
        "2", "T", "D [b'x']", "C FETCH 1", "Z T",
    ]  # fmt: skip
    assert talk.say(b.query("CLOSE c"), b.bind("", "f"), b.describe("P", ""), b.SYNC)[-2:] == ["E 34000", "Z E"]


def test_one_that_is_held_outlives_its_transaction_if_that_is_kept(talk: Talk) -> None:
    talk.slice_rows = 2
    held = "DECLARE h CURSOR WITH HOLD FOR SELECT v FROM t ORDER BY id"
    talk.say(b.query(held))
    assert talk.say(b.query("FETCH 1 FROM h")) == ["T", _ROWS[0], "C FETCH 1", "Z I"]
    talk.say(b.SYNC, b.query("BEGIN; DELETE FROM t WHERE id = 1; ROLLBACK"))
    assert talk.say(b.query("FETCH ALL FROM h")) == ["T", *_ROWS[1:], "C FETCH 4", "Z I"]
    assert talk.say(b.query("CLOSE ALL")) == ["C CLOSE CURSOR ALL", "Z I"]
    talk.say(b.query(f"BEGIN; {held}; COMMIT"))
    assert talk.say(b.query("FETCH 1 FROM h"))[:2] == ["T", _ROWS[0]]
    talk.say(b.query(f"BEGIN; {held.replace(' h ', ' gone ')}; ROLLBACK"))
    assert talk.say(b.query("FETCH 1 FROM gone")) == ["E 34000", "Z I"]
    talk.say(b.query(f"BEGIN; UPDATE t SET v = 'z' WHERE id = 1; {held.replace(' h ', ' own ')}; COMMIT"))
    assert talk.say(b.query("FETCH 1 FROM own"))[1] == "D [b'z']", "it shows what its transaction has written"
    assert talk.say(b.query("DISCARD ALL")) == ["C DISCARD ALL", "Z I"]
    assert talk.session.held_bytes == 0
    assert all(left.is_closed for left in talk.left)


def test_rolling_back_to_a_savepoint_closes_the_cursors_of_the_transaction(talk: Talk) -> None:
    talk.say(b.query("DECLARE h CURSOR WITH HOLD FOR SELECT 1; BEGIN; SAVEPOINT s; UPDATE t SET v = v || '!'"))
    talk.say(b.query("DECLARE c CURSOR FOR SELECT v FROM t; ROLLBACK TO s"))
    assert talk.say(b.query("FETCH h"))[-2:] == ["C FETCH 1", "Z T"]
    assert talk.say(b.query("FETCH c")) == ["E 34000", "Z E"]


def test_a_first_query_that_is_too_large_for_its_transaction_is_read_beside_it(talk: Talk) -> None:
    talk.slice_rows, talk.step_rows_max = 2, 3
    declare = "DECLARE c CURSOR FOR SELECT v FROM t ORDER BY id"
    talk.say(b.query(f"BEGIN; {declare}"))
    assert talk.tasks == [
        "TranslateQuery",
        "TranslateQuery",
        "StartTransaction",
        "RunStep",
        "EndTransaction",
        "ReadRows",
    ]
    assert talk.say(b.query("FETCH 3 FROM c")) == ["T", *_ROWS[:3], "C FETCH 3", "Z T"]
    assert talk.session.held_bytes < 1_000, "it keeps one slice"
    talk.say(b.query("SHOW TimeZone"))
    assert talk.say(b.query("FETCH ALL FROM c")) == ["T", *_ROWS[3:], "C FETCH 2", "Z T"]
    assert talk.say(b.query("COMMIT")) == ["C COMMIT", "Z I"]
    for other in ("SELECT 1", "DELETE FROM t", "SAVEPOINT s", "DECLARE d CURSOR FOR SELECT 1"):
        talk.say(b.query(f"BEGIN; {declare}"))
        assert talk.say(b.query(other)) == ["E 0A000", "Z E"], "a transaction shows one commit"
        talk.say(b.query("ROLLBACK"))
    assert talk.say(b.query("BEGIN; SELECT 1; SELECT v FROM t"))[-2:] == ["E 54000", "Z E"], "it is not the first"
    talk.say(b.query("ROLLBACK"))
    assert talk.say(b.query("BEGIN; SELECT v FROM t; COMMIT")) == [
        "C BEGIN", "T", *_ROWS, "C SELECT 5", "C COMMIT", "Z I",
    ]  # fmt: skip
    assert talk.say(b.query("BEGIN; SELECT count(*) FROM t"))[2] == "D [b'5']", "the next one is a transaction again"
    assert all(left.is_closed for left in talk.left)


def test_cursors_are_bounded(talk: Talk) -> None:
    many = "; ".join(f"DECLARE c{n} CURSOR WITH HOLD FOR SELECT {n}" for n in range(CURSORS_MAX + 1))
    answers = talk.say(b.query(many))
    assert (len(answers), answers[-2:]) == (CURSORS_MAX + 2, ["E 53200", "Z I"])
    assert talk.say(b.query("CLOSE ALL"), b.query(many.partition(";")[0]))[-2:] == ["C DECLARE CURSOR", "Z I"]
