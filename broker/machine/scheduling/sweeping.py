"""Sweeping: lines, tenants, classes and gates of which nothing is left are forgotten, when there are too many of them.

A sweep costs what there is and comes when that has doubled: a fraction of a look at each. A tenant that is far ahead
of the others is not forgotten: its account stays until they have nearly reached its virtual time.
"""

from __future__ import annotations

from broker.machine.scheduling.model import CREDIT_MS_MAX, DEFAULT_POLICY, TenantState
from broker.machine.scheduling.scheduler_state import SchedulerState


def sweep(state: SchedulerState) -> None:
    """Forget what is empty."""
    for name, tenant in list(state.tenants.items()):
        _sweep_lines(state, tenant)
        if not tenant.lines and _is_forgettable(state, tenant):
            del state.tenants[name]
    _sweep_classes(state)
    _sweep_gates(state)


def _sweep_lines(state: SchedulerState, tenant: TenantState) -> None:
    for kind, line in list(tenant.lines.items()):
        if line.count:
            continue
        if line.entry is not None:
            state.line_leaves(line)
        if line.parked_on is not None:
            del line.parked_on.parked[line]
            line.parked_on = None
        del tenant.lines[kind]
        del line.account.lines[line]
        line.task_class.line_count -= 1
        state.line_count -= 1


def _is_forgettable(state: SchedulerState, tenant: TenantState) -> bool:
    holds = (tenant.hold, *tenant.type_holds.values())
    return (
        tenant.policy is DEFAULT_POLICY
        and not tenant.held_keys
        and not tenant.account.running
        and tenant.account.virtual_time(state.now_ms) <= tenant.account.virtual_clock.floor + CREDIT_MS_MAX
        and all(gate.limit is None for gate in holds)
    )


def _sweep_classes(state: SchedulerState) -> None:
    for kind, task_class in list(state.classes.items()):
        if task_class.line_count or task_class.running:
            continue
        del state.classes[kind]
        state.active.pop(task_class, None)
        state.dirty.pop(task_class, None)
        if task_class.parked_on is not None:
            del task_class.parked_on.parked[task_class]
        for profile in state.profiles.values():
            profile.seats.pop(task_class, None)
        for worker in state.workers.values():
            worker.missed.pop(task_class, None)


def _sweep_gates(state: SchedulerState) -> None:
    needed = {id(gate) for task_class in state.classes.values() for gate, _ in task_class.gates}
    for tenant in state.tenants.values():
        needed |= {id(gate) for line in tenant.lines.values() for gate, _ in line.gates}
    state.gates = {
        name: gate for name, gate in state.gates.items() if id(gate) in needed or gate.used or gate.limit is not None
    }
