"""The session of PostgreSQL's protocol: what is answered, what is one transaction, what is bounded."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.sql.pg.faults import PgFault
from rsm_spark.sql.pg.portal_desk import HELD_BYTES_MAX, PORTALS_MAX, STATEMENTS_MAX
from tests.unit.rsm_spark.sql.pg import pg_bytes as b
from tests.unit.rsm_spark.sql.pg.pg_talk import Talk


@pytest.fixture
def talk() -> Talk:
    made = Talk()
    assert made.say(b.query("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE)")) == ["C CREATE TABLE", "Z I"]
    made.tasks.clear()
    return made


def test_a_text_is_answered_statement_by_statement(talk: Talk) -> None:
    assert talk.say(b.query("INSERT INTO t (v) VALUES ('a'), ('b')")) == ["C INSERT 0 2", "Z I"]
    assert talk.say(b.query("SELECT id, v FROM t; SELECT 1 WHERE 0; SHOW TimeZone")) == [
        "T", "D [b'1', b'a']", "D [b'2', b'b']", "C SELECT 2", "T", "C SELECT 0", "T", "D [b'UTC']", "C SHOW", "Z I",
    ]  # fmt: skip
    assert talk.say(b.query("UPDATE t SET v = 'c' WHERE id = 2 RETURNING v")) == ["T", "D [b'c']", "C UPDATE 1", "Z I"]
    assert talk.say(b.query(" ; -- nothing")) == ["I", "Z I"]
    assert talk.say(b.query("SELECT $1")) == ["E 42P02", "Z I"]


def test_statements_that_write_in_one_text_are_one_transaction(talk: Talk) -> None:
    answers = talk.say(
        b.query("INSERT INTO t (v) VALUES ('a'); SELECT count(*) FROM t; INSERT INTO t (v) VALUES ('b')")
    )
    assert answers == ["C INSERT 0 1", "T", "D [b'1']", "C SELECT 1", "C INSERT 0 1", "Z I"]
    assert talk.tasks == ["TranslateQuery", "RunWrites"]
    assert talk.say(b.query("INSERT INTO t (v) VALUES ('x'); INSERT INTO t (v) VALUES ('a')")) == ["E 23505", "Z I"]
    assert talk.say(b.query("SELECT count(*) FROM t")) == ["T", "D [b'2']", "C SELECT 1", "Z I"], (
        "nothing of it is done"
    )


def test_a_batch_up_to_sync_is_one_transaction(talk: Talk) -> None:
    insert = b.parse("i", "INSERT INTO t (v) VALUES ($1)")
    batch = [part for value in (b"a", b"b", b"c") for part in (b.bind("", "i", value), b.execute(""))]
    assert talk.say(insert, *batch) == ["1", "2"], "what is not done is not answered, nor what is behind it"
    assert talk.tasks.count("RunWrites") == 0
    assert talk.say(b.SYNC) == ["C INSERT 0 1", "2", "C INSERT 0 1", "2", "C INSERT 0 1", "Z I"]
    assert talk.tasks.count("RunWrites") == 1
    twice = [part for value in (b"d", b"a") for part in (b.bind("", "i", value), b.execute(""))]
    assert talk.say(*twice, b.SYNC) == ["2", "E 23505", "Z I"]
    assert talk.say(b.bind("", "i", b"e"), b.execute(""), b.bind("", "missing"), b.SYNC) == ["2", "E 26000", "Z I"]
    count = talk.say(b.query("SELECT count(*) FROM t WHERE v IN ('d', 'e')"))
    assert count == ["T", "D [b'0']", "C SELECT 1", "Z I"], "a batch that failed is done in no part"


def test_a_query_sees_what_was_written_before_it_in_its_batch(talk: Talk) -> None:
    said = (
        b.parse("", "INSERT INTO t (v) VALUES ('a')"), b.bind("", ""), b.execute(""),
        b.parse("", "SELECT v FROM t"), b.bind("", ""), b.execute(""), b.SYNC,
    )  # fmt: skip
    assert talk.say(*said) == ["1", "2", "C INSERT 0 1", "1", "2", "D [b'a']", "C SELECT 1", "Z I"]


def test_flush_brings_all_answers(talk: Talk) -> None:
    said = (b.parse("", "INSERT INTO t (v) VALUES ('a')"), b.bind("", ""), b.execute(""), b.FLUSH)
    assert talk.say(*said) == ["1", "2", "C INSERT 0 1"]
    assert talk.say(b.SYNC) == ["Z I"]


def test_a_portal_gives_its_rows_in_pieces(talk: Talk) -> None:
    talk.say(b.query("INSERT INTO t (v) VALUES ('a'), ('b'), ('c')"))
    opened = (b.parse("s", "SELECT v FROM t"), b.bind("p", "s"), b.describe("P", "p"), b.execute("p", 2))
    assert talk.say(*opened) == ["1", "2", "T", "D [b'a']", "D [b'b']", "s"]
    assert talk.say(b.execute("p", 2)) == ["D [b'c']", "C SELECT 1"]
    assert talk.say(b.execute("p", 2)) == ["C SELECT 0"]
    assert talk.say(b.SYNC, b.execute("p"), b.SYNC) == ["Z I", "E 34000", "Z I"], "Sync ends portals"
    assert talk.session.held_bytes < 1_000


def test_a_large_result_is_read_as_its_rows_are_sent(talk: Talk) -> None:
    talk.slice_rows = 2
    talk.say(b.query("INSERT INTO t (v) VALUES ('a'), ('b'), ('c'), ('d'), ('e')"))
    talk.tasks.clear()
    rows = [f"D [b'{letter}']" for letter in "abcde"]
    assert talk.say(b.query("SELECT v FROM t")) == ["T", *rows, "C SELECT 5", "Z I"]
    assert talk.tasks == ["TranslateQuery", "ReadRows", "ReadSlice", "ReadSlice"]
    assert talk.left[0].is_closed
    assert talk.say(b.parse("s", "SELECT v FROM t"), b.bind("p", "s"), b.execute("p", 3)) == ["1", "2", *rows[:3], "s"]
    assert talk.session.held_bytes < 2_000, "it keeps one slice"
    assert talk.say(b.execute("p", 1)) == [rows[3], "s"]
    assert talk.say(b.execute("p", 1)) == [rows[4], "C SELECT 1"]
    assert talk.left[1].is_closed
    assert talk.say(b.bind("q", "s"), b.execute("q", 2), b.close("P", "q")) == ["2", *rows[:2], "s", "3"]
    assert talk.left[2].is_closed, "it is not read on"
    talk.say(b.bind("r", "s"), b.execute("r", 1))
    assert not talk.left[3].is_closed
    talk.say(b.SYNC)
    assert talk.left[3].is_closed
    talk.say(b.bind("x", "s"), b.execute("x", 2))
    talk.left[4].fault = PgFault("40001", "it waited for too long")
    assert talk.say(b.execute("x", 2), b.SYNC) == ["E 40001", "Z I"]
    assert talk.left[4].is_closed
    talk.say(b.query("DEALLOCATE ALL"))
    assert talk.session.held_bytes == 0


def test_types_are_those_of_the_values_where_nothing_is_declared(talk: Talk) -> None:
    said = talk.bytes_for(b.query("SELECT 1 AS a, 1.5 AS b, 'x' AS c, x'00ff' AS d, NULL AS e"))
    frames = b.split(said)
    assert b.columns(frames[0][1]) == [("a", 20, 0), ("b", 701, 0), ("c", 25, 0), ("d", 17, 0), ("e", 25, 0)]
    assert b.row(frames[1][1]) == [b"1", b"1.5", b"x", b"\\x00ff", None]
    binary = talk.bytes_for(b.parse("", "SELECT $1, $2", 23, 701), b.bind(
        "", "", struct.pack("!i", 7), struct.pack("!d", 0.5), formats=[1], results=[1]
    ), b.describe("P", ""), b.execute(""), b.SYNC)  # fmt: skip
    frames = b.split(binary)
    assert b.columns(frames[2][1])[0][1:] == (20, 1)
    assert b.row(frames[3][1]) == [struct.pack("!q", 7), struct.pack("!d", 0.5)]


def test_a_parameter_of_any_is_an_array(talk: Talk) -> None:
    talk.say(b.query("INSERT INTO t (v) VALUES ('a'), ('b'), ('c')"))
    asked = (b.parse("", "SELECT v FROM t WHERE v = ANY($1) ORDER BY v"), b.bind("", "", b'{"c",a}'), b.execute(""))
    assert talk.say(*asked, b.SYNC) == ["1", "2", "D [b'a']", "D [b'c']", "C SELECT 2", "Z I"]


def test_what_failed_is_answered_once_and_the_rest_is_passed_over(talk: Talk) -> None:
    said = (b.parse("", "SELECT nowhere"), b.bind("", ""), b.execute(""), b.execute(""), b.close("S", ""), b.SYNC)
    assert talk.say(*said) == ["1", "2", "E 42703", "Z I"]
    assert talk.say(b.parse("", "SELECT 1; SELECT 2"), b.SYNC) == ["E 42601", "Z I"]
    assert talk.say(b.parse("s", "SELECT 1"), b.parse("s", "SELECT 1"), b.SYNC) == ["1", "E 42P05", "Z I"]
    assert talk.say(b.bind("", "s", b"x"), b.SYNC) == ["E 08P01", "Z I"]
    assert talk.say(b.parse("", "SELECT 'x"), b.SYNC) == ["E 42601", "Z I"]
    assert talk.say(b.parse("", "SELECT $1", 23), b.bind("", "", b"x"), b.SYNC) == ["1", "E 22P02", "Z I"]


def test_settings_are_kept_told_and_set_back(talk: Talk) -> None:
    assert talk.say(b.query("SET application_name = 'mine'")) == ["S", "C SET", "Z I"]
    assert talk.say(b.query("SHOW application_name")) == ["T", "D [b'mine']", "C SHOW", "Z I"]
    assert talk.say(b.query("SET rsm.read TO 'session'; SET LOCAL work_mem = '4MB'; SET TIME ZONE 'UTC'"))[-1] == "Z I"
    assert talk.say(b.query("SET rsm.read = 'yesterday'")) == ["E 22023", "Z I"]
    assert talk.say(b.query("SET server_version = '1'")) == ["E 22023", "Z I"]
    assert talk.say(b.query("SET client_encoding = 'LATIN1'")) == ["E 22023", "Z I"]
    assert talk.say(b.query("SHOW nothing_of_this_name")) == ["E 42704", "Z I"]
    assert talk.say(b.query("DISCARD ALL")) == ["S", "C DISCARD ALL", "Z I"]
    assert talk.say(b.query("SHOW rsm.read")) == ["T", "D [b'linearizable']", "C SHOW", "Z I"]


def test_a_transaction_is_kept_or_dropped_as_a_whole(talk: Talk) -> None:
    assert talk.say(b.query("BEGIN")) == ["C BEGIN", "Z T"]
    assert talk.tasks == ["TranslateQuery"], "it begins with its first statement"
    assert talk.say(b.query("INSERT INTO t (v) VALUES ('a')")) == ["C INSERT 0 1", "Z T"]
    assert talk.say(b.query("SELECT count(*) FROM t")) == ["T", "D [b'1']", "C SELECT 1", "Z T"]
    assert talk.say(b.query("BEGIN")) == ["N 25001", "C BEGIN", "Z T"]
    assert talk.say(b.query("ROLLBACK")) == ["C ROLLBACK", "Z I"]
    assert talk.say(b.query("SELECT count(*) FROM t"))[1] == "D [b'0']"
    text = "BEGIN; INSERT INTO t (v) VALUES ('a'); INSERT INTO t (v) VALUES ('b'); COMMIT; SELECT count(*) FROM t"
    assert talk.say(b.query(text))[-4:] == ["T", "D [b'2']", "C SELECT 1", "Z I"]
    assert talk.tasks.count("StartTransaction") == 2
    assert "RunWrites" not in talk.tasks
    assert talk.say(b.query("START TRANSACTION READ ONLY; COMMIT")) == ["C START TRANSACTION", "C COMMIT", "Z I"]
    assert talk.say(b.query("ROLLBACK")) == ["N 25P01", "C ROLLBACK", "Z I"]


def test_a_transaction_that_has_failed_does_nothing_until_it_is_rolled_back(talk: Talk) -> None:
    talk.say(b.query("BEGIN"), b.query("INSERT INTO t (v) VALUES ('a')"))
    assert talk.say(b.query("INSERT INTO t (v) VALUES ('a')")) == ["E 23505", "Z E"]
    assert talk.say(b.query("SELECT 1")) == ["E 25P02", "Z E"]
    assert talk.say(b.parse("", "SELECT 1"), b.bind("", ""), b.SYNC) == ["E 25P02", "Z E"]
    assert talk.say(b.query("COMMIT")) == ["C ROLLBACK", "Z I"], "what has failed is not kept"
    assert talk.say(b.query("SELECT count(*) FROM t"))[1] == "D [b'0']"


def test_a_savepoint_brings_a_failed_transaction_back(talk: Talk) -> None:
    assert talk.say(b.query("SAVEPOINT s")) == ["E 25P01", "Z I"]
    said = talk.say(b.query("BEGIN; INSERT INTO t (v) VALUES ('a'); SAVEPOINT s"))
    assert said == ["C BEGIN", "C INSERT 0 1", "C SAVEPOINT", "Z T"]
    assert talk.say(b.query("INSERT INTO t (v) VALUES ('a')")) == ["E 23505", "Z E"]
    assert talk.say(b.query("RELEASE s")) == ["E 25P02", "Z E"]
    assert talk.say(b.query("ROLLBACK TO SAVEPOINT s")) == ["C ROLLBACK", "Z T"]
    assert talk.say(b.query("INSERT INTO t (v) VALUES ('b'); RELEASE s; COMMIT"))[-2:] == ["C COMMIT", "Z I"]
    assert talk.say(b.query("SELECT count(*) FROM t"))[1] == "D [b'2']"


def test_portals_live_as_long_as_their_transaction(talk: Talk) -> None:
    talk.say(b.query("INSERT INTO t (v) VALUES ('a'), ('b')"), b.query("BEGIN READ ONLY"))
    opened = (b.parse("", "SELECT v FROM t"), b.bind("p", ""), b.execute("p", 1), b.SYNC)
    assert talk.say(*opened) == ["1", "2", "D [b'a']", "s", "Z T"]
    assert talk.say(b.execute("p", 1), b.SYNC) == ["D [b'b']", "C SELECT 1", "Z T"]
    assert talk.say(b.query("DELETE FROM t")) == ["E 25006", "Z E"]
    assert talk.say(b.query("ROLLBACK"), b.execute("p", 1), b.SYNC) == ["C ROLLBACK", "Z I", "E 34000", "Z I"]


def test_what_a_transaction_has_made_is_described_by_itself(talk: Talk) -> None:
    talk.hides_tables = True
    talk.say(b.query("BEGIN; CREATE TABLE u (id INTEGER PRIMARY KEY)"))
    said = (
        b.parse("", "INSERT INTO u DEFAULT VALUES RETURNING id"),
        b.bind("", ""),
        b.describe("P", ""),
        b.execute(""),
    )
    assert talk.say(*said, b.SYNC) == ["1", "2", "T", "D [b'1']", "C INSERT 0 1", "Z T"]
    assert talk.say(b.parse("", "SELECT id FROM u -- x"), b.describe("S", ""), b.SYNC) == ["1", "t", "T", "Z T"]
    assert talk.say(b.query("SELECT count(*) FROM u"))[1] == "D [b'1']", "it is done once"
    talk.say(b.query("ROLLBACK"))
    assert talk.say(b.parse("", "DELETE FROM t RETURNING id"), b.describe("S", ""), b.SYNC) == ["1", "E 42P01", "Z I"]


def test_a_batch_in_a_transaction_is_one_step(talk: Talk) -> None:
    insert = b.parse("i", "INSERT INTO t (v) VALUES ($1)")
    batch = [part for value in (b"a", b"b") for part in (b.bind("", "i", value), b.execute(""))]
    assert talk.say(b.query("BEGIN"), insert, *batch, b.SYNC)[-4:] == ["C INSERT 0 1", "2", "C INSERT 0 1", "Z T"]
    assert talk.tasks.count("RunStep") == 1
    assert talk.say(b.query("COMMIT")) == ["C COMMIT", "Z I"]


def test_a_principal_that_reads_only_writes_nothing() -> None:
    talk = Talk(may_write=False)
    assert talk.say(b.query("CREATE TABLE t (a)")) == ["E 42501", "Z I"]
    assert talk.say(b.parse("", "CREATE TABLE t (a)"), b.bind("", ""), b.execute(""), b.SYNC) == [
        "1",
        "2",
        "E 42501",
        "Z I",
    ]
    assert talk.tasks == ["TranslateQuery"] * 2


def test_what_a_session_keeps_is_bounded(talk: Talk) -> None:
    many = [b.parse(f"s{n}", "SELECT 1") for n in range(STATEMENTS_MAX + 1)]
    assert talk.say(*many, b.SYNC)[-2:] == ["E 53200", "Z I"]
    assert talk.say(b.query("DEALLOCATE ALL"))[-1] == "Z I"
    assert talk.session.held_bytes == 0
    portals = [b.bind(f"p{n}", "s") for n in range(PORTALS_MAX + 1)]
    assert talk.say(b.parse("s", "SELECT 1"), *portals, b.SYNC)[-2:] == ["E 53200", "Z I"]
    large = b"x" * 1_000_000
    held = [b.bind(f"p{n}", "v", large) for n in range(HELD_BYTES_MAX // len(large) + 1)]
    assert talk.say(b.parse("v", "SELECT $1"), *held, b.SYNC)[-2:] == ["E 53200", "Z I"]
    writes = [part for _ in range(5) for part in (b.bind("", "w", large), b.execute(""))]
    assert talk.say(b.parse("w", "INSERT INTO t (v) VALUES ($1)"), *writes, b.SYNC)[-2:] == ["E 54000", "Z I"]


_NAMES = st.sampled_from(["", "a", "b"])
_TEXTS = st.sampled_from([
    "SELECT 1", "SELECT v FROM t", "SELECT $1", "INSERT INTO t (v) VALUES ($1)",
    "INSERT INTO t (v) VALUES ('x') RETURNING id",
    "", ";", "nonsense", "BEGIN", "COMMIT", "SHOW ALL", "SET a.b = 'c'", "RESET ALL", "SELECT 'open", "DEALLOCATE a",
    "DECLARE a CURSOR FOR SELECT v FROM t", "DECLARE b CURSOR WITH HOLD FOR SELECT $1", "FETCH 1 a", "FETCH ALL FROM b",
    "MOVE b", "CLOSE a", "ROLLBACK TO s", "SAVEPOINT s",
    "SELECT $1::int + now()", "DELETE FROM t; SELECT 1; INSERT INTO t (v) VALUES ('y')",
])  # fmt: skip
_VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=4)), max_size=2)
_REQUESTS = st.one_of(
    st.builds(b.query, _TEXTS),
    st.builds(b.parse, _NAMES, _TEXTS),
    st.builds(lambda portal, name, values: b.bind(portal, name, *values), _NAMES, _NAMES, _VALUES),
    st.builds(b.describe, st.sampled_from("PS"), _NAMES),
    st.builds(b.execute, _NAMES, st.integers(-1, 2)),
    st.builds(b.close, st.sampled_from("PS"), _NAMES),
    st.just(b.SYNC),
    st.just(b.FLUSH),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_REQUESTS, max_size=12))
def test_any_series_ends_with_one_ready_and_nothing_kept(requests: list[bytes]) -> None:
    talk = Talk()
    talk.say(b.query("CREATE TABLE t (id INTEGER PRIMARY KEY, v)"))
    for request in requests:
        talk.say(request)
    answers = talk.say(b.SYNC)
    assert answers[-1] in ("Z I", "Z T", "Z E")
    assert sum(answer.startswith("Z") for answer in answers) == 1
    talk.say(b.query("ROLLBACK"))
    talk.say(b.query("CLOSE ALL"))
    assert talk.say(b.query("DEALLOCATE ALL")) == ["C DEALLOCATE", "Z I"]
    assert talk.session.held_bytes == 0


def test_a_table_is_altered_as_one_transaction_and_in_the_one_that_is_open(talk: Talk) -> None:
    talk.say(b.query("CREATE TABLE u (id INTEGER PRIMARY KEY, t INT); INSERT INTO t VALUES (1, 'a')"))
    talk.tasks.clear()
    key = "ADD CONSTRAINT one FOREIGN KEY (t) REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED"
    assert talk.say(b.query(f"ALTER TABLE u {key}; SET CONSTRAINTS ALL IMMEDIATE")) == ["C ALTER TABLE", "C SET", "Z I"]
    assert talk.tasks == ["TranslateQuery", "ReadRows", "RunWrites"]
    assert "one" in talk.base.execute("SELECT sql FROM sqlite_schema WHERE name = 'u'").fetchone()[0]
    assert talk.say(b.query("ALTER TABLE t ALTER COLUMN v TYPE varchar(9)"))[-2:] == ["C ALTER TABLE", "Z I"]
    talk.say(b.query("INSERT INTO u VALUES (1, 1)"))
    assert talk.say(b.query("ALTER TABLE t ALTER COLUMN v TYPE varchar(8)")) == ["E 0A000", "Z I"]
    altered = (b.parse("", "ALTER TABLE u DROP CONSTRAINT one"), b.bind("", ""), b.describe("P", ""), b.execute(""))
    assert talk.say(b.query("BEGIN"), *altered, b.SYNC) == ["C BEGIN", "Z T", "1", "2", "n", "C ALTER TABLE", "Z T"]
    assert talk.say(b.query("ALTER TABLE u DROP CONSTRAINT one")) == ["E 42704", "Z E"]
    assert talk.say(b.query("ROLLBACK")) == ["C ROLLBACK", "Z I"]
    assert "one" in talk.base.execute("SELECT sql FROM sqlite_schema WHERE name = 'u'").fetchone()[0]


def test_who_reads_only_alters_nothing() -> None:
    talk = Talk(may_write=False)
    talk.base.execute("CREATE TABLE t (a INT)")
    assert talk.say(b.query("ALTER TABLE t ALTER COLUMN a TYPE text")) == ["E 42501", "Z I"]
    assert talk.tasks == ["TranslateQuery"]


@settings(max_examples=100, deadline=None)
@given(st.lists(_REQUESTS, max_size=12))
def test_requests_that_are_taken_at_once_are_answered_as_by_steps(requests: list[bytes]) -> None:
    said = []
    for takes_at_once in (True, False):
        talk = Talk()
        talk.takes_at_once = takes_at_once
        talk.say(b.query("CREATE TABLE t (id INTEGER PRIMARY KEY, v)"))
        answers = [talk.bytes_for(request) for request in (*requests, b.SYNC)]
        rows = talk.base.execute("SELECT id, v FROM t").fetchall() if not talk.base.in_transaction else []
        said.append((answers, talk.session.held_bytes, talk.tasks, rows))
    assert said[0] == said[1]
