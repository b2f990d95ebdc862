"""Tasks come in: what is checked, what is logged."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from broker.machine.commands import SubmitForTenants, SubmitTasks, TaskSpec
from broker.machine.decisions import LoggedRecord, answered, refused
from broker.machine.entitlements import denial_of
from broker.machine.faults import name_fault, number_fault, resources_fault, retry_fault
from broker.machine.limits import (
    AMOUNT_MAX,
    BATCH_TASKS_MAX,
    DECISION_BYTES_MAX,
    DURATION_MS_MAX,
    GROUP_MAX,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    TIME_MS_MAX,
    TRANSACTION_TASKS_MAX,
)
from broker.machine.mapping import map_task
from broker.machine.messages import encode
from broker.machine.replies import Refusal, TasksSubmitted
from broker.machine.resources import resources_text
from broker.machine.rows import RequestRow, SlotRow, TaskRow, row_fields
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED
from broker.machine.tables import PRIORITY_OF_TENANT, RecordType, Table
from rsm_spark.core.machine import Decision

_REFUSED_MAX = 200
_ADDED = TaskRow.__struct_fields__[TaskRow.__struct_fields__.index("transaction") + 1 :]
"""Columns behind those that `_records` names: taken as they are from the spec's fields of the same names."""
_TASK_OVERHEAD_BYTES = 120
_NAMES_MAX = 20_000


class _Ahead(NamedTuple):
    """Sums of the tasks of other tenants that come before in the same command."""

    tasks: int = 0
    size: int = 0
    log_size: int = 0


_NONE_AHEAD = _Ahead()


class _SubmitRefusedError(Exception):
    """The whole command is refused."""

    def __init__(self, refusal: Refusal, reason: str) -> None:
        super().__init__(reason)
        self.refusal = refusal
        self.reason = reason


_sound_names: set[str] = set()


def _is_sound(name: str) -> bool:
    """Return whether a name that is seen again and again has no fault."""
    if name in _sound_names:
        return True
    if name_fault("", name):
        return False
    if len(_sound_names) >= _NAMES_MAX:
        _sound_names.clear()
    _sound_names.add(name)
    return True


def slot_holder(state: BrokerState, tenant: str, slot: str) -> int:
    """Return the id of the task that has a slot, 0 = none; who has ended has it no more, whatever its row says."""
    found = state.get(Table.SLOTS, tenant, slot)
    if found is None:
        return 0
    task = state.tasks.by_id.get(SlotRow(*found).task_id)
    return 0 if task is None or task.status in ENDED or state.is_given_up(task.transaction) else task.task_id


def submit(state: BrokerState, command: SubmitTasks, revision: int, now_ms: int, size: int) -> Decision:
    """Decide a submit.

    Args:
        state: Present.
        command: What is asked.
        revision: Of the first record: the first task's id.
        now_ms: Logged time.
        size: Bytes of the command.

    """
    tenant = command.tenant
    if not _is_sound(tenant):
        return refused(Refusal.INVALID, name_fault("tenant", tenant))
    if command.request_key:
        fault = name_fault("request_key", command.request_key)
        if fault:
            return refused(Refusal.INVALID, fault)
        known = state.get(Table.REQUESTS, tenant, command.request_key)
        if known is not None:
            return Decision((), RequestRow(*known).reply)
    try:
        _check_whole(state, command, size)
        records, slots, reply = _records(state, command, revision, now_ms)
    except _SubmitRefusedError as error:
        return refused(error.refusal, error.reason)
    # Behind the tasks: a task's id is the revision of its record, and the ids of a batch have no gap.
    records += slots
    if command.request_key and records:
        noted = row_fields((tenant, command.request_key), RequestRow(encode(reply), now_ms))
        records.append((RecordType.REQUEST_NOTED, noted))
    return answered(records, reply)


