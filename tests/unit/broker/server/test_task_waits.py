"""Who waits for a task is woken by the record that ends it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.machine.tables import RecordType
from broker.server.task_waits import TaskWaits
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.records import Record, encode_records

pytestmark = pytest.mark.asyncio


def entry(*records: tuple[int, Any]) -> bytes:
    """Return the payload of an entry with these (type, task id)."""
    return bytes(HEADER_BYTES) + encode_records([Record(kind, None, (task_id, b"")) for kind, task_id in records])


async def test_the_end_of_a_task_wakes_all_who_wait_for_it_and_nobody_else() -> None:
    waits = TaskWaits()
    first, second, other = waits.begin(7), waits.begin(7), waits.begin(8)
    waits.on_entry(entry((RecordType.TASK_ASSIGNED, 8), (RecordType.TASK_ENDED, 7)))
    assert (first.done(), second.done(), other.done()) == (True, True, False)
    assert len(waits) == 1


async def test_a_task_that_is_removed_wakes_who_waits_for_it() -> None:
    waits = TaskWaits()
    waiting = waits.begin(7)
    waits.on_entry(entry((RecordType.TASK_REMOVED, 7)))
    assert waiting.done()


async def test_who_leaves_is_forgotten_and_the_others_are_not() -> None:
    waits = TaskWaits()
    first, second = waits.begin(7), waits.begin(7)
    waits.leave(7, first)
    assert len(waits) == 1
    waits.leave(7, second)
    assert len(waits) == 0
    waits.leave(7, second)


async def test_an_entry_is_not_looked_into_while_nobody_waits() -> None:
    TaskWaits().on_entry(b"no entry at all")


async def test_nobody_is_kept_waiting_once_it_is_closed() -> None:
    waits = TaskWaits()
    before = waits.begin(7)
    waits.close()
    assert before.done()
    assert waits.begin(8).done()
    assert len(waits) == 0
