"""COPY: what the command says, rows of text and CSV however they are cut, and a session that copies."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.sql.messages import SqlFault
from rsm_spark.sql.pg.copy_in import BATCH_ROWS
from rsm_spark.sql.pg.copying import CopyRows, copied_row, copy_command
from rsm_spark.sql.pg.faults import PgFault, fault_of
from rsm_spark.sql.pg.tasks import RunWrites, WritesDone
from tests.unit.rsm_spark.sql.pg import pg_bytes as b
from tests.unit.rsm_spark.sql.pg.pg_talk import Talk

TEXT = copy_command("COPY t FROM STDIN")
CSV = copy_command("COPY t FROM STDIN WITH (FORMAT csv)")


def rows_of(command, *parts: bytes, columns: int = 2) -> list[list[bytes | None]]:
    cutter = CopyRows(command, columns)
    found = [row for part in parts for row in cutter.feed(part)]
    return found + list(cutter.feed(b"", is_last=True))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("COPY t FROM STDIN", ("t", "", "", True, False, b"\t", b"\\N", False)),
        ('copy public."T" (a, b) to stdout csv header', ('"T"', "a, b", "", False, True, b",", b"", True)),
        (
            "COPY (SELECT 1) TO STDOUT WITH (FORMAT csv, DELIMITER ';', NULL '-')",
            ("", "", "SELECT 1", False, True, b";", b"-", False),
        ),
        ("COPY t FROM STDIN WITH DELIMITER AS '|' NULL AS ''", ("t", "", "", True, False, b"|", b"", False)),
    ],
)  # fmt: skip
def test_what_a_copy_says(sql, expected):
    found = copy_command(sql)
    assert (*found[:-3], found.has_header) == expected
    assert not found.is_binary


@pytest.mark.parametrize(
    "sql",
    [
        "COPY t FROM '/etc/passwd'", "COPY t TO PROGRAM 'sh'", "COPY (SELECT 1) FROM STDIN",
        "COPY t FROM STDIN (FORMAT binary, HEADER)",
        "COPY t FROM STDIN (FORMAT csv, FORCE_NULL (a))", "COPY t FROM STDIN (DELIMITER 'ab')",
        "COPY t FROM STDIN csv QUOTE ','",
        "COPY t FROM STDIN (ENCODING 'latin1')", "COPY t FROM STDIN csv ESCAPE '!'", "COPY",
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused(sql):
    with pytest.raises(PgFault):
        copy_command(sql)


def test_rows_of_text():
    assert rows_of(TEXT, b"a\tb\n\\N\t\\\\N\n", b"x\\ty\t\\x41\\101\n\\", b"n\t\r\n") == [
        [b"a", b"b"], [None, b"\\N"], [b"x\ty", b"AA"], [b"\n", b""],
    ]  # fmt: skip
    assert rows_of(TEXT, b"a\tb\n\\.\nnot\tread\n") == [[b"a", b"b"]]
    assert rows_of(TEXT, b"a\tb") == [[b"a", b"b"]]
    with pytest.raises(PgFault, match="line 2 has 1 values, not 2"):
        rows_of(TEXT, b"a\tb\nc\n")


def test_rows_of_csv():
    assert rows_of(CSV, b'a,"b,""c"""\n,""\r\n"x\ny",z') == [[b"a", b'b,"c"'], [None, b""], [b"x\ny", b"z"]]
    assert rows_of(CSV, b"a,\n") == [[b"a", None]]
    assert rows_of(CSV, b"a,") == [[b"a", None]]
    for wrong in (b'a,"b', b'a,b"c\nd,e\n', b'a,"b"c\n'):
        with pytest.raises(PgFault):
            rows_of(CSV, wrong)


def test_a_row_without_an_end_is_not_kept_for_ever():
    with pytest.raises(PgFault, match="more than"):
        rows_of(TEXT, *[b"x" * 500_000] * 6)
    with pytest.raises(PgFault, match="more than"):
        rows_of(CSV, b'"', *[b"x" * 500_000] * 6)


@pytest.mark.parametrize("command", [TEXT, CSV])
def test_a_long_row_that_comes_in_small_pieces_is_read_a_few_times(command, monkeypatch):
    """A piece is not looked at together with all before it each time: that would be work without end."""
    cutter = CopyRows(command, 1)
    looked = []

    def counted(cut):
        def look(text, *, is_last):
            looked.append(len(text))
            return cut(text, is_last=is_last)

        return look

    for name in ("_text_rows", "_csv_rows"):
        monkeypatch.setattr(cutter, name, counted(getattr(cutter, name)))
    whole = b'"' + b"x" * 100_000 + b'"\n'
    found = [row for at in range(0, len(whole), 10) for row in cutter.feed(whole[at : at + 10])]
    found += list(cutter.feed(b"", is_last=True))
    assert [len(row[0]) for row in found] == [100_002 if command is TEXT else 100_000]
    assert sum(looked) < 100 * len(whole)


