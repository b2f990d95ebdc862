"""Records that time makes due: logged by the leader as its own, around the commands of the entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rsm_spark.core.batching import Batch, BatchLimits, Composer
from rsm_spark.core.commands import Command, OpenSession, Query
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.machine import TimedMachine
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.testing.counter_map import COUNTED, DROPPED, CounterMap, command, unpack

LIMIT = 64 * 1024
SESSION = bytes(16)


class ExpiringCounters(CounterMap):
    """A counter is dropped once it is as old, in milliseconds, as it says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int, int]] = []

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        """Return what is to be dropped."""
        self.asked.append((now_ms, promoted_ms, limit))
        over = [key for key, age in self.values.items() if promoted_ms + age <= now_ms]
        return [(DROPPED, (key,)) for key in over[:limit]]

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return when the next one is to be dropped."""
        return min((promoted_ms + age for age in self.values.values()), default=None)


def _leader(counters: dict[str, int], *, commands: int = 1000) -> tuple[Composer, ReplicatedState]:
    states = [ReplicatedState(ExpiringCounters(), bytes(16)) for _ in range(2)]
    for state in states:
        for key, age in counters.items():
            state.fold(COUNTED, None, (key, age), 0)
        state.entry_revision = state.revision
    limits = BatchLimits(LIMIT, commands, 10)
    composer = Composer(
        states[0], limits, leader_epoch=1, promoted_ms=100, session_ttl_ms=10**9, checkpoint_records=10**9
    )
    return composer, states[1]


def _compose(composer: Composer, now_ms: int, queue: RequestQueue | None = None) -> Batch:
    return composer.compose(queue or RequestQueue(), now_ms)


def _dropped(batch: Batch) -> list[str]:
    records = decode_records(batch.payload[HEADER_BYTES:])
    return [record.fields[0] for record in records if record.type == DROPPED]


def test_machine_without_time_is_never_asked() -> None:
    state = ReplicatedState(CounterMap(), bytes(16))
    composer = Composer(
        state, BatchLimits(LIMIT, 10, 10), leader_epoch=1, promoted_ms=0, session_ttl_ms=10, checkpoint_records=10
    )
    assert not isinstance(state.machine, TimedMachine)
    assert composer.next_due_ms() is None
    assert _compose(composer, 5).envelope.record_count == 0


def test_what_is_due_is_logged_before_the_requests_of_the_entry_see_the_state() -> None:
    composer, follower = _leader({"a": 5, "b": 50})
    assert composer.next_due_ms() == 105
    queue, submission = RequestQueue(), Submission([Query(command("a")), Query(command("b"))], None)
    queue.add(submission)
    batch = _compose(composer, 105, queue)
    assert _dropped(batch) == ["a"]
    assert [unpack(answer.payload) for answer in submission.answers] == [0, 50]
    follower.apply_entry(batch.payload)
    assert follower.digest == composer.state.digest
    assert composer.next_due_ms() == 150


def test_first_entry_of_a_leadership_asks_for_nothing_due() -> None:
    composer, _ = _leader({"a": 0})
    batch = composer.compose_start([(KernelRecord.LEADER_STARTED, ("a", "x"))], 100)
    assert (_dropped(batch), batch.envelope.record_count) == ([], 1)


def test_entry_takes_no_more_than_its_limit_and_the_next_one_goes_on() -> None:
    composer, _ = _leader(dict.fromkeys("abcde", 0), commands=2)
    assert [_dropped(_compose(composer, 200 + turn)) for turn in range(4)] == [["a", "b"], ["c", "d"], ["e"], []]


def test_half_of_an_entry_is_left_to_commands() -> None:
    names = [f"{number:03}" + "x" * 1000 for number in range(60)]
    composer, follower = _leader(dict.fromkeys(names, 0))
    counts = []
    while composer.next_due_ms() is not None:
        batch = _compose(composer, 200)
        counts.append(len(_dropped(batch)))
        assert len(batch.payload) <= LIMIT // 2 + 1100
        follower.apply_entry(batch.payload)
    assert sum(counts) == 60
    assert len(counts) == 2
    assert follower.digest == composer.state.digest


def _submit(*counters: tuple[str, int]) -> tuple[RequestQueue, Submission]:
    queue = RequestQueue()
    requests = [Command(SESSION, number, 0, command("add", *one)) for number, one in enumerate(counters, 1)]
    submission = Submission([OpenSession(SESSION), *requests], None)
    queue.add(submission)
    return queue, submission


def test_what_commands_make_due_at_once_is_logged_behind_them_in_their_entry() -> None:
    composer, follower = _leader({})
    queue, submission = _submit(("now", 0), ("later", 50))
    batch = _compose(composer, 100, queue)
    assert _dropped(batch) == ["now"]
    assert [unpack(answer.payload) for answer in submission.answers[1:]] == [0, 50]
    follower.apply_entry(batch.payload)
    assert follower.digest == composer.state.digest


def test_a_command_that_does_not_fit_beside_what_is_due_begins_the_next_entry() -> None:
    names = [f"{number:03}" + "x" * 1000 for number in range(200)]
    composer, _ = _leader(dict.fromkeys(names, 0))
    queue, submission = _submit(("y" * (LIMIT - 2_000), 10**6))
    seen = [(bool(_dropped(_compose(composer, 200, queue))), submission.decided) for _ in range(4)]
    assert seen == [(True, 1), (True, 1), (False, 2), (True, 2)]


class _Chained(ExpiringCounters):
    """Decides what is due next on what the record before has made of the state."""

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterator[tuple[int, tuple[Any, ...]]]:  # type: ignore[override]
        """Drop one counter after the other for as long as more than one is left."""
        while len(self.values) > 1:
            yield DROPPED, (min(self.values),)


def test_each_due_record_is_applied_before_the_next_one_is_asked_for() -> None:
    state = ReplicatedState(_Chained(), bytes(16))
    for key in "abc":
        state.fold(COUNTED, None, (key, 0), 0)
    composer = Composer(
        state, BatchLimits(LIMIT, 10, 10), leader_epoch=1, promoted_ms=0, session_ttl_ms=10**9, checkpoint_records=10**9
    )
    assert _dropped(_compose(composer, 5)) == ["a", "b"]
