"""What a broker's role means for its workers: who is served, what is handed over when, who is told to go elsewhere."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from broker.core.commands import BrokerCommand
from broker.core.machine import BrokerMachine
from broker.core.messages import decode_reply, encode
from broker.core.outbox import OutboxItem
from broker.core.replies import BrokerReply
from broker.core.statuses import WorkerStatus
from broker.core.worker_messages import AssignedRun
from broker.session import BrokerSession
from broker.settings import BrokerSettings
from broker.worker_desk import WorkerDesk
from rsm_spark.errors import RsmError
from rsm_spark.runtime import Role
from rsm_spark.store.core.operation import Ending, Operation
from rsm_spark.store.service import StoreService

__all__ = ["WorkerRole"]

_SUCCESSOR_S_MAX = 2.0
"""How long workers are kept, and told nothing, until it is known who leads instead."""
_SUCCESSOR_POLL_S = 0.05
_TICK_S_MAX = 1.0
_LOOKS = 4  # How often a lease is looked at.

_LOGGER = logging.getLogger(__name__)


class WorkerRole:
    """Follows the replica's role and what it confirms, and has the desk do the rest.

    Args:
        machine: The state.
        session: Takes the desk's commands.
        store: The replica and its server.
        settings: Of the broker.

    Attributes:
        desk: See `WorkerDesk`.

    """

    def __init__(
        self, machine: BrokerMachine, session: BrokerSession, store: StoreService, settings: BrokerSettings
    ) -> None:
        self._machine = machine
        self._session = session
        self._store = store
        self._replica = store.replica
        self._loop = asyncio.get_running_loop()
        self._command_s = settings.worker_lease_s
        self._tick_s = min(_TICK_S_MAX, settings.worker_lease_s / _LOOKS, settings.worker_ping_s / _LOOKS)
        self._timer: asyncio.TimerHandle | None = None
        self._dismissing: asyncio.Task[None] | None = None
        self.on_tick: Callable[[], None] = _nothing
        self.desk = WorkerDesk(
            self._submit,
            self._read_run,
            self._loop.time,
            broker_id=settings.replica_id,
            lease_s=settings.worker_lease_s,
            ping_s=settings.worker_ping_s,
            was_replaced=machine.was_replaced,
        )
        self._replica.on_role(self._on_role)
        self._replica.on_applied(self._on_applied)

    # ---- what the gRPC service asks

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the leader, as far as known."""
        return self._replica.leader_epoch

    @property
    def leader_address(self) -> str | None:
        """Return the address of the leader, as far as known; not the own one."""
        address = self._store.server.leader_address
        return None if address == self._store.address else address

    # ---- life

    def start(self) -> None:
        """Begin to look at leases."""
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def stop(self) -> None:
        """Send everybody away."""
        if self._timer is not None:
            self._timer.cancel()
        if self._dismissing is not None:
            self._dismissing.cancel()
        self.desk.cease(self.leader_address or "")

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        if self.desk.leads:
            self.desk.tick()
        self.on_tick()

    def _on_role(self, role: Role) -> None:
        if role is Role.LEADER:
            if self._dismissing is not None:
                self._dismissing.cancel()
            self._machine.outbox.open()
            self._begin()
            return
        self._machine.outbox.close()
        if self.desk.leads:
            self.desk.suspend()
            self._dismissing = self._loop.create_task(self._dismiss())

    def _begin(self) -> None:
        """Begin with every worker anew: streams that there are end, and they say what they have."""
        self.desk.cease("")
        self.desk.begin(
            (worker_id, row.incarnation, row.status != WorkerStatus.DISCONNECTED)
            for worker_id, row in list(self._machine.workers.items())
            if row.status != WorkerStatus.DEAD
        )

    async def _dismiss(self) -> None:
        """Send the workers to who leads now, once that is known."""
        due_s = self._loop.time() + _SUCCESSOR_S_MAX
        while True:
            leader = self.leader_address
            if leader or self._loop.time() >= due_s:
                self.desk.cease(leader or "")
                return
            await asyncio.sleep(_SUCCESSOR_POLL_S)

    # ---- what the log says

    def _on_applied(self, revision: int) -> None:
        # The state is the confirmed one in this call, and perhaps ahead of it right after.
        outbox = self._machine.outbox
        if not outbox:
            return
        try:
            self.desk.deliver(outbox.take(revision))
        except Exception:
            # A mistake of this module is not to stop the replica; what was not handed over is given back to the queue.
            _LOGGER.exception("assignments could not be handed over: all workers are to come again")
            self._begin()

    def _read_run(self, item: OutboxItem) -> AssignedRun | None:
        return self._machine.assigned_run(item.task_id, item.assignment_id, self._machine.logged_ms)

    # ---- commands

    def _submit(self, command: BrokerCommand, on_reply: Callable[[BrokerReply | None, int], None]) -> None:
        try:
            self._session.submit(encode(command), self._command_s, functools.partial(_on_end, on_reply))
        except RsmError as error:
            _LOGGER.info("a command about workers is not taken: %s", error)
            on_reply(None, 0)


def _on_end(on_reply: Callable[[BrokerReply | None, int], None], operation: Operation) -> None:
    is_answered = operation.outcome is Ending.ANSWERED
    try:
        on_reply(decode_reply(operation.payload) if is_answered else None, operation.revision)
    except Exception:
        _LOGGER.exception("what a command about workers was answered could not be dealt with")


def _nothing() -> None:
    pass