_VALUES = st.lists(
    st.one_of(st.none(), st.text("ab\t\n\r\\,\"'. Nx0é", max_size=6).map(str.encode)), min_size=2, max_size=2
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_VALUES, max_size=6), st.lists(st.integers(0, 60), max_size=6), st.booleans())
def test_what_is_copied_out_is_copied_in_again_however_it_is_cut(rows, cuts, is_csv):
    command = CSV if is_csv else TEXT
    whole = b"".join(copied_row(command, row) for row in rows)
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    parts = [whole[first:last] for first, last in zip(places, places[1:], strict=False)]
    assert rows_of(command, *parts) == rows


def test_python_reads_the_csv_that_is_copied_out():
    rows = [[b"a,b", b'c"d'], [b"x\ny", b"\xc3\xa9"]]
    text = b"".join(copied_row(CSV, row) for row in rows).decode()
    assert list(csv.reader(io.StringIO(text))) == [[value.decode() for value in row] for row in rows]


# ---- a session


@pytest.fixture
def talk() -> Talk:
    made = Talk()
    made.say(b.query("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE, n)"))
    made.tasks.clear()
    return made


def data(*parts: bytes) -> list[bytes]:
    return [b.frame(b"d", part) for part in parts]


DONE = b.frame(b"c")


def test_a_copy_is_one_transaction(talk: Talk) -> None:
    assert talk.say(b.query("COPY t (id, v) FROM STDIN")) == ["G"]
    assert talk.say(*data(b"1\ta\n2", b"\t\\N\n")) == []
    assert talk.say(DONE) == ["C COPY 2", "Z I"]
    assert (talk.tasks.count("RunWrites"), talk.session.held_bytes) == (1, 0)
    assert talk.say(b.query("SELECT id, v FROM t ORDER BY id")) == [
        "T",
        "D [b'1', b'a']",
        "D [b'2', None]",
        "C SELECT 2",
        "Z I",
    ]
    assert talk.say(b.query("COPY t (id, v) FROM STDIN csv"), *data(b"3,b\n4,a\n"), DONE) == ["G", "E 23505", "Z I"]
    assert talk.say(b.query("SELECT count(*) FROM t"))[1] == "D [b'2']", "nothing of it was kept"


def test_rows_are_copied_out(talk: Talk) -> None:
    talk.say(b.query("INSERT INTO t VALUES (1, 'a\tb', 1.5), (2, NULL, x'00')"))
    talk.slice_rows = 1
    said = b.split(talk.bytes_for(b.query("COPY t TO STDOUT")))
    assert [content for kind, content in said if kind == "d"] == [b"1\ta\\tb\t1.5\n", b"2\t\\N\t\\\\x00\n"]
    assert [kind for kind, _ in said] == ["H", "d", "d", "c", "C", "Z"]
    said = b.split(
        talk.bytes_for(b.query("COPY (SELECT id, v FROM t ORDER BY id DESC) TO STDOUT WITH (FORMAT csv, HEADER)"))
    )
    assert [content for kind, content in said if kind == "d"] == [b"id,v\n", b"2,\n", b"1,a\tb\n"]
    assert all(left.is_closed for left in talk.left)


def test_what_ends_a_copy(talk: Talk) -> None:
    assert talk.say(b.query("COPY t FROM STDIN"), *data(b"1\n"), *data(b"more"), DONE) == ["G", "E 22P04", "Z I"]
    assert talk.say(b.query("COPY t FROM STDIN"), b.frame(b"f", b"enough\0")) == ["G", "E 57014", "Z I"]
    assert talk.say(b.query("COPY t FROM STDIN"), b.query("SELECT 1")) == ["G", "E 08P01", "Z I"]
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(b"1\t\xff\n")) == ["G", "E 22021", "Z I"]
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), b.SYNC, b.FLUSH, *data(b"1\ta\n"), DONE)[-2:] == [
        "C COPY 1",
        "Z I",
    ]
    assert talk.say(b.query("COPY missing FROM STDIN"))[-1] == "Z I"
    assert talk.say(b.query("COPY t FROM STDIN; SELECT 1")) == ["E 0A000", "Z I"]
    prepared = (b.parse("", "COPY t FROM STDIN"), b.bind("", ""), b.execute(""), b.SYNC)
    assert talk.say(*prepared)[-2:] == ["E 0A000", "Z I"]
    talk.say(b.query("DEALLOCATE ALL"))
    assert talk.session.held_bytes == 0
    reads = Talk(may_write=False)
    assert reads.say(b.query("COPY t FROM STDIN")) == ["E 42501", "Z I"]


