from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.machine.commands import EndedRun, HeldRun, ProgressOf
from broker.machine.policies import WorkerOffer
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import AssignedRun, FromBroker, FromWorker, WorkerWelcome
from broker.worker.core.effects import (
    AskToDrain,
    EndStream,
    FollowLeader,
    ServiceRefused,
    StartRuns,
    StopReason,
    StopRuns,
)
from broker.worker.core.protocol import LinkState, WorkerProtocol
from broker.worker.core.protocol_limits import ProtocolLimits
from tests.sets import examples

LEASE_MS = 30_000
WELCOME = WorkerWelcome(5_000, LEASE_MS, "broker-1")
LIMITS = ProtocolLimits(lease_margin_ms=3_000)


def protocol(*, is_killable: bool = True, limits: ProtocolLimits = LIMITS) -> WorkerProtocol:
    return WorkerProtocol("w1", "a" * 32, "here", WorkerOffer(threads_max=4), is_killable=is_killable, limits=limits)


def run(assignment_id: int, *, heartbeat_ms: int = 0, code: str = "") -> AssignedRun:
    return AssignedRun(assignment_id + 1000, assignment_id, "t", "noop", b"p", 1, heartbeat_ms=heartbeat_ms, code=code)


def end(assignment_id: int, result: bytes = b"r") -> EndedRun:
    return EndedRun(assignment_id + 1000, assignment_id, TaskStatus.FINISHED, result=result)


def served(worker: WorkerProtocol, stream_id: int = 1, now_ms: int = 0, *, epoch: int = 1) -> FromWorker:
    """Open a stream and have it welcomed; return the hello."""
    worker.opened(stream_id, now_ms)
    hello = worker.compose(stream_id, now_ms)
    assert hello is not None
    assert worker.compose(stream_id, now_ms) is None
    assert worker.received(stream_id, FromBroker(epoch, welcome=WELCOME), now_ms) == []
    assert worker.state is LinkState.SERVED
    return hello


def test_a_stream_begins_with_the_hello_and_says_nothing_more_until_the_welcome() -> None:
    worker = protocol()
    worker.opened(1, 0)
    hello = worker.compose(1, 0)
    assert hello is not None
    assert hello.hello is not None
    assert (hello.hello.worker_id, hello.hello.delivered_up_to, hello.hello.held) == ("w1", 0, [])
    worker.change_offer(WorkerOffer(threads_max=8))
    assert worker.compose(1, 1) is None
    worker.received(1, FromBroker(1, welcome=WELCOME), 1)
    said = worker.compose(1, 1)
    assert said is not None
    assert said.offer == WorkerOffer(threads_max=8)
    assert worker.compose(1, 1) is None


def test_an_assignment_is_run_once_and_its_end_told_until_it_is_acknowledged() -> None:
    worker = protocol()
    served(worker)
    assert worker.received(1, FromBroker(1, assignments=[run(5), run(6)]), 1) == [StartRuns([run(5), run(6)])]
    worker.ended([end(5)])
    said = worker.compose(1, 2)
    assert said is not None
    assert said.ended == [end(5)]
    assert worker.compose(1, 3) is None
    hello = served(worker, 2, 10)
    assert hello.hello is not None
    assert hello.hello.ended == [end(5)]
    assert hello.hello.held == [HeldRun(1006, 6)]
    assert hello.hello.delivered_up_to == 6
    worker.received(2, FromBroker(1, acknowledged=[5]), 11)
    again = served(worker, 3, 20)
    assert again.hello is not None
    assert again.hello.ended == []
    worker.validate()


def test_an_assignment_at_or_below_one_received_is_dropped() -> None:
    worker = protocol()
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5)]), 1)
    assert worker.received(1, FromBroker(1, assignments=[run(5)]), 2) == []
    assert worker.received(1, FromBroker(1, assignments=[run(4), run(7)]), 3) == [StartRuns([run(7)])]
    served(worker, 2, 4)
    assert worker.received(2, FromBroker(1, assignments=[run(6)]), 5) == []


