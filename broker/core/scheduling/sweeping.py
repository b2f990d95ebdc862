"""Sweeping: lines, tenants, classes and gates of which nothing is left are forgotten, when there are too many of them.

A sweep costs what there is and comes when that has doubled: a fraction of a look at each. A tenant that is far ahead
of the others is not forgotten: its account stays until they have nearly reached its virtual time.
"""

from __future__ import annotations

from broker.core.scheduling.accounts import CREDIT_MS_MAX
from broker.core.scheduling.board import Board
from broker.core.scheduling.tenants import DEFAULT_POLICY, Tenant

__all__ = ["sweep"]


def sweep(board: Board) -> None:
    """Forget what is empty."""
    for name, tenant in list(board.tenants.items()):
        _sweep_lines(board, tenant)
        if not tenant.lines and _is_forgettable(board, tenant):
            del board.tenants[name]
    _sweep_classes(board)
    _sweep_gates(board)


def _sweep_lines(board: Board, tenant: Tenant) -> None:
    for kind, line in list(tenant.lines.items()):
        if line.count:
            continue
        if line.entry is not None:
            board.line_leaves(line)
        if line.parked_on is not None:
            del line.parked_on.parked[line]
            line.parked_on = None
        del tenant.lines[kind]
        del line.account.lines[line]
        line.task_class.line_count -= 1
        board.line_count -= 1


def _is_forgettable(board: Board, tenant: Tenant) -> bool:
    holds = (tenant.hold, *tenant.type_holds.values())
    return (
        tenant.policy is DEFAULT_POLICY
        and not tenant.held_keys
        and not tenant.account.running
        and tenant.account.virtual_time(board.now_ms) <= tenant.account.arena.floor + CREDIT_MS_MAX
        and all(gate.limit is None for gate in holds)
    )


def _sweep_classes(board: Board) -> None:
    for kind, task_class in list(board.classes.items()):
        if task_class.line_count or task_class.running:
            continue
        del board.classes[kind]
        board.active.pop(task_class, None)
        board.dirty.pop(task_class, None)
        if task_class.parked_on is not None:
            del task_class.parked_on.parked[task_class]
        for profile in board.profiles.values():
            profile.seats.pop(task_class, None)
        for worker in board.workers.values():
            worker.missed.pop(task_class, None)


def _sweep_gates(board: Board) -> None:
    needed = {id(gate) for task_class in board.classes.values() for gate, _ in task_class.gates}
    for tenant in board.tenants.values():
        needed |= {id(gate) for line in tenant.lines.values() for gate, _ in line.gates}
    board.gates = {
        name: gate for name, gate in board.gates.items() if id(gate) in needed or gate.used or gate.limit is not None
    }
