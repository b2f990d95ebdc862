"""A client: asks, is told or not, asks again; and keeps what it was told.

One that has no session of its own asks by the broker's: what it does not hear of is asked again only if it has a
request key, or does no harm. One that has a session sends the same command again until it hears.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.machine.commands import (
    BeginTransaction,
    BrokerCommand,
    CancelTasks,
    ChangeTasks,
    CommitTransaction,
    RemoveWorker,
    ReplayDead,
    RollbackTransaction,
    SubmitTasks,
    TaskSpec,
)
from broker.machine.messages import decode_reply, encode
from broker.machine.replies import Begun, BrokerReply, Committed, Refused, TasksSubmitted
from broker.machine.statuses import WorkerStatus
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession
from tests.broker_sim.sim_broker import SimBroker
from tests.broker_sim.virtual_time import SimProcess
from tests.broker_sim.witness import fail
from tests.broker_sim.workload import BAN, TENANTS, deploy_code, draw_lift, undo_all

if TYPE_CHECKING:
    from tests.broker_sim.world import BrokerWorld

__all__ = ["SimClient"]

_TIMEOUT_MS = 3_000
_PAUSE_MS = 200
_CERTAIN = {AnswerStatus.OK, AnswerStatus.REFUSED, AnswerStatus.TOO_LARGE}
_NOT_EXECUTED = {
    AnswerStatus.NOT_LEADER,
    AnswerStatus.OVERLOADED,
    AnswerStatus.SEQUENCE_GAP,
    AnswerStatus.SESSION_EXPIRED,
}

OnReply = Callable[[BrokerReply | None], None]


class SimClient(SimProcess):
    """See the module.

    Args:
        world: In which it lives.
        name: Begins the payloads of its tasks.

    Attributes:
        is_done: It has nothing under way and begins nothing more.

    """

    def __init__(self, world: BrokerWorld, name: str) -> None:
        super().__init__(world.time, name)
        self.is_done = False
        self._world = world
        self._witness = world.witness
        self._rng = rng = random.Random(world.rng.random())
        self._has_session = rng.random() < 0.4
        self._session = rng.randbytes(16)
        self._is_open = False
        self._sequence = 0
        self._number = 0
        self._attempt = 0
        self._task_ids: dict[str, list[int]] = {tenant: [] for tenant in TENANTS}
        self._last: list[BrokerCommand] | None = None

    def start(self) -> None:
        """Begin to ask."""
        self.begin_life()
        self._ask(deploy_code(), lambda _reply: self._ban(), is_repeatable=True)

    def _ban(self) -> None:
        """Have the operator ban something, where tenants will try to lift it."""
        if not self._world.work.lift:
            self._go_on()
            return
        self._ask(BAN, self._on_banned, is_repeatable=True)

    def _on_banned(self, _reply: BrokerReply | None) -> None:
        self._witness.bans.add((BAN.tenant, BAN.type, BAN.key))
        self._go_on()

    def _lift(self) -> None:
        command = draw_lift(self._rng, self._world.auditor.logged_ms)
        self._ask(command, lambda _reply: self._go_on(), is_repeatable=True)

    # ---- what it does

    def _go_on(self) -> None:
        """Do the next thing, after a pause."""
        if self._world.is_calm:
            self._wind_up()
            return
        self.after(self._rng.expovariate(1) * self._world.work.pause_ms, self._do)

    def _wind_up(self) -> None:
        """See to it that nothing holds tasks back; then end."""
        auditor = self._world.auditor
        others = [client for client in self._world.clients if client is not self]
        if self.name == "c0" and not all(client.is_done for client in others):
            self.after(_PAUSE_MS, self._wind_up)  # They may hold something back yet.
            return
        if self._last is None:
            self._witness.bans.clear()
            self._last = undo_all(list(auditor.gates.holds), list(auditor.gates.limits)) if self.name == "c0" else []
        if not self._last:
            self.is_done = True
            return
        command = self._last.pop()
        self._ask(command, lambda _reply: self._go_on(), is_repeatable=True)

    def _do(self) -> None:
        work, rng = self._world.work, self._rng
        tenant = rng.choice(TENANTS)
        acts: dict[Callable[[], None], float] = {
            lambda: self._submit(tenant): 1.0,
            lambda: self._begin(tenant): work.transaction,
            lambda: self._cancel(tenant): work.cancel,
            lambda: self._change(tenant): work.change,
            lambda: self._replay(tenant): work.replay,
            self._govern: work.govern,
            self._lift: work.lift,
        }
        rng.choices(list(acts), list(acts.values()))[0]()

    def _draw(self) -> list[TaskSpec]:
        now_ms = self._world.auditor.logged_ms
        specs: list[TaskSpec] = []
        for _ in range(self._rng.randint(1, self._world.work.batch_max)):
            self._number += 1
            specs.append(self._world.work.draw_task(self._rng, f"{self.name}-{self._number}".encode(), now_ms))
        return specs

    def _submit(self, tenant: str, transaction: int = 0, then: Callable[[bool], None] | None = None) -> None:
        specs = self._draw()
        is_keyed = self._rng.random() < self._world.work.keyed
        key = f"{self.name}:{self._number}" if is_keyed else ""
        self._witness.on_sent(tenant, specs, transaction)

        def _on_reply(reply: BrokerReply | None) -> None:
            if isinstance(reply, TasksSubmitted):
                task_ids = reply.task_ids(len(specs))
                self._witness.on_accepted(specs, task_ids)
                self._task_ids[tenant] += filter(None, task_ids)
            elif isinstance(reply, Refused):
                self._witness.on_denied(specs)
            if then is None:
                self._go_on()
            else:
                then(reply is not None)

        self._ask(SubmitTasks(tenant, specs, key, transaction), _on_reply, is_repeatable=is_keyed)

    def _begin(self, tenant: str) -> None:
        def _on_reply(reply: BrokerReply | None) -> None:
            if isinstance(reply, Begun):
                self._fill(tenant, reply.transaction, self._rng.randint(0, 3))
            else:
                self._go_on()

        self._ask(BeginTransaction(tenant, self._rng.choice((1_500, 8_000))), _on_reply)

    def _fill(self, tenant: str, transaction: int, left: int) -> None:
        if left:
            again = partial(self._fill, tenant, transaction, left - 1)
            self._submit(tenant, transaction, lambda _is_known: self.after(self._rng.uniform(0, 300), again))
            return
        chance = self._rng.random()
        if chance < 0.7:
            command: CommitTransaction | RollbackTransaction = CommitTransaction(tenant, transaction)
        elif chance < 0.85:
            command = RollbackTransaction(tenant, transaction)
        else:
            self._go_on()  # Its time runs out.
            return
        self._ask(command, partial(self._on_over, command), is_repeatable=True)

    def _on_over(self, command: CommitTransaction | RollbackTransaction, reply: BrokerReply | None) -> None:
        """Compare what was said of the end of a transaction with the log."""
        found = self._world.auditor.transactions.get(command.transaction)
        is_committed = found == 0
        if isinstance(command, CommitTransaction) and reply is not None:
            if isinstance(reply, Committed) != is_committed:
                fail("nothing-lost", f"a commit of transaction {command.transaction} was answered {reply}: {found}")
        elif isinstance(reply, Committed) and is_committed:
            fail("nothing-lost", f"transaction {command.transaction} was rolled back, the log has it committed")
        self._go_on()

    def _some(self, tenant: str) -> list[int]:
        known = self._task_ids[tenant][-20:]
        return self._rng.sample(known, min(len(known), self._rng.randint(1, 3)))

    def _cancel(self, tenant: str) -> None:
        task_ids = self._some(tenant)
        if not task_ids:
            self._go_on()
            return
        self._ask(CancelTasks(tenant, task_ids), lambda _reply: self._go_on(), is_repeatable=True)

    def _change(self, tenant: str) -> None:
        task_ids, rng = self._some(tenant), self._rng
        if not task_ids:
            self._go_on()
            return
        command = ChangeTasks(
            tenant,
            task_ids,
            rng.choice((None, 7)),
            rng.choice((None, 2)),
            rng.choice((None, {}, {"db": 2})),
            rng.choice((None, None, self._world.auditor.logged_ms + 4_000)),
        )
        self._ask(command, lambda _reply: self._go_on(), is_repeatable=True)

    def _replay(self, tenant: str) -> None:
        dead = self._world.auditor.dead_of(tenant)
        task_ids = self._rng.sample(dead, min(len(dead), 2)) if self._rng.random() < 0.7 else []
        self._ask(ReplayDead(tenant, task_ids), lambda _reply: self._go_on(), is_repeatable=False)

    def _govern(self) -> None:
        workers = self._world.auditor.gates.workers
        dead = [name for name, worker in workers.items() if worker[0] == WorkerStatus.DEAD]
        command: BrokerCommand
        if dead and self._rng.random() < 0.3:
            command = RemoveWorker(self._rng.choice(dead))
        else:
            command = self._world.work.draw_government(self._rng, self._world.auditor.logged_ms)
        self._ask(command, lambda _reply: self._go_on(), is_repeatable=True)

    # ---- how it asks

    def _ask(self, command: BrokerCommand, on_reply: OnReply, *, is_repeatable: bool = False) -> None:
        """Ask until it is told, or cannot know; `on_reply` gets None then."""
        if self._has_session:
            self._sequence += 1
        self._try(command, on_reply, is_repeatable or self._has_session)

    def _try(self, command: BrokerCommand, on_reply: OnReply, is_repeatable: bool) -> None:
        self._attempt += 1
        attempt = self._attempt
        leader = self._world.leader
        brokers = self._world.brokers
        broker = leader if leader is not None and self._rng.random() < 0.8 else self._rng.choice(brokers)

        def _on_answer(answer: Answer) -> None:
            if attempt == self._attempt:
                self._attempt += 1  # Answered: what comes later is passed over.
                self._judge(answer, command, on_reply, is_repeatable)

        def _give_up() -> None:
            _on_answer(Answer(AnswerStatus.OUTCOME_UNKNOWN, 0, b""))

        self.after(_TIMEOUT_MS, _give_up)
        life = broker.life
        send = partial(self._arrive, broker, command, _on_answer)
        self._world.time.after(self._delay_ms(), lambda: broker.happen(life, send))

    def _delay_ms(self) -> float:
        return self._rng.uniform(0, self._world.network.delay_ms)

    def _arrive(self, broker: SimBroker, command: BrokerCommand, on_answer: Callable[[Answer], None]) -> None:
        def _reply(answer: Answer) -> None:
            if self._world.is_calm or self._rng.random() >= self._world.faults.refuse_rate / 4:
                self.after(self._delay_ms(), lambda: on_answer(answer))

        if not self._has_session:
            broker.execute(command, _reply)
        elif not self._is_open:
            broker.request(OpenSession(self._session), lambda answer: _reply(self._opened(answer)))
        else:
            broker.request(Command(self._session, self._sequence, self._sequence - 1, encode(command)), _reply)

    def _opened(self, answer: Answer) -> Answer:
        """Take note that the session is open; the command itself is not sent yet."""
        self._is_open = self._is_open or answer.status is AnswerStatus.OK
        return Answer(AnswerStatus.NOT_LEADER, 0, b"")

    def _judge(self, answer: Answer, command: BrokerCommand, on_reply: OnReply, is_repeatable: bool) -> None:
        status = answer.status
        if status in _CERTAIN:
            if status is not AnswerStatus.OK:
                fail("no-crash", f"{type(command).__name__} is answered {status.name}: {answer.payload!r}")
            self._world.witness.counts["answers"] += 1
            on_reply(decode_reply(answer.payload))
        elif status in _NOT_EXECUTED or is_repeatable:
            self.after(self._rng.uniform(1, _PAUSE_MS), partial(self._try, command, on_reply, is_repeatable))
        else:
            self._world.witness.counts["unknown"] += 1
            on_reply(None)