def submit_for_tenants(state: BrokerState, command: SubmitForTenants, revision: int, now_ms: int) -> Decision:
    """Decide the submits of many tenants, together: see `submit`. The reply counts the tasks of all of them.

    A place in it counts through all submits. Of tasks whose slot is taken it names the first `_REFUSED_MAX`: they are
    those that it does not count.
    """
    tenants = [one.tenant for one in command.submits]
    if not tenants or len(set(tenants)) < len(tenants):
        return refused(Refusal.INVALID, "tasks of many tenants come as one submit for each of them, one at least")
    if any(one.request_key or one.transaction for one in command.submits):
        return refused(Refusal.INVALID, "submits for many tenants have no request key and no transaction")
    records: list[LoggedRecord] = []
    slots: list[LoggedRecord] = []
    busy: list[tuple[int, int]] = []
    ahead = _Ahead()
    for one in command.submits:
        if not _is_sound(one.tenant):
            return refused(Refusal.INVALID, name_fault("tenant", one.tenant))
        size = len(encode(one))
        try:
            _check_whole(state, one, size, ahead)
            made, taken, reply = _records(state, one, revision + len(records), now_ms, busy_max=len(one.tasks))
        except _SubmitRefusedError as error:
            return refused(error.refusal, f"tenant {one.tenant!r}: {error.reason}")
        records += made
        slots += taken
        busy += [(ahead.tasks + place, holder) for place, holder in reply.refused]
        ahead = _Ahead(ahead.tasks + len(one.tasks), ahead.size + size, ahead.log_size + _log_size(one, size))
    return answered([*records, *slots], TasksSubmitted(revision if records else 0, len(records), busy[:_REFUSED_MAX]))


def _check_whole(state: BrokerState, command: SubmitTasks, size: int, ahead: _Ahead = _NONE_AHEAD) -> None:
    tenant, count = command.tenant, len(command.tasks)
    if count < 1 or ahead.tasks + count > BATCH_TASKS_MAX:
        number = ahead.tasks + count
        raise _SubmitRefusedError(Refusal.INVALID, f"{number} tasks in one submit: need 1 to {BATCH_TASKS_MAX:,}")
    # An upper bound comes first: nearly always it spares the loop over the slots.
    bound = ahead.log_size + 2 * size + _overhead(command)
    if bound > DECISION_BYTES_MAX and ahead.log_size + _log_size(command, size) > DECISION_BYTES_MAX:
        raise _SubmitRefusedError(
            Refusal.TOO_LARGE,
            f"{count} tasks of {size:,} bytes in all do not fit one entry of the log, which is what makes a "
            "submit all or nothing: submit fewer at once, in a transaction if they belong together",
        )
    _check_quotas(state, tenant, count, size, ahead)
    if command.transaction:
        found = state.transaction_row(command.transaction)
        if found is None or found.tenant != tenant or not found.expires_ms:
            raise _SubmitRefusedError(
                Refusal.TRANSACTION_OVER,
                f"transaction {command.transaction} of tenant {tenant!r} is not open: it was committed, rolled back, "
                "or its time ran out",
            )
        prepared = len(state.tasks.by_transaction[command.transaction])
        if prepared + count > TRANSACTION_TASKS_MAX:
            raise _SubmitRefusedError(
                Refusal.TRANSACTION_FULL,
                f"transaction {command.transaction} has {prepared:,} tasks, {count:,} more are too many: it takes "
                f"{TRANSACTION_TASKS_MAX:,}",
            )


def _overhead(command: SubmitTasks) -> int:
    """Return what its tasks have in the log beside what was sent: tenant, times, ids."""
    return len(command.tasks) * (_TASK_OVERHEAD_BYTES + 2 * len(command.tenant.encode()))


def _log_size(command: SubmitTasks, size: int) -> int:
    """Return the bytes of a command of so many bytes in the log, where a slot stands twice."""
    return size + sum(len(spec.slot.encode()) for spec in command.tasks) + _overhead(command)


