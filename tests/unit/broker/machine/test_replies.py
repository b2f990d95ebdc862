"""What the broker replies."""

from __future__ import annotations

from broker.machine.replies import TasksSubmitted


def test_every_task_of_a_batch_has_its_id_and_those_refused_have_none() -> None:
    assert TasksSubmitted(10, 3, [(1, 4), (3, 4)]).task_ids(5) == [10, 0, 11, 0, 12]
    assert TasksSubmitted(0, 0, [(0, 4)]).task_ids(1) == [0]
    assert TasksSubmitted(7, 2).task_ids(2) == [7, 8]
