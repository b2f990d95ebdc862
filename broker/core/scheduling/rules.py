"""Rules: what tenants and workers are entitled to, changed while tasks wait and run.

A change costs what it changes: a weight the lines of one tenant, a limit what is parked on it, an offer the classes.
"""

from __future__ import annotations

import msgspec

from broker.core.policies import TenantPolicy, WorkerOffer
from broker.core.scheduling.board import Board
from broker.core.scheduling.gates import Gate
from broker.core.scheduling.tenants import DEFAULT_POLICY
from broker.core.scheduling.workers import Profile

__all__ = ["set_hold", "set_limit", "set_tenant", "set_worker"]

_PROFILES_SPARE = 64
"""Offers that are remembered although nobody makes them, beside as many as there are workers."""


def _set_gate(board: Board, gate: Gate, limit: int | None) -> None:
    """Set a limit, and wake what waits for a higher one."""
    if gate.limit == limit:
        return
    gate.limit = limit
    if gate.tenant:
        tenant = board.tenant(gate.tenant)
        tenant.version += 1
        tenant.account.version += 1
    else:
        board.version += 1
    if gate.parked and gate.admits(1):
        board.wake(gate)


def set_tenant(board: Board, name: str, policy: TenantPolicy | None) -> None:
    """Set the policy of a tenant; None = the default."""
    policy = policy or DEFAULT_POLICY
    tenant = board.tenant(name)
    tenant.policy = policy
    if tenant.account.weight != policy.weight:
        tenant.account.set_weight(policy.weight, board.now_ms)
        board.refresh(tenant.account)
    _set_gate(board, tenant.cap, policy.running_max or None)
    for task_type, gate in tenant.type_caps.items():
        _set_gate(board, gate, policy.running_max_by_type.get(task_type) or None)


def set_hold(board: Board, tenant: str, task_type: str, key: str, is_paused: bool) -> None:
    """Hold tasks back, or no more; "" = any."""
    if key:
        assert tenant, "a key is held of a tenant"
        _set_key(board, tenant, task_type, key, is_paused)
        return
    if tenant and task_type:
        gate = board.tenant(tenant).type_hold(task_type)
    elif tenant:
        gate = board.tenant(tenant).hold
    elif task_type:
        gate = board.task_type(task_type).hold
    else:
        gate = board.hold
    _set_gate(board, gate, 0 if is_paused else None)


def _set_key(board: Board, name: str, task_type: str, key: str, is_paused: bool) -> None:
    tenant = board.tenant(name)
    (tenant.held_keys.add if is_paused else tenant.held_keys.discard)((task_type, key))
    tenant.account.version += 1
    for line in tenant.lines.values():
        line_type = line.task_class.type.name
        if task_type not in {"", line_type}:
            continue
        is_held = ("", key) in tenant.held_keys or (line_type, key) in tenant.held_keys
        if line.hold(key, is_held) and line.parked_on is None:
            board.line_ready(line)


def set_limit(board: Board, resource: str, tenant: str, task_type: str, amount_max: int | None) -> None:
    """Limit a resource of all workers together, also of one tenant or type; None = no limit."""
    _set_gate(board, board.gate(resource, tenant, task_type), amount_max)


def set_worker(board: Board, worker_id: str, offer: WorkerOffer | None) -> None:
    """Set what a worker offers; None = it gets nothing."""
    worker = board.worker(worker_id)
    worker.missed = {}
    if offer is None:
        worker.profile = None
        for task_class in board.classes.values():
            if task_class.room_entries.pop(worker, None) is not None:
                task_class.compact_room()
        if not worker.running:
            del board.workers[worker_id]
            board.freed.pop(worker, None)
        return
    name = msgspec.msgpack.encode(offer)
    profile = board.profiles.get(name)
    if profile is None:
        if len(board.profiles) > 2 * len(board.workers) + _PROFILES_SPARE:
            used = {id(other.profile) for other in board.workers.values()}
            board.profiles = {key: made for key, made in board.profiles.items() if id(made) in used}
        profile = board.profiles[name] = Profile(offer)
    worker.profile = profile
    worker.by_tenant = None
    if offer.tenant_share_percent > 0:
        by_tenant: dict[tuple[str, str], int] = {}
        worker.by_tenant = by_tenant
        for running in board.running.values():
            if running.worker is worker:
                who = (running.line.account.tenant, running.line.task_class.type.name)
                by_tenant[who] = by_tenant.get(who, 0) + 1
    for task_class in board.classes.values():
        board.offer_room(worker, task_class)