def test_a_copy_that_is_too_large_is_refused_or_goes_in_batches(talk: Talk) -> None:
    lines = b"".join(b"%d\tv%d\n" % (n, n) for n in range(2 * BATCH_ROWS + 5))
    parts = [lines[at : at + 50_000] for at in range(0, len(lines), 50_000)]
    said = talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(*parts), DONE)
    assert said == ["G", "E 54000", "Z I"]
    assert talk.say(b.query("SELECT count(*) FROM t"))[1] == "D [b'0']"
    assert talk.say(b.query("SET rsm.copy = 'sometimes'")) == ["E 22023", "Z I"]
    talk.say(b.query("SET rsm.copy = 'batches'"))
    talk.tasks.clear()
    said = talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(*parts), DONE)
    assert said[-2:] == [f"C COPY {2 * BATCH_ROWS + 5}", "Z I"]
    assert talk.tasks.count("RunWrites") == 2
    assert talk.session.held_bytes == 0


def test_a_copy_in_a_transaction_is_of_it(talk: Talk) -> None:
    said = talk.say(b.query("BEGIN"), b.query("COPY t (id, v) FROM STDIN"), *data(b"1\ta\n"), DONE, b.query("ROLLBACK"))
    assert said == ["C BEGIN", "Z T", "G", "C COPY 1", "Z T", "C ROLLBACK", "Z I"]
    assert talk.say(b.query("SELECT count(*) FROM t"))[1] == "D [b'0']"
    said = talk.say(b.query("BEGIN"), b.query("COPY t (id, v) FROM STDIN"), *data(b"1\n"), b.query("SELECT 1"))
    assert said[-2:] == ["E 25P02", "Z E"]


class SlowTalk(Talk):
    """Whose disk is slow: a transaction of more than so many statements takes too long, and so many take so anyway."""

    statements_max = 2
    stalls = 0

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []  # Statements of each transaction that was tried.

    def _write(self, task: RunWrites) -> WritesDone:
        self.counts.append(len(task.statements))
        if len(task.statements) > self.statements_max or self.stalls:
            self.stalls = max(0, self.stalls - 1)
            raise fault_of(SqlFault("limit", "it takes longer than 1 s: do it in several transactions"))
        return super()._write(task)


def _slow_talk() -> SlowTalk:
    talk = SlowTalk()
    talk.say(b.query("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, x)"))
    return talk


def test_batches_of_a_copy_that_take_too_long_are_divided() -> None:
    lines = b"".join(b"%d\tv%d\n" % (n, n) for n in range(1_550))
    talk = _slow_talk()
    talk.say(b.query("SET rsm.copy = 'batches'"))
    talk.counts.clear()
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(lines), DONE) == ["G", "C COPY 1550", "Z I"]
    assert talk.counts == [16, 8, 4, 2, 2, 4, 2, 2, 8, 4, 2, 2, 4, 2, 2]
    found = talk.base.execute("SELECT id, v FROM t ORDER BY rowid").fetchall()
    assert found == [(n, f"v{n}") for n in range(1_550)]
    assert talk.session.held_bytes == 0


def test_batches_become_smaller_when_they_take_too_long() -> None:
    talk = _slow_talk()
    talk.say(b.query("SET rsm.copy = 'batches'"))
    row = b"%d\t" + b"v" * 8_000 + b"\n"
    lines = b"".join(row % n for n in range(2_000))
    parts = [lines[at : at + 65_536] for at in range(0, len(lines), 65_536)]
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(*parts), DONE)[-2] == "C COPY 2000"
    divided = sum(count > talk.statements_max for count in talk.counts)
    assert divided < 40, "the first ones are divided, and those behind them are small from the start"


def test_a_disk_that_stalls_ends_no_copy_in_batches_and_one_that_stands_still_does() -> None:
    talk = _slow_talk()
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(b"1\ta\n" * 1), DONE) == ["G", "C COPY 1", "Z I"]
    talk.stalls = 1
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(b"2\ta\n"), DONE) == ["G", "E 57014", "Z I"]
    talk.say(b.query("SET rsm.copy = 'batches'"))
    talk.stalls = 2
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(b"2\ta\n"), DONE) == ["G", "C COPY 1", "Z I"]
    talk.stalls = 3
    assert talk.say(b.query("COPY t (id, v) FROM STDIN"), *data(b"3\ta\n"), DONE) == ["G", "E 57014", "Z I"]
    assert talk.base.execute("SELECT id FROM t").fetchall() == [(1,), (2,)]
