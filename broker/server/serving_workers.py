"""Service of workers under a broker's role: who is served, what is handed over, who is sent elsewhere."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from broker.machine.commands import BrokerCommand
from broker.machine.machine import BrokerMachine
from broker.machine.messages import decode_reply, encode
from broker.machine.outbox import OutboxItem
from broker.machine.replies import BrokerReply
from broker.machine.statuses import WorkerStatus
from broker.machine.worker_messages import AssignedRun
from broker.server.local_replica_connection import LocalReplicaConnection
from broker.server.settings import BrokerSettings
from broker.server.worker_registry import WorkerRegistry
from rsm_spark.core.operation import Ending, Operation
from rsm_spark.errors import RsmError
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.server.replica_server import StoreService

_SUCCESSOR_S_MAX = 2.0
"""Time for which workers are kept, and told nothing, until the next leader is known."""
_SUCCESSOR_POLL_S = 0.05
_TICK_S_MAX = 1.0
_LOOKS = 4  # How often a lease is looked at.

_LOGGER = logging.getLogger(__name__)


class WorkerRole:
    """Follows the replica's role and what it confirms, and has the registry do the rest.

    Args:
        machine: The state.
        commands: Takes those of the registry.
        store: The replica and its server.
        settings: Of the broker.

    Attributes:
        registry: See `WorkerRegistry`.

    """

    def __init__(
        self, machine: BrokerMachine, commands: LocalReplicaConnection, store: StoreService, settings: BrokerSettings
    ) -> None:
        self._machine = machine
        self._commands = commands
        self._store = store
        self._replica = store.replica
        self._loop = asyncio.get_running_loop()
        self._command_s = settings.worker_lease_s
        self._tick_s = min(_TICK_S_MAX, settings.worker_lease_s / _LOOKS, settings.worker_ping_s / _LOOKS)
        self._timer: asyncio.TimerHandle | None = None
        self._dismissing: asyncio.Task[None] | None = None
        self.on_tick: Callable[[], None] = _nothing
        self.registry = WorkerRegistry(
            self._submit,
            self._read_run,
            self._loop.time,
            broker_id=settings.replica_id,
            lease_s=settings.worker_lease_s,
            ping_s=settings.worker_ping_s,
            was_replaced=machine.workers.was_replaced,
        )
        self._replica.on_role(self._on_role)
        self._replica.on_applied(self._on_applied)

    # ---- what the gRPC service asks

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader, as far as known."""
        return self._replica.leader_epoch

    @property
    def leader_address(self) -> str | None:
        """Address of the leader, as far as known; not the own one."""
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
        self.registry.cease(self.leader_address or "")

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        if self.registry.leads:
            self.registry.tick()
        self.on_tick()

    def _on_role(self, role: ReplicaRole) -> None:
        if role is ReplicaRole.LEADER:
            if self._dismissing is not None:
                self._dismissing.cancel()
            self._machine.outbox.open()
            self._begin()
            return
        self._machine.outbox.close()
        if self.registry.leads:
            self.registry.suspend()
            self._dismissing = self._loop.create_task(self._dismiss())

    def _begin(self) -> None:
        """Begin with every worker anew: streams that there are end, and they say what they have."""
        self.registry.cease("")
        self.registry.begin(
            (worker_id, row.incarnation, row.status != WorkerStatus.DISCONNECTED)
            for worker_id, row in list(self._machine.workers.by_id.items())
            if row.status != WorkerStatus.DEAD
        )

    async def _dismiss(self) -> None:
        """Send the workers to who leads now, once that is known."""
        due_s = self._loop.time() + _SUCCESSOR_S_MAX
        while True:
            leader = self.leader_address
            if leader or self._loop.time() >= due_s:
                self.registry.cease(leader or "")
                return
            await asyncio.sleep(_SUCCESSOR_POLL_S)

    # ---- what the log says

    def _on_applied(self, revision: int) -> None:
        # The state is the confirmed one in this call, and perhaps ahead of it right after.
        outbox = self._machine.outbox
        if not outbox:
            return
        try:
            self.registry.deliver(outbox.take(revision))
        except Exception:
            # A mistake of this module is not to stop the replica; what was not handed over is given back to the queue.
            _LOGGER.exception("assignments could not be handed over: all workers are to come again")
            self._begin()

    def _read_run(self, item: OutboxItem) -> AssignedRun | None:
        return self._machine.assigned_run(item.task_id, item.assignment_id, self._machine.logged_ms)

    # ---- commands

    def _submit(self, command: BrokerCommand, on_reply: Callable[[BrokerReply | None, int], None]) -> None:
        try:
            self._commands.submit(encode(command), self._command_s, functools.partial(_on_end, on_reply))
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
