"""The task broker as a replicated state machine.

commands   `decide`     one function a command, in modules by what they are about    -> records and a reply
time       `due`        deadlines, starts, backoffs, what is kept; then assignments   -> records
records    `apply`      tables and index, which are the state: see `broker.machine.state`, `broker.machine.folding`
queries    `query`      see `broker.machine.answering`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from broker.machine import admin as governing
from broker.machine import code_pools, runs, submitting, timing, transactions
from broker.machine import commands as told
from broker.machine import updates as altering
from broker.machine import worker_changes as fleet
from broker.machine.answering import answer
from broker.machine.decisions import refused
from broker.machine.folding import FOLDS
from broker.machine.mapping import Mapper
from broker.machine.messages import decode_command, decode_query, encode
from broker.machine.outbox import OutboxKind
from broker.machine.rebuilding import check_rebuilt, rebuild
from broker.machine.replies import Refusal, Refused
from broker.machine.rules import BrokerRules
from broker.machine.state import BrokerState
from broker.machine.tables import RecordType
from rsm_spark.core.machine import Decision, Row, RowChange
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptLogError

GROWING = (told.SubmitTasks, told.SubmitForTenants, told.BeginTransaction)
"""Commands of tenants that make the state grow: refused while the leader's memory is nearly used up."""
MEMORY_FULL_SAYS = (
    "the memory of the leader, or of a replica that follows it, is nearly used up: ends of tasks, cancellations and "
    "what operators do are taken, but no new tasks. Nothing was submitted: come again later"
)

_NO_FOLD: tuple[Any, ...] = (None,) * 7


class BrokerMachine(BrokerState):
    """State of the broker: tasks, workers, tenants. Refusals are replies, not errors.

    Args:
        rules: Of this broker; read by the leader's decisions only.
        mapper: A user's function that sets group, priority and resources of tasks at submit: see
            `broker.machine.mapping`.

    """

    def __init__(self, rules: BrokerRules | None = None, mapper: Mapper | None = None) -> None:
        super().__init__(rules or BrokerRules(), mapper)
        self._folds = self._made_folds()

    # ---- decisions

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        """Decide a command: see `broker.machine.messages` for its bytes and its replies."""
        try:
            decoded = decode_command(command)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return refused(Refusal.INVALID, f"these bytes are no command of this version: {error}")
        if self.is_full and isinstance(decoded, GROWING):
            return refused(Refusal.MEMORY_FULL, MEMORY_FULL_SAYS)
        if isinstance(decoded, told.SubmitTasks):
            return submitting.submit(self, decoded, revision, now_ms, len(command))
        if isinstance(decoded, told.ReportRuns):
            return runs.report(self, decoded, revision, now_ms)
        return self._decide(decoded, revision, now_ms)

    def _decide(self, command: told.BrokerCommand, revision: int, now_ms: int) -> Decision:
        match command:
            case told.SubmitForTenants():
                return submitting.submit_for_tenants(self, command, revision, now_ms)
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
            case told.DeleteDead():
                return altering.delete_dead(self, command)
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
        """Answer a query: see `broker.machine.messages`."""
        try:
            decoded = decode_query(query)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return encode(Refused(Refusal.INVALID.value, f"these bytes are no query of this version: {error}"[:900]))
        return encode(answer(self, decoded, revision))

    # ---- records

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold one record into its table, and into the index.

        Raises:
            CorruptLogError: The record is none of the description, or names what there is not.

        """
        # `TableMachine.apply`, spelled out: of every record here the key comes first, then the row.
        types, table, rows, width, made, write, remove = self._folds.get(record_type, _NO_FOLD)
        if tuple(map(type, fields)) != types:
            self._apply_note(record_type, fields, revision)
            return None
        key = fields[:width]
        packed = pack(key)
        try:
            if made is None:
                change = RowChange(table, packed, rows.remove(packed), None)
                remove(self, fields, change)
            else:
                row = made(*fields[width:])  # Packed as fast as a tuple of its columns, and to the same bytes.
                text = pack(row)
                change = RowChange(table, packed, rows.put(packed, text, revision), text)
                write(self, key, row, change, revision)
        except (KeyError, AssertionError) as error:
            raise CorruptLogError(
                f"revision {revision}: record type {record_type} of the broker contradicts its state: "
                f"{type(error).__name__} {error}"
            ) from error
        return change

    def _apply_note(self, record_type: int, fields: tuple[Any, ...], revision: int) -> None:
        """Take a record that changes no row; any other one here is corrupt."""
        super().apply(record_type, fields, revision)
        if record_type == RecordType.RUN_DISOWNED:
            task_id, assignment_id, worker_id = fields
            self.outbox.add(revision, OutboxKind.CANCEL, worker_id, task_id, assignment_id)

    def _made_folds(self) -> dict[int, tuple[Any, ...]]:
        """Return, by record type: types of the fields, table, its rows, width of the key, class of the row, fold."""
        folds: dict[int, tuple[Any, ...]] = {}
        for number, plan in self._plans.items():
            if plan.rows is not None:
                width, made, write, remove = FOLDS[number]
                folds[number] = (plan.types, plan.table, plan.rows, width, made, write, remove)
        return folds

    # ---- snapshots

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace tables and index.

        Raises:
            CorruptSnapshotError: A row is none of the tables; the state is then empty.

        """
        self._clear_index()
        self.outbox.close()
        super().restore(rows)
        rebuild(self)

    def validate(self) -> None:
        """Check that each part of the index is sound, and says what the tables say; slow, for tests."""
        self.validate_index()
        rebuilt = BrokerMachine(self.rules)
        rebuilt.restore(self.rows())
        check_rebuilt(self, rebuilt)