def test_messages_of_a_lower_epoch_are_dropped_and_their_stream_given_up() -> None:
    worker = protocol()
    served(worker, epoch=7)
    effects = worker.received(1, FromBroker(6, assignments=[run(5)]), 1)
    assert [type(effect) for effect in effects] == [EndStream]
    assert worker.delivered_up_to == 0
    assert worker.held_count == 0
    worker.opened(2, 2)
    worker.compose(2, 2)
    assert [type(one) for one in worker.received(2, FromBroker(6, welcome=WELCOME), 3)] == [EndStream]
    assert worker.state is LinkState.DOWN


def test_messages_of_a_former_stream_are_dropped() -> None:
    worker = protocol()
    served(worker)
    worker.opened(2, 5)
    assert worker.received(1, FromBroker(1, assignments=[run(5)]), 6) == []
    assert worker.delivered_up_to == 0


def test_ends_that_do_not_fit_the_hello_are_called_held_and_follow() -> None:
    worker = protocol(limits=ProtocolLimits(message_bytes_max=1000))
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(1), run(2), run(3)]), 1)
    ends = [end(number, b"x" * 900) for number in (1, 2, 3)]
    worker.ended(ends)
    hello = served(worker, 2, 5)
    assert hello.hello is not None
    assert hello.hello.ended == ends[:2]
    assert hello.hello.held == [HeldRun(1003, 3)]
    rest = worker.compose(2, 6)
    assert rest is not None
    assert rest.ended == ends[2:]


def test_redirects_and_refusals_end_the_stream() -> None:
    worker = protocol()
    worker.opened(1, 0)
    worker.compose(1, 0)
    assert worker.received(1, FromBroker(0, leader="b:1"), 1) == [FollowLeader("b:1")]
    worker.opened(2, 2)
    worker.compose(2, 2)
    assert worker.received(2, FromBroker(0, refused="too many"), 3) == [ServiceRefused("too many", False)]
    served(worker, 3, 4)
    worker.received(3, FromBroker(1, assignments=[run(5)]), 5)
    why = "in any words"
    assert worker.received(3, FromBroker(1, refused=why, is_replaced=True), 6) == [
        StopRuns([5], StopReason.LEASE),
        ServiceRefused(why, True),
    ]


@pytest.mark.parametrize(
    ("why", "said", "is_replaced"),
    [
        # Brokers of before the field: their words are all there is.
        ("another process works as 'w1' now: give each its own id", None, True),
        ("too many", None, False),
        ("incarnation 'x' of worker 'w1': that worker is at present incarnation 'y'", None, False),
        # The field counts, whatever the words are.
        ("another process works as 'w1' now: give each its own id", False, False),
        ("incarnation 'x' of worker 'w1': that worker is at present incarnation 'y'", True, True),
    ],
)
def test_whether_a_worker_was_replaced_is_a_field_and_of_older_brokers_a_sentence(
    why: str, said: bool | None, is_replaced: bool
) -> None:
    worker = protocol()
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5)]), 5)
    stopped = [StopRuns([5], StopReason.LEASE)] if is_replaced else []
    refused = FromBroker(1, refused=why, is_replaced=said)
    assert worker.received(1, refused, 6) == [*stopped, ServiceRefused(why, is_replaced)]


def test_killable_runs_are_stopped_one_margin_before_the_lease_runs_out() -> None:
    """Counted from when something was said that is answered: what was heard since may have lain for long."""
    worker = protocol()
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5), run(6)]), 1_000)
    worker.lost(1)
    due_ms = LEASE_MS - LIMITS.lease_margin_ms
    assert worker.next_due_ms() == due_ms
    assert worker.tick(due_ms - 1) == []
    assert worker.tick(due_ms) == [StopRuns([5, 6], StopReason.LEASE)]
    assert worker.tick(due_ms + 1) == []


