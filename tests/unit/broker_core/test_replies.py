"""What the broker replies."""

from __future__ import annotations

from broker.core.replies import Submitted


def test_every_task_of_a_batch_has_its_id_and_those_refused_have_none() -> None:
    assert Submitted(10, 3, [(1, 4), (3, 4)]).task_ids(5) == [10, 0, 11, 0, 12]
    assert Submitted(0, 0, [(0, 4)]).task_ids(1) == [0]
    assert Submitted(7, 2).task_ids(2) == [7, 8]
