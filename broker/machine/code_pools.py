"""Code pools: archives that tasks need, kept while they do."""

from __future__ import annotations

from hashlib import sha256

from broker.machine.commands import DeployCode, RemoveCode
from broker.machine.decisions import answered, refused
from broker.machine.faults import name_fault, number_fault
from broker.machine.limits import CODE_BYTES_MAX, DURATION_MS_MAX
from broker.machine.replies import Done, Refusal
from broker.machine.rows import CodeRow, row_fields
from broker.machine.state import BrokerState
from broker.machine.tables import RecordType, Table
from rsm_spark.core.machine import Decision

_POOLS_MAX = 1_000


def deploy(state: BrokerState, command: DeployCode, revision: int, now_ms: int) -> Decision:
    """Decide that an archive is kept; the same one again changes nothing."""
    code = command.code
    fault = name_fault("code", code) or number_fault("ttl_ms", command.ttl_ms, 0, DURATION_MS_MAX)
    if fault:
        return refused(Refusal.INVALID, fault)
    size = len(command.archive)
    if size > CODE_BYTES_MAX:
        return refused(Refusal.TOO_LARGE, f"code {code!r} has {size:,} bytes, at most {CODE_BYTES_MAX:,} are taken")
    digest = sha256(command.archive).hexdigest()
    if not size or digest != command.sha256.lower():
        return refused(Refusal.INVALID, f"code {code!r}: its {size:,} bytes have SHA-256 {digest}, not the one named")
    found = state.get(Table.CODE, code)
    if found is not None:
        if CodeRow(*found).sha256 != digest:
            return refused(Refusal.CONFLICT, f"code {code!r} is there with other bytes: give the new ones another name")
        return answered([], Done(revision))
    if state.count(Table.CODE) >= _POOLS_MAX:
        return refused(Refusal.QUEUE_FULL, f"there are {_POOLS_MAX:,} code pools: remove some")
    fields = row_fields((code,), CodeRow(now_ms, command.ttl_ms, digest, command.archive))
    return answered([(RecordType.CODE_DEPLOYED, fields)], Done(revision))


def remove(state: BrokerState, command: RemoveCode, revision: int) -> Decision:
    """Decide that an archive is forgotten, if no task that has not ended needs it."""
    code = command.code
    if code not in state.codes.ends:
        return refused(Refusal.NOT_FOUND, f"there is no code pool {code[:60]!r}")
    if code in state.codes.use:
        return refused(Refusal.IN_USE, f"{state.codes.use[code]:,} tasks that have not ended need code {code!r}")
    return answered([(RecordType.CODE_REMOVED, (code,))], Done(revision))
