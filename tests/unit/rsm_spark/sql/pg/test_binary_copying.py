"""COPY in binary: rows however they are cut, what is none, and a session that copies so both ways."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.sql.pg.binary_copying import BINARY_END, BINARY_HEAD, BinaryCopyRows, binary_row
from rsm_spark.sql.pg.cut_rows import ROW_BYTES_MAX
from rsm_spark.sql.pg.faults import PgFault
from tests.unit.rsm_spark.sql.pg import pg_bytes as b
from tests.unit.rsm_spark.sql.pg.pg_talk import Talk

ROWS: list[list[bytes | None]] = [[b"\0\0\0\x01", b"pen"], [None, b""], [b"x" * 300, None]]
WHOLE = BINARY_HEAD + b"".join(map(binary_row, ROWS)) + BINARY_END
DONE = b.frame(b"c")


def cut(*parts: bytes, columns: int = 2) -> list[list[bytes | None]]:
    rows = BinaryCopyRows(columns)
    found = [row for part in parts for row in rows.feed(part)]
    return found + list(rows.feed(b"", is_last=True))


@given(st.lists(st.integers(0, len(WHOLE)), max_size=6))
@settings(max_examples=60, deadline=None)
def test_rows_are_the_same_however_they_are_cut(places):
    bounds = [0, *sorted(places), len(WHOLE)]
    assert cut(*(WHOLE[one:other] for one, other in zip(bounds, bounds[1:], strict=False))) == ROWS


def test_an_extension_is_passed_over_and_the_end_may_be_missing():
    head = BINARY_HEAD[:15] + struct.pack("!i", 5) + b"12345"
    assert cut(head + binary_row(ROWS[0]), columns=2) == ROWS[:1]
    assert cut(*(WHOLE[at : at + 1] for at in range(len(WHOLE)))) == ROWS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "before its first one"),
        (b"1\tpen\n", "does not begin with PGCOPY"),
        (BINARY_HEAD[:11] + struct.pack("!ii", 1 << 16, 0), "flags that are not known"),
        (BINARY_HEAD[:15] + struct.pack("!i", -5), "bytes before the rows"),
        (BINARY_HEAD[:15] + struct.pack("!i", 1 << 30), "bytes before the rows"),
        (BINARY_HEAD + struct.pack("!h", 3), "has 3 values, not 2"),
        (BINARY_HEAD + struct.pack("!hi", 2, -2), "a value of -2 bytes"),
        (BINARY_HEAD + struct.pack("!hi", 2, ROW_BYTES_MAX), "more than"),
        (WHOLE[:-10], "ends inside row"),
        (WHOLE + b"x", "goes on behind its end"),
    ],
)
def test_what_is_no_copy_is_refused_in_words(content, words):
    with pytest.raises(PgFault, match=words):
        cut(content)


def test_wrong_bytes_end_in_a_fault_and_hold_little():
    rng = random.Random(7)
    for _ in range(400):
        wrong = bytearray(WHOLE)
        for _ in range(rng.randint(1, 4)):
            wrong[rng.randrange(len(wrong))] = rng.randrange(256)
        rows = BinaryCopyRows(2)
        with contextlib.suppress(PgFault):
            for at in range(0, len(wrong), 64):
                list(rows.feed(bytes(wrong[at : at + 64])))
                assert rows.held_bytes <= len(wrong)
            list(rows.feed(b"", is_last=True))


def test_a_long_row_that_comes_byte_by_byte_is_bounded():
    rows = BinaryCopyRows(2)
    head = BINARY_HEAD + struct.pack("!hi", 2, ROW_BYTES_MAX - 100)
    parts = (bytes(4096) for _ in range(ROW_BYTES_MAX // 4096 + 40))
    with pytest.raises(PgFault, match="more than"):
        [row for part in (head, *parts) for row in rows.feed(part)]


def test_a_session_copies_in_and_out():
    talk = Talk()
    talk.declared = {"id": "INTEGER", "v": "TEXT", "x": "REAL"}
    talk.say(b.query("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, x REAL)"))
    sent = BINARY_HEAD + b"".join(
        binary_row([struct.pack("!q", number), b"pen", struct.pack("!d", 1.5)]) for number in range(3)
    )
    begun = b.split(talk.bytes_for(b.query("COPY t FROM STDIN (FORMAT binary)")))
    assert [(kind, content) for kind, content in begun] == [("G", b"\x01\0\x03" + b"\0\x01" * 3)]
    assert talk.say(b.frame(b"d", sent[:40]), b.frame(b"d", sent[40:] + BINARY_END), DONE) == ["C COPY 3", "Z I"]
    assert talk.session.held_bytes == 0
    talk.slice_rows = 1
    said = b.split(talk.bytes_for(b.query("COPY (SELECT id, v, x FROM t ORDER BY id) TO STDOUT WITH BINARY")))
    pieces = [content for kind, content in said if kind == "d"]
    assert (b"".join(pieces), len(pieces), pieces[-1]) == (sent + BINARY_END, 4, BINARY_END)
    said = b.split(talk.bytes_for(b.query("COPY (SELECT id FROM t WHERE id > 9) TO STDOUT (FORMAT binary)")))
    assert [content for kind, content in said if kind == "d"] == [BINARY_HEAD + BINARY_END]
    for wrong, code in ((b"PGCOPX", "22P04"), (BINARY_HEAD + binary_row([b"1", b"a", None]), "22P02")):
        assert talk.say(b.query("COPY t FROM STDIN BINARY"), b.frame(b"d", wrong), DONE) == ["G", f"E {code}", "Z I"]
