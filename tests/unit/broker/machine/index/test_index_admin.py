"""The index of policies, holds and code pools."""

from __future__ import annotations

import pytest

from broker.machine.index.admin import CodeIndex, HoldIndex, PolicyIndex
from broker.machine.index.timers import PlanKind, Timers
from broker.machine.policies import TenantPolicy
from broker.machine.rows import CodeRow, HoldRow
from broker.machine.rules import BrokerRules

_HOLD = ("acme", "mail", "")
_OTHER = ("acme", "", "")


def held(*, is_draining: bool = False, until_ms: int = 0) -> HoldRow:
    return HoldRow(not is_draining, is_draining, until_ms, "")


def code(*, ttl_ms: int) -> CodeRow:
    return CodeRow(10, ttl_ms, "", b"")


def test_bounds_are_the_tenants_or_else_the_brokers() -> None:
    policies = PolicyIndex(BrokerRules(tenant_bytes_max=7, tenant_waiting_max=8))
    policies.set("acme", TenantPolicy(bytes_max=70, waiting_max=80))
    assert [(policies.bytes_max(one), policies.waiting_max(one)) for one in ("acme", "other")] == [(70, 80), (7, 8)]
    policies.set("acme", None)
    assert policies.bytes_max("acme") == 7
    assert policies.of("acme") == TenantPolicy()
    assert not policies.by_tenant


def test_holds_are_counted_by_tenant_and_end_in_time() -> None:
    timers = Timers()
    holds = HoldIndex(timers)
    holds.set(_HOLD, held(until_ms=50))
    holds.set(_OTHER, held(is_draining=True))
    holds.validate()
    assert holds.counts == {"acme": 2}
    assert (timers.planned_ms(PlanKind.HOLD, _HOLD), timers.planned_ms(PlanKind.HOLD, _OTHER)) == (50, None)
    holds.set(_HOLD, held())
    holds.set(_OTHER, held(until_ms=60))
    holds.validate()
    assert holds.counts == {"acme": 2}
    assert not holds.draining
    assert (timers.planned_ms(PlanKind.HOLD, _HOLD), timers.planned_ms(PlanKind.HOLD, _OTHER)) == (None, 60)
    for hold in (_HOLD, _HOLD, _OTHER):
        holds.remove(hold)
        holds.validate()
    assert (len(holds.ends), len(holds.counts), len(timers)) == (0, 0, 0)


def test_a_hold_without_its_plan_or_its_count_is_found() -> None:
    timers = Timers()
    holds = HoldIndex(timers)
    holds.set(_HOLD, held(until_ms=50))
    timers.forget(PlanKind.HOLD, _HOLD)
    with pytest.raises(AssertionError, match="and its plan"):
        holds.validate()
    holds.set(_HOLD, held())
    holds.counts["acme"] += 1
    with pytest.raises(AssertionError):
        holds.validate()


def test_a_code_pool_goes_in_time_once_nothing_needs_it() -> None:
    timers = Timers()
    codes = CodeIndex(timers)
    codes.add("short", code(ttl_ms=5))
    codes.add("for ever", code(ttl_ms=0))
    codes.validate()
    assert timers.planned_ms(PlanKind.CODE, "short") == 15
    assert timers.planned_ms(PlanKind.CODE, "for ever") is None
    codes.need("short")
    codes.need("short")
    codes.add("short", code(ttl_ms=6))
    assert timers.planned_ms(PlanKind.CODE, "short") is None, "two tasks need it"
    codes.release("short")
    codes.validate()
    assert timers.planned_ms(PlanKind.CODE, "short") is None, "one still does"
    codes.release("short")
    codes.validate()
    assert timers.planned_ms(PlanKind.CODE, "short") == 16
    codes.remove("short")
    codes.validate()
    assert len(timers) == 0


def test_a_code_pool_that_is_needed_and_gone_is_found() -> None:
    codes = CodeIndex(Timers())
    codes.need("pool")
    with pytest.raises(AssertionError):
        codes.validate()
