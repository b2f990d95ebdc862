from __future__ import annotations

from broker.machine.commands import EndedRun, HeldRun
from broker.machine.statuses import TaskStatus
from broker.worker.core.ends import Ends


def end(assignment_id: int, size: int = 0) -> EndedRun:
    return EndedRun(assignment_id + 1000, assignment_id, TaskStatus.FINISHED, result=b"x" * size)


def test_an_end_is_told_once_on_each_stream_until_it_is_acknowledged() -> None:
    ends = Ends()
    ends.add(end(1))
    ends.add(end(2))
    assert ends.take(1000) == [end(1), end(2)]
    assert ends.take(1000) == []
    ends.acknowledge([1, 7])
    ends.tell_again()
    assert ends.take(1000) == [end(2)]
    ends.acknowledge([2])
    ends.tell_again()
    assert ends.take(1000) == []
    assert not ends
    ends.validate()


def test_a_message_takes_what_fits_and_at_least_one() -> None:
    ends = Ends()
    for number in (1, 2, 3):
        ends.add(end(number, 900))
    assert ends.take(100) == [end(1, 900)]
    assert ends.rest() == [HeldRun(1002, 2), HeldRun(1003, 3)]
    assert ends.take(1_000) == [end(2, 900), end(3, 900)]


def test_an_end_that_is_acknowledged_before_it_was_told_again_is_not() -> None:
    ends = Ends()
    ends.add(end(1))
    ends.take(1000)
    ends.tell_again()
    ends.acknowledge([1])
    assert ends.take(1000) == []
    ends.validate()