def _check_quotas(state: BrokerState, tenant: str, count: int, size: int, ahead: _Ahead) -> None:
    """Refuse what is more than the tenant, or all tenants together, may have: in tasks, and in bytes that are kept."""
    found, rules = state.tasks.tenants.get(tenant), state.rules
    unfinished, kept = (0, 0) if found is None else (found.unfinished, found.bytes)
    bound = state.policies.waiting_max(tenant)
    if bound and unfinished + count > bound:
        raise _SubmitRefusedError(
            Refusal.QUEUE_FULL,
            f"tenant {tenant!r} has {unfinished:,} tasks that have not ended, and may have {bound:,}: "
            f"{count:,} more are too many",
        )
    if rules.waiting_max and state.tasks.unfinished + ahead.tasks + count > rules.waiting_max:
        raise _SubmitRefusedError(
            Refusal.QUEUE_FULL,
            f"{state.tasks.unfinished:,} tasks have not ended, and this broker takes {rules.waiting_max:,}: "
            "try again later",
        )
    bound = state.policies.bytes_max(tenant)
    if bound and kept + size > bound:
        raise _SubmitRefusedError(
            Refusal.BYTES_FULL,
            f"the tasks of tenant {tenant!r}, ended ones that are kept included, have {kept:,} bytes, and may have "
            f"{bound:,}: {size:,} more are too many. Wait until some have ended, cancel some, keep large payloads "
            "elsewhere, or have an operator raise the tenant's --bytes-max",
        )
    if rules.bytes_max and state.tasks.bytes + ahead.size + size > rules.bytes_max:
        raise _SubmitRefusedError(
            Refusal.BYTES_FULL,
            f"the tasks that are kept have {state.tasks.bytes:,} bytes, and this broker keeps {rules.bytes_max:,}: "
            "try again later",
        )


def _records(
    state: BrokerState, command: SubmitTasks, revision: int, now_ms: int, *, busy_max: int = _REFUSED_MAX
) -> tuple[list[LoggedRecord], list[LoggedRecord], TasksSubmitted]:
    """Return the tasks' records, those of their slots, and the reply, with at most so many whose slot is taken."""
    tenant, transaction, mapper = command.tenant, command.transaction, state.mapper
    records: list[LoggedRecord] = []
    slots: list[LoggedRecord] = []
    taken: dict[str, int] = {}
    busy: list[tuple[int, int]] = []
    default_attempts = state.policies.of(tenant).max_attempts
    task_id = revision
    for place, spec in enumerate(command.tasks):
        fault = _spec_fault(state, spec) or (_denial(state, tenant, spec) if command.is_bound else None)
        if fault:
            raise _SubmitRefusedError(fault[0], f"task {place} of {len(command.tasks)}: {fault[1]}")
        if state.holds.draining:
            _check_draining(state, tenant, spec)
        slot = spec.slot
        if slot:
            holder = taken.get(slot) or slot_holder(state, tenant, slot)
            if holder:
                busy.append((place, holder))
                continue
            taken[slot] = task_id
            slots.append((RecordType.SLOT_TAKEN, row_fields((tenant, slot), SlotRow(task_id))))
        group, priority, resources = spec.group, spec.priority, spec.resources
        if mapper is not None:
            mapped = map_task(mapper, tenant, spec)
            if isinstance(mapped, str):
                raise _SubmitRefusedError(
                    Refusal.INVALID, f"task {place} of {len(command.tasks)}: the broker's mapper: {mapped}"
                )
            group, priority, resources = mapped
        fields: tuple[Any, ...] = (
            task_id, tenant, spec.type, spec.payload, now_ms, spec.at_most_once,
            default_attempts if spec.max_attempts is None else spec.max_attempts,
            PRIORITY_OF_TENANT if priority is None else priority, group or 0,
            resources_text(resources) if resources else "", slot, spec.key,
            now_ms + spec.delay_ms if spec.delay_ms else spec.start_ms,
            now_ms + spec.ttl_ms if spec.ttl_ms else spec.deadline_ms,
            spec.timeout_ms, spec.heartbeat_ms, spec.code, spec.mode, spec.retry, transaction,
        )  # fmt: skip
        if _ADDED:
            fields += tuple(getattr(spec, name) for name in _ADDED)
        records.append((RecordType.TASK_SUBMITTED, fields))
        task_id += 1
    if len(busy) > busy_max:
        raise _SubmitRefusedError(
            Refusal.SLOT_TAKEN,
            f"{len(busy)} of {len(command.tasks)} tasks name slots that are taken, the first one (task {busy[0][0]}) "
            f"by task {busy[0][1]}: at most {busy_max} of them are skipped and told, so nothing was submitted",
        )
    return records, slots, TasksSubmitted(revision if records else 0, len(records), busy)


