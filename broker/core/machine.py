"""The task broker as a replicated state machine.

commands   `decide`     one function a command, in modules by what they are about    -> records and a reply
time       `due`        deadlines, starts, backoffs, what is kept; then assignments   -> records
records    `apply`      tables and index: see `broker.core.state`, `broker.core.folding`
queries    `query`      see `broker.core.answering`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from broker.core import altering, code_pools, fleet, governing, runs, submitting, timing, transactions
from broker.core import commands as told
from broker.core.answering import answer
from broker.core.deciding import refused
from broker.core.mapping import Mapper
from broker.core.messages import decode_command, decode_query, encode
from broker.core.replies import Refusal, Refused
from broker.core.rules import BrokerRules
from broker.core.state import BrokerState
from rsm_spark.core.machine import Decision

__all__ = ["BrokerMachine"]


class BrokerMachine(BrokerState):
    """State of the broker: tasks, workers, tenants. Refusals are replies, not errors.

    Args:
        rules: Of this broker; read by the leader's decisions only.
        mapper: A user's function that sets group, priority and resources of tasks at submit: see `broker.core.mapping`.

    """

    def __init__(self, rules: BrokerRules | None = None, mapper: Mapper | None = None) -> None:
        super().__init__(rules or BrokerRules(), mapper)

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        """Decide a command: see `broker.core.messages` for its bytes and its replies."""
        try:
            decoded = decode_command(command)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return refused(Refusal.INVALID, f"these bytes are no command of this version: {error}")
        if isinstance(decoded, told.SubmitTasks):
            return submitting.submit(self, decoded, revision, now_ms, len(command))
        if isinstance(decoded, told.ReportRuns):
            return runs.report(self, decoded, revision, now_ms)
        return self._decide(decoded, revision, now_ms)

    def _decide(self, command: told.BrokerCommand, revision: int, now_ms: int) -> Decision:
        match command:
            case told.BeginTransaction():
                return transactions.begin(self, command, revision, now_ms)
            case told.CommitTransaction():
                return transactions.commit(self, command, now_ms)
            case told.RollbackTransaction():
                return transactions.roll_back(self, command)
            case told.CancelTasks():
                return altering.cancel(self, command, now_ms)
            case told.ChangeTasks():
                return altering.change(self, command)
            case told.ReplayDead():
                return altering.replay(self, command, now_ms)
            case told.SetTenant():
                return governing.set_tenant(self, command, revision)
            case told.RemoveTenant():
                return governing.remove_tenant(self, command, revision)
            case told.SetHold():
                return governing.set_hold(self, command, revision, now_ms)
            case told.ClearHold():
                return governing.clear_hold(self, command, revision)
            case told.LimitResource():
                return governing.limit_resource(self, command, revision)
            case told.DeployCode():
                return code_pools.deploy(self, command, revision, now_ms)
            case told.RemoveCode():
                return code_pools.remove(self, command, revision)
            case told.WorkerAppeared():
                return fleet.worker_appeared(self, command, revision, now_ms)
            case told.WorkerChanged():
                return fleet.worker_changed(self, command, revision, now_ms)
            case told.WorkerLost():
                return fleet.worker_lost(self, command, revision, now_ms)
            case told.RemoveWorker():
                return fleet.worker_removed(self, command, revision)
        return refused(Refusal.INVALID, f"a {type(command).__name__} is nothing that is decided")

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield what time makes due, then assignments; each is to be applied before the next is asked for."""
        return timing.due(self, now_ms, promoted_ms, limit)

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return the logged time at which something is due, 0 = at once, or None."""
        return timing.next_due_ms(self, promoted_ms)

    def query(self, query: bytes, revision: int) -> bytes:
        """Answer a query: see `broker.core.messages`."""
        try:
            decoded = decode_query(query)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return encode(Refused(Refusal.INVALID.value, f"these bytes are no query of this version: {error}"[:900]))
        return encode(answer(self, decoded, revision))
