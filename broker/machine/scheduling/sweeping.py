"""Sweeping: queues, tenants, classes and limits of which nothing is left are forgotten when there are too many.

A sweep costs what there is and comes when that has doubled: a fraction of a look at each. A tenant that is far ahead
of the others is not forgotten: its share stays until they have nearly reached its virtual time.
"""

from __future__ import annotations

from broker.machine.scheduling.model import CREDIT_MS_MAX, DEFAULT_POLICY, TenantState
from broker.machine.scheduling.scheduler_state import SchedulerState


def sweep(state: SchedulerState) -> None:
    """Forget what is empty."""
    for name, tenant in list(state.tenants.items()):
        _sweep_queues(state, tenant)
        if not tenant.queues and _is_forgettable(state, tenant):
            del state.tenants[name]
    _sweep_classes(state)
    _sweep_limits(state)


def _sweep_queues(state: SchedulerState, tenant: TenantState) -> None:
    for kind, queue in list(tenant.queues.items()):
        if queue.count:
            continue
        if queue.entry is not None:
            state.queue_leaves(queue)
        if queue.blocked_on is not None:
            del queue.blocked_on.blocked[queue]
            queue.blocked_on = None
        del tenant.queues[kind]
        del queue.share.queues[queue]
        queue.task_class.queue_count -= 1
        state.queue_count -= 1


def _is_forgettable(state: SchedulerState, tenant: TenantState) -> bool:
    holds = (tenant.hold, *tenant.type_holds.values())
    return (
        tenant.policy is DEFAULT_POLICY
        and not tenant.held_keys
        and not tenant.share.running
        and tenant.share.virtual_time(state.now_ms) <= tenant.share.virtual_clock.floor + CREDIT_MS_MAX
        and all(limit.used_max is None for limit in holds)
    )


def _sweep_classes(state: SchedulerState) -> None:
    for kind, task_class in list(state.classes.items()):
        if task_class.queue_count or task_class.running:
            continue
        del state.classes[kind]
        state.active.pop(task_class, None)
        state.dirty.pop(task_class, None)
        if task_class.blocked_on is not None:
            del task_class.blocked_on.blocked[task_class]
        for profile in state.profiles.values():
            profile.fits.pop(task_class, None)
        for worker in state.workers.values():
            worker.missed.pop(task_class, None)


def _sweep_limits(state: SchedulerState) -> None:
    needed = {id(limit) for task_class in state.classes.values() for limit, _ in task_class.limits}
    for tenant in state.tenants.values():
        needed |= {id(limit) for queue in tenant.queues.values() for limit, _ in queue.limits}
    state.limits = {
        name: limit
        for name, limit in state.limits.items()
        if id(limit) in needed or limit.used or limit.used_max is not None
    }