def test_runs_that_cannot_be_killed_are_told_as_they_are_but_those_of_code_pools_are_stopped() -> None:
    worker = protocol(is_killable=False)
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5), run(6, code="c")]), 0)
    worker.lost(1)
    assert worker.tick(LEASE_MS) == [StopRuns([6], StopReason.LEASE)]
    hello = served(worker, 2, LEASE_MS + 1)
    assert hello.hello is not None
    assert hello.hello.held == [HeldRun(1005, 5), HeldRun(1006, 6)]


def test_a_message_that_lay_longer_than_the_lease_is_not_delivered() -> None:
    """A worker that was paused finds old assignments in its stream: the broker has given them elsewhere."""
    worker = protocol()
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5)]), 1)
    effects = worker.received(1, FromBroker(1, assignments=[run(6)]), LEASE_MS)
    assert effects[0] == StopRuns([5], StopReason.LEASE)
    assert isinstance(effects[1], EndStream)
    hello = served(worker, 2, LEASE_MS + 1, epoch=2)
    assert hello.hello is not None
    assert hello.hello.delivered_up_to == 5


def test_silence_is_broken_by_a_ping_and_a_broker_that_does_not_answer_is_given_up() -> None:
    worker = protocol()
    served(worker)
    assert worker.compose(1, 4_999) is None
    said = worker.compose(1, 5_000)
    assert said is not None
    assert said.ping == 1
    worker.received(1, FromBroker(1, pong=1), 5_010)
    said = worker.compose(1, 10_000)
    assert said is not None
    assert said.ping == 2
    silent_ms = 5_000 + LEASE_MS - LIMITS.lease_margin_ms  # Not from when the answer was looked at.
    assert worker.tick(silent_ms - 1) == []
    assert [type(one) for one in worker.tick(silent_ms)] == [EndStream]


def test_a_broker_that_does_not_welcome_is_given_up() -> None:
    worker = protocol()
    worker.opened(1, 0)
    worker.compose(1, 0)
    assert worker.tick(LIMITS.welcome_ms_max - 1) == []
    assert [type(one) for one in worker.tick(LIMITS.welcome_ms_max)] == [EndStream]


def test_a_first_message_without_a_welcome_ends_the_stream() -> None:
    worker = protocol()
    worker.opened(1, 0)
    worker.compose(1, 0)
    assert [type(one) for one in worker.received(1, FromBroker(1, assignments=[run(1)]), 1)] == [EndStream]
    assert worker.held_count == 0


def test_progress_is_told_once_a_second_and_more_often_for_short_heartbeats() -> None:
    worker = protocol()
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5), run(6, heartbeat_ms=300)]), 0)
    for assignment_id in (5, 6):
        worker.progressed(ProgressOf(assignment_id + 1000, assignment_id, 0.1))
    said = worker.compose(1, 10)
    assert said is not None
    assert [one.assignment_id for one in said.progress] == [5, 6]
    for fraction in (0.2, 0.3):
        for assignment_id in (5, 6):
            worker.progressed(ProgressOf(assignment_id + 1000, assignment_id, fraction))
    assert worker.compose(1, 109) is None
    assert worker.next_due_ms() == 110
    said = worker.compose(1, 110)
    assert said is not None
    assert said.progress == [ProgressOf(1006, 6, 0.3)]
    said = worker.compose(1, 1_010)
    assert said is not None
    assert said.progress == [ProgressOf(1005, 5, 0.3)]


def test_progress_of_a_run_that_has_ended_is_not_told() -> None:
    worker = protocol()
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5)]), 0)
    worker.progressed(ProgressOf(1005, 5, 0.1))
    worker.ended([end(5)])
    said = worker.compose(1, 1)
    assert said is not None
    assert not said.progress
    assert said.ended


def test_cancels_reach_runs_that_are_held_and_no_others() -> None:
    worker = protocol(is_killable=False)
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5)]), 0)
    cancel = FromBroker(1, cancels=[HeldRun(1005, 5), HeldRun(1009, 9)])
    assert worker.received(1, cancel, 1) == [StopRuns([5], StopReason.CANCELLED)]
    assert worker.received(1, cancel, 2) == []


