"""The machine as the kernel runs it: composed into entries, applied by followers, cut wherever an entry is full."""

from __future__ import annotations

import random

import pytest

from broker.machine import commands as c
from broker.machine import messages
from broker.machine.machine import BrokerMachine
from broker.machine.outbox import OutboxKind
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.replies import TasksSubmitted
from broker.machine.rules import BrokerRules
from broker.machine.tables import Table
from rsm_spark.core.batching import BatchLimits, Composer
from rsm_spark.core.commands import AnswerStatus, Command, OpenSession
from rsm_spark.core.machine import TimedMachine
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission

SESSION = b"s" * 16
RULES = BrokerRules(retention_ms=500, dead_retention_ms=900, request_retention_ms=300)


class Cluster:
    """A leader's composer and a follower that applies its entries."""

    def __init__(self, *, entry_bytes_max: int = 64 * 1024, entry_commands_max: int = 2_000) -> None:
        self.now_ms = 1_000
        self.limits = BatchLimits(entry_bytes_max, entry_commands_max, 100)
        self.leader = ReplicatedState(BrokerMachine(RULES), bytes(16))
        self.follower = ReplicatedState(BrokerMachine(RULES), bytes(16))
        self.sequence = 0
        self.lead(1)
        queue = RequestQueue()
        queue.add(Submission([OpenSession(SESSION)], None))
        self.ship(self.composer.compose(queue, self.now_ms))

    def lead(self, epoch: int) -> None:
        self.machine.outbox.open()
        self.composer = Composer(
            self.leader, self.limits, leader_epoch=epoch, promoted_ms=self.now_ms, session_ttl_ms=10**9,
            checkpoint_records=50,
        )  # fmt: skip
        self.ship(self.composer.compose_start([], self.now_ms))

    @property
    def machine(self) -> BrokerMachine:
        assert isinstance(self.leader.machine, BrokerMachine)
        return self.leader.machine

    def ship(self, batch: object) -> None:
        self.leader.settle()
        self.follower.apply_entry(batch.payload)  # type: ignore[attr-defined]

    def run(self, *commands: object) -> list[object]:
        """Send commands in one submission; return their replies."""
        requests = []
        for command in commands:
            self.sequence += 1
            requests.append(Command(SESSION, self.sequence, self.sequence - 1, messages.encode(command)))  # type: ignore[arg-type]
        queue, submission = RequestQueue(), Submission(requests, None)
        queue.add(submission)
        while queue.request_count:
            self.ship(self.composer.compose(queue, self.now_ms))
        assert {answer.status for answer in submission.answers} == {AnswerStatus.OK}
        return [messages.decode_reply(answer.payload) for answer in submission.answers]

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for _ in range(200):
            due_ms = self.composer.next_due_ms()
            if due_ms is None or due_ms > self.now_ms:
                return
            self.ship(self.composer.compose(RequestQueue(), self.now_ms))
        raise AssertionError("something is due for ever")

    def change_leaders(self, epoch: int) -> None:
        self.machine.outbox.close()
        self.leader, self.follower = self.follower, self.leader
        self.lead(epoch)

    def check(self) -> None:
        assert not self.composer.failures
        for state in (self.leader, self.follower):
            state.validate()
            state.machine.validate()  # type: ignore[attr-defined]
        assert self.leader.digest == self.follower.digest
        assert self.leader.row_count == self.follower.row_count


def test_it_is_a_machine_in_which_things_fall_due() -> None:
    assert isinstance(BrokerMachine(), TimedMachine)


def test_a_submitted_task_is_assigned_in_the_entry_that_submits_it() -> None:
    cluster = Cluster()
    cluster.run(c.WorkerAppeared("w", "i", "", WorkerOffer(2)))
    cluster.machine.outbox.take(10**9)
    before = cluster.leader.entry_revision
    (reply,) = cluster.run(c.SubmitTasks("acme", [c.TaskSpec("mail")]))
    assert isinstance(reply, TasksSubmitted)
    (item,) = cluster.machine.outbox.take(cluster.leader.revision)
    assert (item.kind, item.task_id) == (OutboxKind.ASSIGN, reply.first_task_id)
    assert cluster.leader.entry_revision == before + 2
    assert len(cluster.follower.machine.outbox) == 0  # type: ignore[attr-defined]
    cluster.check()


@pytest.mark.parametrize("seed", range(6))
def test_leader_and_follower_have_the_same_state_wherever_entries_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(entry_commands_max=rng.choice([1, 2, 5, 2_000]))
    cluster.run(c.SetTenant("b", TenantPolicy(running_max=3, weight=2.0)))
    for step in range(60):
        tenant = rng.choice("ab")
        specs = [
            c.TaskSpec(
                rng.choice(["mail", "sms"]), bytes(rng.choice([0, 100, 9_000])), at_most_once=rng.random() < 0.3,
                slot=rng.choice(["", "s", "t"]), delay_ms=rng.choice([0, 30]), ttl_ms=rng.choice([0, 90]),
                heartbeat_ms=rng.choice([0, 70]), max_attempts=rng.choice([0, 2]),
            )
            for _ in range(rng.randint(1, 5))
        ]  # fmt: skip
        worker = rng.choice(["w1", "w2"])
        choice = rng.random()
        if choice < 0.35:
            cluster.run(c.SubmitTasks(tenant, specs, rng.choice(["", f"key {step // 3}"])))
        elif choice < 0.45:
            cluster.run(c.WorkerAppeared(worker, f"i{step // 20}", "", WorkerOffer(rng.randint(0, 5))))
        elif choice < 0.5:
            cluster.run(c.WorkerLost(worker, f"i{step // 20}", rng.random() < 0.5))
        elif choice < 0.6:
            cluster.run(c.CancelTasks("", rng.sample(sorted(cluster.machine.tasks.by_id) or [1], 1)))
        elif choice < 0.65:
            cluster.change_leaders(step + 2)
        elif choice < 0.7:
            (begun,) = cluster.run(c.BeginTransaction(tenant, rng.choice([20, 2_000])))
            cluster.run(c.SubmitTasks(tenant, specs, "", begun.transaction))  # type: ignore[attr-defined]
            if rng.random() < 0.5:
                cluster.run(c.CommitTransaction(tenant, begun.transaction))  # type: ignore[attr-defined]
        elif choice < 0.9:
            ends = [
                c.EndedRun(task.task_id, task.assignment_id, rng.choice([2, 4, 7]), result=b"r")
                for task in cluster.machine.tasks.runs_of(worker)
            ]
            cluster.run(c.ReportRuns(worker, f"i{step // 20}", ends))
        cluster.pass_time(rng.choice([0, 0, 10, 40, 200]))
        cluster.check()
    cluster.pass_time(10**7)
    cluster.check()
    machine = cluster.machine
    assert machine.count(Table.STATES) <= machine.count(Table.TASKS)
    assert machine.count(Table.SLOTS) <= machine.tasks.unfinished
    assert machine.count(Table.REQUESTS) == machine.count(Table.TRANSACTIONS) == 0


def test_a_dead_worker_is_forgotten_in_time() -> None:
    cluster = Cluster()
    cluster.run(c.WorkerAppeared("w", "i", "", WorkerOffer(2)), c.WorkerLost("w", "i", is_dead=True))
    cluster.pass_time(RULES.worker_retention_ms - 1)
    assert list(cluster.machine.workers.by_id) == ["w"]
    cluster.pass_time(1)
    assert list(cluster.machine.workers.by_id) == []
    cluster.check()
