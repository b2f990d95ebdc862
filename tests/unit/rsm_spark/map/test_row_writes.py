"""Many rows in one command."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.core.machine import DeclinedDecision
from rsm_spark.map.commands import MapRefused, MapReply, RowWrite, WriteRows, WroteRows
from rsm_spark.map.limits import KEY_BYTES_MAX, ROW_WRITES_MAX, VALUE_BYTES_MAX
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.messages import decode_reply, encode


class RowsDriven:
    """A map that is written to by rows."""

    def __init__(self) -> None:
        self.machine = MapMachine()
        self.revision = 0

    def write(self, *rows: RowWrite, prefix: bytes = b"") -> MapReply:
        decision = self.machine.decide(encode(WriteRows(list(rows), prefix)), self.revision + 1, 1000)
        for record_type, fields in decision.records:
            self.revision += 1
            self.machine.apply(record_type, fields, self.revision)
        self.machine.validate()
        return decode_reply(decision.reply)

    @property
    def values(self) -> dict[bytes, Any]:
        return {row.key: row.row for row in self.machine.rows() if row.table == "map"}


@pytest.fixture
def driven() -> RowsDriven:
    return RowsDriven()


def test_rows_are_written_in_order_with_one_mod_revision(driven: RowsDriven) -> None:
    wrote = driven.write(RowWrite(b"a", b"1"), RowWrite(b"b", b"1"), RowWrite(b"a", b"2"), RowWrite(b"b", None))
    assert wrote == WroteRows(3, 1, b"")
    assert list(driven.machine.live.entries) == [b"a"]
    assert driven.machine.live.entries[b"a"].mod_revision == driven.revision == 4
    assert driven.write(RowWrite(b"b", None)) == WroteRows(0, 0, b"")


def test_rows_in_conflict_are_left_and_told(driven: RowsDriven) -> None:
    driven.write(RowWrite(b"a", b"1"))
    wrote = driven.write(
        RowWrite(b"a", b"2", expected=(b"1",)),
        RowWrite(b"a", b"3", expected=(b"1",)),
        RowWrite(b"n", b"1", expected=(None,)),
        *(RowWrite(b"n", b"2", expected=(None,)) for _ in range(20)),
        RowWrite(b"a", None, expected=(b"2",)),
    )
    assert isinstance(wrote, WroteRows)
    assert (wrote.written, wrote.removed) == (2, 1)
    assert wrote.conflict_rows == [1, *range(3, 23)]


def test_what_was_in_conflict_is_kept_under_a_prefix(driven: RowsDriven) -> None:
    driven.write(RowWrite(b"a", b"2", expected=(b"1",)), prefix=b"conflicts/")
    assert list(driven.machine.live.entries) == [b"conflicts/a"]


def test_a_row_with_a_time_to_live_goes_by_itself(driven: RowsDriven) -> None:
    driven.write(RowWrite(b"a", b"1", 500))
    assert driven.machine.next_due_ms(0) == 1500


def test_ten_thousand_rows_are_one_command(driven: RowsDriven) -> None:
    rows = [RowWrite(b"%d" % number, b"x") for number in range(ROW_WRITES_MAX)]
    assert driven.write(*rows) == WroteRows(ROW_WRITES_MAX, 0, b"")
    again = [RowWrite(row.key, b"x", 500) for row in rows]
    assert driven.write(*again) == WroteRows(ROW_WRITES_MAX, 0, b"")
    reply = driven.write(*(RowWrite(row.key, b"y", 0, (None,)) for row in rows))
    assert isinstance(reply, WroteRows)
    assert len(reply.conflict_rows) == ROW_WRITES_MAX
    assert len(encode(reply)) < 2_000


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (RowWrite(b"", b""), "row 1: a key has 1 to"),
        (RowWrite(b"k" * (KEY_BYTES_MAX + 1), b""), "row 1: a key has 1 to"),
        (RowWrite(b"k" * KEY_BYTES_MAX, b""), "a key with the prefix of conflicts"),
        (RowWrite(b"k", bytes(VALUE_BYTES_MAX + 1)), "row 1: a value has at most"),
        (RowWrite(b"k", b"", -1), "row 1: a time to live"),
        (RowWrite(b"k", None, 5), "row 1: a key that is to go"),
        (RowWrite(b"k", b"", 0, (None, None)), "at most one expected value"),
    ],
)
def test_a_row_that_cannot_be_written_refuses_all(driven: RowsDriven, row: RowWrite, reason: str) -> None:
    refused = driven.write(RowWrite(b"fine", b""), row, prefix=b"p/")
    assert isinstance(refused, MapRefused)
    assert reason in refused.reason
    assert not driven.machine.live.entries


def test_too_many_rows_are_refused(driven: RowsDriven) -> None:
    command = encode(WriteRows([RowWrite(b"k", b"")] * (ROW_WRITES_MAX + 1)))
    assert isinstance(driven.machine.decide(command, 1, 0), DeclinedDecision)