def test_a_drained_worker_leaves_when_all_that_ran_is_acknowledged() -> None:
    worker = protocol()
    served(worker)
    worker.received(1, FromBroker(1, assignments=[run(5)]), 0)
    worker.drain()
    said = worker.compose(1, 1)
    assert said is not None
    assert said.is_draining
    assert not said.is_leaving
    worker.ended([end(5)])
    said = worker.compose(1, 2)
    assert said is not None
    assert said.ended
    assert not said.is_leaving
    worker.received(1, FromBroker(1, acknowledged=[5]), 3)
    said = worker.compose(1, 4)
    assert said is not None
    assert said.is_leaving
    assert worker.has_left
    worker.validate()


def test_what_arrives_while_draining_is_run_all_the_same() -> None:
    worker = protocol()
    served(worker)
    worker.drain()
    assert worker.received(1, FromBroker(1, assignments=[run(5)]), 1) == [StartRuns([run(5)])]


def test_a_broker_that_wants_the_worker_to_stop_has_it_drain() -> None:
    worker = protocol()
    served(worker)
    assert worker.received(1, FromBroker(1, is_stop=True), 1) == [AskToDrain()]
    worker.drain()
    assert worker.received(1, FromBroker(1, is_stop=True), 2) == []


def test_ends_of_runs_that_are_not_held_are_passed_over() -> None:
    worker = protocol()
    served(worker)
    worker.ended([end(9)])
    assert worker.compose(1, 1) is None
    worker.received(1, FromBroker(1, assignments=[run(9)]), 2)
    worker.ended([end(9, b"first"), end(9, b"second")])
    said = worker.compose(1, 3)
    assert said is not None
    assert said.ended == [end(9, b"first")]


def test_streams_are_numbered_upwards() -> None:
    worker = protocol()
    worker.opened(2, 0)
    with pytest.raises(AssertionError):
        worker.opened(2, 1)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "compose", "welcome", "assign", "ack", "end", "lose", "tick", "cancel", "deposed"]),
        st.integers(0, 40),
        st.integers(0, 12_000),
    ),
    max_size=60,
)


@settings(max_examples=examples(80), deadline=None)
@given(steps=_STEPS)
def test_every_run_is_started_once_and_every_end_is_told_until_it_is_known(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes in whatever order: no id is started twice, none is lost between held, ended and acknowledged."""
    worker = protocol()
    now_ms = stream_id = 0
    epoch = 1
    started: list[int] = []
    over: set[int] = set()
    for kind, number, passed_ms in steps:
        now_ms += passed_ms
        effects: list[object] = []
        match kind:
            case "open":
                stream_id += 1
                worker.opened(stream_id, now_ms)
            case "compose":
                worker.compose(stream_id, now_ms)
            case "welcome":
                effects += worker.received(stream_id, FromBroker(epoch, welcome=WELCOME), now_ms)
            case "assign":
                effects += worker.received(stream_id, FromBroker(epoch, assignments=[run(number)]), now_ms)
            case "ack":
                over |= {number} & set(worker._ends.assignment_ids) if worker.state is LinkState.SERVED else set()
                effects += worker.received(stream_id, FromBroker(epoch, acknowledged=[number]), now_ms)
                over -= set(worker._ends.assignment_ids)
            case "end":
                worker.ended([end(number)])
            case "lose":
                worker.lost(stream_id)
            case "tick":
                effects += worker.tick(now_ms)
            case "cancel":
                effects += worker.received(stream_id, FromBroker(epoch, cancels=[HeldRun(0, number)]), now_ms)
            case "deposed":
                effects += worker.received(stream_id, FromBroker(epoch - 1, assignments=[run(number)]), now_ms)
                epoch += number % 2
        for effect in effects:
            if isinstance(effect, StartRuns):
                started += [one.assignment_id for one in effect.runs]
        worker.validate()
        assert started == sorted(set(started))
        assert set(started) == set(worker._held) | set(worker._ends.assignment_ids) | over
