"""How many calls are let through at once, and who waits."""

from __future__ import annotations

import asyncio

import pytest

from ledger.zookeeper.call_gate import CallGate

pytestmark = pytest.mark.asyncio


class Full(Exception):
    """Too many wait."""


def _gate(let_through_max: int = 2, waiting_max: int = 3) -> CallGate:
    return CallGate(asyncio.get_running_loop(), let_through_max=let_through_max, waiting_max=waiting_max)


def _enter(gate: CallGate) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(gate.enter(Full))


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_shut_gate_keeps_calls_waiting_in_order_and_refuses_one_too_many() -> None:
    gate = _gate()
    calls = [_enter(gate) for _ in range(3)]
    await _turns()
    assert (gate.waiting, gate.let_through) == (3, 0)
    with pytest.raises(Full):
        await gate.enter(Full)
    gate.open()
    await _turns()
    assert [call.done() for call in calls] == [True, True, False]
    gate.leave()
    await calls[2]
    assert (gate.waiting, gate.let_through) == (0, 2)


async def test_a_call_that_gave_up_takes_nobodys_place() -> None:
    gate = _gate(let_through_max=1)
    gate.open()
    await gate.enter(Full)
    first, second = _enter(gate), _enter(gate)
    await _turns()
    first.cancel()
    gate.leave()
    await second
    assert (gate.waiting, gate.let_through) == (0, 1)


async def test_a_call_let_through_and_given_up_at_the_same_moment_leaves() -> None:
    gate = _gate(let_through_max=1)
    call = _enter(gate)
    await _turns()
    gate.open()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (gate.waiting, gate.let_through) == (0, 0)


async def test_a_restart_forgets_calls_that_nobody_will_end() -> None:
    gate = _gate()
    gate.open()
    await gate.enter(Full)
    await gate.enter(Full)
    gate.restart()
    waiting = _enter(gate)
    await _turns()
    assert not waiting.done()
    gate.open()
    await waiting
    assert gate.let_through == 1


async def test_who_waits_is_refused_when_all_are() -> None:
    gate = _gate()
    waiting = _enter(gate)
    await _turns()
    gate.refuse_all(Full)
    with pytest.raises(Full):
        await waiting
    assert gate.waiting == 0
