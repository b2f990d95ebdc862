"""Machines describe themselves; and the counters that the tests use are a machine."""

from __future__ import annotations

import pytest

from rsm_spark.core.machine import decode_description, encode_description
from rsm_spark.errors import CorruptLogError
from rsm_spark.testing.counter_map import COUNTED, CounterMap, command, unpack


def test_description_is_read_back_and_fields_of_later_versions_are_passed_over() -> None:
    description = CounterMap().description
    text = encode_description(description)
    assert decode_description(text) == description
    assert decode_description(text[:-1] + b',"later":true}') == description


def test_decision_changes_nothing_and_apply_folds_it() -> None:
    machine = CounterMap()
    decision = machine.decide(command("add", "k", 3), 1, 0)
    assert machine.values == {}
    ((record_type, fields),) = decision.records
    change = machine.apply(record_type, fields, 1)
    assert change is not None
    assert change.old is None
    assert unpack(machine.query(command("k"), 1)) == unpack(decision.reply) == 3


def test_rows_do_not_show_what_is_applied_later_and_restore_the_state() -> None:
    machine = CounterMap()
    machine.apply(COUNTED, ("k", 1), 5)
    rows = machine.rows()
    machine.apply(COUNTED, ("k", 2), 6)
    other = CounterMap()
    other.restore(rows)
    assert other.values == {"k": 1}
    assert [row.revision for row in other.rows()] == [5]


def test_unknown_record_is_a_corrupt_log() -> None:
    with pytest.raises(CorruptLogError, match="type 99"):
        CounterMap().apply(99, ("k",), 1)