def _spec_fault(state: BrokerState, spec: TaskSpec) -> tuple[Refusal, str] | None:
    """Return what is wrong with a task."""
    if not _is_sound(spec.type):
        return Refusal.INVALID, name_fault("type", spec.type)
    if len(spec.payload) > PAYLOAD_BYTES_MAX:
        size = f"its payload has {len(spec.payload):,} bytes, at most {PAYLOAD_BYTES_MAX:,} are taken"
        return Refusal.TOO_LARGE, f"{size}: keep it elsewhere and send its address"
    if spec.code and spec.code not in state.codes.ends:
        return Refusal.UNKNOWN_CODE, f"there is no code pool {spec.code[:60]!r}: deploy it first"
    fault = (
        (name_fault("slot", spec.slot) if spec.slot else "")
        or (name_fault("key", spec.key) if spec.key else "")
        or (name_fault("mode", spec.mode) if spec.mode else "")
        or (resources_fault(spec.resources, low=0) if spec.resources else "")
        or (retry_fault(spec.retry) if spec.retry else "")
        or _numbers_fault(spec)
    )
    return (Refusal.INVALID, fault) if fault else None


def _denial(state: BrokerState, tenant: str, spec: TaskSpec) -> tuple[Refusal, str] | None:
    """Return what of a task its tenant may not name by itself."""
    policy = state.policies.of(tenant)
    said = denial_of(tenant, policy, task_type=spec.type, code=spec.code, resources=spec.resources, group=spec.group)
    return (Refusal.NOT_ALLOWED, said) if said else None


def _numbers_fault(spec: TaskSpec) -> str:
    group, priority, attempts = spec.group, spec.priority, spec.max_attempts
    if (
        (group is None or 0 < group <= GROUP_MAX)
        and (priority is None or -PRIORITY_MAX <= priority <= PRIORITY_MAX)
        and (attempts is None or 0 <= attempts <= AMOUNT_MAX)
        and not (spec.start_ms or spec.delay_ms or spec.deadline_ms or spec.ttl_ms)
        and not (spec.timeout_ms or spec.heartbeat_ms)
    ):
        return ""
    if spec.start_ms and spec.delay_ms:
        return "start_ms and delay_ms are both given: give one of them"
    if spec.deadline_ms and spec.ttl_ms:
        return "deadline_ms and ttl_ms are both given: give one of them"
    return (
        ("" if group is None else number_fault("group", group, 1, GROUP_MAX))
        or ("" if priority is None else number_fault("priority", priority, -PRIORITY_MAX, PRIORITY_MAX))
        or ("" if attempts is None else number_fault("max_attempts", attempts, 0, AMOUNT_MAX))
        or number_fault("start_ms", spec.start_ms, 0, TIME_MS_MAX)
        or number_fault("deadline_ms", spec.deadline_ms, 0, TIME_MS_MAX)
        or number_fault("delay_ms", spec.delay_ms, 0, DURATION_MS_MAX)
        or number_fault("ttl_ms", spec.ttl_ms, 0, DURATION_MS_MAX)
        or number_fault("timeout_ms", spec.timeout_ms, 0, DURATION_MS_MAX)
        or number_fault("heartbeat_ms", spec.heartbeat_ms, 0, DURATION_MS_MAX)
    )


def _check_draining(state: BrokerState, tenant: str, spec: TaskSpec) -> None:
    for hold in product(("", tenant), ("", spec.type), {"": None, spec.key: None}):
        if hold in state.holds.draining:
            tenant, task_type, key = (repr(one) if one else "any" for one in hold)
            raise _SubmitRefusedError(
                Refusal.DRAINING,
                f"tasks of tenant {tenant}, type {task_type}, key {key} are not accepted at present: see the hold's "
                "reason",
            )
