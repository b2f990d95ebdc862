"""What the broker simulation has found in the real code, played move by move: each was a promise broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.machine.commands import (
    BrokerCommand,
    EndedRun,
    HeldRun,
    ReportRuns,
    SetHold,
    SubmitTasks,
    TaskSpec,
    WorkerAppeared,
    WorkerChanged,
    WorkerLost,
)
from broker.machine.machine import BrokerMachine
from broker.machine.messages import decode_reply, encode
from broker.machine.policies import WorkerOffer
from broker.machine.replies import BrokerReply, Done, Refused
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import AssignedRun, FromWorker, WorkerHello, WorkerWelcome
from broker.server.worker_registry import WorkerRegistry

_NOW_MS = 1_700_000_000_000
_ME = "a" * 32
_GONE = "b" * 32


class _Log:
    """One machine and the revision that it is at."""

    def __init__(self) -> None:
        self.machine = BrokerMachine()
        self.revision = 0
        self.now_ms = _NOW_MS

    def do(self, command: BrokerCommand) -> BrokerReply:
        """Decide a command and apply it."""
        decision = self.machine.decide(encode(command), self.revision + 1, self.now_ms)
        self._apply(decision.records)
        return decode_reply(decision.reply)

    def due(self) -> None:
        """Do what is due."""
        for record in self.machine.due(self.now_ms, _NOW_MS, 100):
            self._apply([record])

    def _apply(self, records: Any) -> None:
        for record_type, fields in records:
            self.revision += 1
            self.machine.apply(record_type, fields, self.revision)
        self.machine.validate()


def test_what_a_stream_said_that_was_given_up_is_too_late_when_the_next_one_has_been_taken_in() -> None:
    """Else a task that is to run at most once, delivered over the next stream, is taken for never delivered."""
    log = _Log()
    log.do(SubmitTasks("acme", [TaskSpec("mail", at_most_once=True)]))
    log.do(WorkerAppeared("w", _ME, "", WorkerOffer(), stream=2))
    log.due()
    task_id, task = next(iter(log.machine.tasks.by_id.items()))
    assert task.status == TaskStatus.RUNNING
    assignment_id = task.assignment_id
    reply = log.do(WorkerAppeared("w", _ME, "", WorkerOffer(), stream=1))
    assert isinstance(reply, Refused)
    assert log.machine.tasks.by_id[task_id].assignment_id == assignment_id


def test_a_task_whose_key_is_free_starts_though_the_one_before_it_is_held() -> None:
    """Else it waits until something else of its kind comes: its line had nothing queued."""
    log = _Log()
    log.do(SetHold("acme", "", "k1"))
    log.do(WorkerAppeared("w", _ME, "", WorkerOffer(), stream=1))
    log.do(SubmitTasks("acme", [TaskSpec("mail", key="k1")]))
    log.due()
    log.do(SubmitTasks("acme", [TaskSpec("mail")]))
    log.due()
    held, free = log.machine.tasks.by_id.values()
    assert held.status == TaskStatus.WAITING
    assert free.status == TaskStatus.RUNNING


class _Link:
    """A stream to a worker that is well."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.has_ended = False

    def welcome(self, welcome: WorkerWelcome) -> None: ...

    def assign(self, run: AssignedRun) -> None: ...

    def cancel(self, run: HeldRun) -> None: ...

    def acknowledge(self, assignment_ids: Sequence[int]) -> None:
        self.acknowledged += assignment_ids

    def change_work(self, size: int) -> None: ...

    def pong(self, number: int) -> None: ...

    def end(self, *, leader: str = "", refused: str = "", is_replaced: bool = False) -> None:  # noqa: ARG002
        self.has_ended = True


class _PickyRegistry:
    """A registry whose commands are taken, but for one kind, which is not."""

    def __init__(self, not_taken: type | None = None) -> None:
        self.commands: list[BrokerCommand] = []
        self.not_taken = not_taken
        self.now_s = 0.0
        self.registry = WorkerRegistry(
            self._submit,
            lambda _item: None,
            lambda: self.now_s,
            broker_id="b",
            lease_s=10.0,
            ping_s=1.0,
            was_replaced=lambda _worker_id, incarnation: incarnation == _GONE,
        )
        self.registry.begin([])
        self.link = _Link()
        self.registry.on_hello(self.link, WorkerHello("w", _ME, "", WorkerOffer(), stream=1))

    def _submit(self, command: BrokerCommand, on_reply: Any) -> None:
        self.commands.append(command)
        if self.not_taken is not None and isinstance(command, self.not_taken):
            on_reply(None, 0)
        else:
            on_reply(Done(1), 1)


@pytest.mark.parametrize(
    ("not_taken", "said"),
    [
        (ReportRuns, FromWorker(ended=[EndedRun(1, 2, int(TaskStatus.FINISHED))])),
        (WorkerChanged, FromWorker(is_draining=True)),
    ],
)
def test_what_a_worker_said_and_the_log_did_not_take_is_asked_for_again_by_the_end_of_its_stream(
    not_taken: type, said: FromWorker
) -> None:
    """Else it is never told again while the stream lasts: the task would run for ever, the worker never leave."""
    broker = _PickyRegistry(not_taken)
    broker.registry.on_said(broker.link, said)
    broker.registry.flush()
    assert broker.link.has_ended
    assert not broker.link.acknowledged


def test_the_leave_of_a_worker_that_the_log_did_not_take_is_told_again() -> None:
    """Else the log has it connected for ever, and gives it tasks."""
    broker = _PickyRegistry(WorkerLost)
    broker.registry.on_said(broker.link, FromWorker(is_draining=True, is_leaving=True))
    broker.registry.on_closed(broker.link)
    broker.not_taken = None
    broker.now_s = 11.0
    broker.registry.tick()
    assert broker.commands[-2:] == [WorkerLost("w", _ME, is_dead=True)] * 2


def test_a_late_hello_of_a_process_that_was_replaced_does_not_drive_out_the_one_that_replaced_it() -> None:
    """Else that one leaves, and all that it runs is lost: it is told that another process has its name."""
    broker = _PickyRegistry()
    late = _Link()
    broker.registry.on_hello(late, WorkerHello("w", _GONE, "", WorkerOffer(), stream=7))
    assert late.has_ended
    assert not broker.link.has_ended
    assert broker.registry.served_count == 1
