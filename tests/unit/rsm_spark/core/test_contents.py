"""Contents beside a log, as its records name them."""

from __future__ import annotations

import msgspec

from rsm_spark.core import contents
from rsm_spark.core.contents import FileContent, KnownContents, content_of_row
from rsm_spark.core.machine import Row
from rsm_spark.core.records import Record


def _named(number: int, ledger: int) -> Record:
    return Record(contents.CONTENT_NAMED, None, (number, ledger, 9, 2, b"d" * 32))


def test_states_name_what_their_records_and_the_state_before_them_name() -> None:
    content, known = FileContent(7, 9, 2, b"d" * 32), KnownContents()
    known.fold([_named(10, 7), Record(contents.CONTENT_FREED, None, (8, 3, True))], 20)
    known.fold([Record(contents.CONTENT_FREED, None, (7, 10, True)), _named(12, 9)], 30)
    known.add_row(3, FileContent(8, 9, 2, b"d" * 32), 4)  # Of a state before: its end has passed already.
    known.add_row(12, content, 4)
    assert {one.number: (one.named, one.freed) for one in known.by_number.values()} == {
        10: (20, 30), 12: (31, 0), 3: (4, 21)
    }  # fmt: skip
    found = known.by_number[10]
    assert [found.is_named_at(revision) for revision in (19, 20, 29, 30)] == [False, True, True, False]


def test_a_row_is_read_as_a_machine_writes_it() -> None:
    row = Row(contents.CONTENTS_TABLE, msgspec.msgpack.encode([5]), msgspec.msgpack.encode([7, 9, 2, b"d" * 32]), 6)
    assert content_of_row(row) == (5, FileContent(7, 9, 2, b"d" * 32))
