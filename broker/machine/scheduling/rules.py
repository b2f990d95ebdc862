"""Rules: what tenants and workers are entitled to, changed while tasks wait and run.

A change costs what it changes: a weight the queues of one tenant, a limit what is blocked on it, an offer the classes.
"""

from __future__ import annotations

import msgspec

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.model import DEFAULT_POLICY, Limit, Profile
from broker.machine.scheduling.scheduler_state import SchedulerState

_PROFILES_SPARE = 64
"""Offers that are remembered although nobody makes them, beside as many as there are workers."""


def _set_limit(state: SchedulerState, limit: Limit, used_max: int | None) -> None:
    """Set a limit, and wake what waits for a higher one."""
    if limit.used_max == used_max:
        return
    limit.used_max = used_max
    if limit.tenant:
        tenant = state.tenant(limit.tenant)
        tenant.version += 1
        tenant.share.version += 1
    else:
        state.version += 1
    if limit.blocked and limit.admits(1):
        state.wake(limit)


def set_tenant(state: SchedulerState, name: str, policy: TenantPolicy | None) -> None:
    """Set the policy of a tenant; None = the default."""
    policy = policy or DEFAULT_POLICY
    tenant = state.tenant(name)
    tenant.policy = policy
    if tenant.share.weight != policy.weight:
        tenant.share.set_weight(policy.weight, state.now_ms)
        state.refresh(tenant.share)
    _set_limit(state, tenant.cap, policy.running_max or None)
    for task_type, limit in tenant.type_caps.items():
        _set_limit(state, limit, policy.running_max_by_type.get(task_type) or None)


def set_hold(state: SchedulerState, tenant: str, task_type: str, key: str, is_paused: bool) -> None:
    """Hold tasks back, or no more; "" = any."""
    if key:
        assert tenant, "a key is held of a tenant"
        _set_key(state, tenant, task_type, key, is_paused)
        return
    if tenant and task_type:
        limit = state.tenant(tenant).type_hold(task_type)
    elif tenant:
        limit = state.tenant(tenant).hold
    elif task_type:
        limit = state.task_type(task_type).hold
    else:
        limit = state.hold
    _set_limit(state, limit, 0 if is_paused else None)


def _set_key(state: SchedulerState, name: str, task_type: str, key: str, is_paused: bool) -> None:
    tenant = state.tenant(name)
    (tenant.held_keys.add if is_paused else tenant.held_keys.discard)((task_type, key))
    tenant.share.version += 1
    for queue in tenant.queues.values():
        queue_type = queue.task_class.type.name
        if task_type not in {"", queue_type}:
            continue
        is_held = ("", key) in tenant.held_keys or (queue_type, key) in tenant.held_keys
        if queue.hold(key, is_held) and queue.blocked_on is None:
            state.queue_ready(queue)


def set_limit(state: SchedulerState, resource: str, tenant: str, task_type: str, amount_max: int | None) -> None:
    """Limit a resource of all workers together, also of one tenant or type; None = no limit."""
    _set_limit(state, state.limit(resource, tenant, task_type), amount_max)


def set_worker(state: SchedulerState, worker_id: str, offer: WorkerOffer | None) -> None:
    """Set what a worker offers; None = it gets nothing."""
    worker = state.worker(worker_id)
    worker.missed = {}
    if worker.profile is not None and worker.profile.tenants is not None:
        for task_class in state.classes.values():
            task_class.unbench(worker, worker.profile.tenants)
    if offer is None:
        worker.profile = None
        for task_class in state.classes.values():
            if task_class.room_entries.pop(worker, None) is not None:
                task_class.compact_room()
        if not worker.running:
            del state.workers[worker_id]
            state.freed.pop(worker, None)
        return
    name = msgspec.msgpack.encode(offer)
    profile = state.profiles.get(name)
    if profile is None:
        if len(state.profiles) > 2 * len(state.workers) + _PROFILES_SPARE:
            used = {id(other.profile) for other in state.workers.values()}
            state.profiles = {key: made for key, made in state.profiles.items() if id(made) in used}
        profile = state.profiles[name] = Profile(offer)
    worker.profile = profile
    worker.by_tenant = None
    if offer.tenant_share_percent > 0:
        by_tenant: dict[tuple[str, str], int] = {}
        worker.by_tenant = by_tenant
        for running in state.running.values():
            if running.worker is worker:
                who = (running.queue.share.tenant, running.queue.task_class.type.name)
                by_tenant[who] = by_tenant.get(who, 0) + 1
    for task_class in state.classes.values():
        state.offer_room(worker, task_class)
