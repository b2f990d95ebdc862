"""What the broker simulation has found in the real code, played move by move: each was a promise broken."""

from __future__ import annotations

from typing import Any

from broker.core.commands import BrokerCommand, SubmitTasks, TaskSpec, WorkerAppeared
from broker.core.machine import BrokerMachine
from broker.core.messages import decode_reply, encode
from broker.core.policies import WorkerOffer
from broker.core.replies import BrokerReply, Refused
from broker.core.statuses import TaskStatus

_NOW_MS = 1_700_000_000_000
_ME = "a" * 32


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
    task_id, task = next(iter(log.machine.index.tasks.items()))
    assert task.status == TaskStatus.RUNNING
    assignment_id = task.assignment_id
    reply = log.do(WorkerAppeared("w", _ME, "", WorkerOffer(), stream=1))
    assert isinstance(reply, Refused)
    assert log.machine.index.tasks[task_id].assignment_id == assignment_id
