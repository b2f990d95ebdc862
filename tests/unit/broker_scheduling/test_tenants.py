"""Tenants: their gates, and the waits that are remembered."""

from __future__ import annotations

from broker.core.policies import TenantPolicy
from broker.core.scheduling.accounts import Account, Arena
from broker.core.scheduling.tenants import WAITS_KEPT, Tenant


def made() -> Tenant:
    return Tenant("a", Account("a", 1.0, Arena()))


def test_the_last_waits_are_remembered_in_ascending_order():
    tenant = made()
    assert tenant.last_waits() == []
    for wait_ms in (30, 10, -5):
        tenant.note_wait(wait_ms)
    assert tenant.last_waits() == [0, 10, 30]
    for wait_ms in range(WAITS_KEPT):
        tenant.note_wait(1_000 + wait_ms)
    assert tenant.last_waits() == list(range(1_000, 1_000 + WAITS_KEPT))
    assert tenant.dispatched == WAITS_KEPT + 3


def test_the_cap_of_a_type_is_that_of_the_policy_whenever_the_type_is_first_seen():
    tenant = made()
    tenant.policy = TenantPolicy(running_max_by_type={"mail": 3, "free": 0})
    assert tenant.type_cap("mail").limit == 3
    assert tenant.type_cap("free").limit is None
    assert tenant.type_cap("other").limit is None
    assert tenant.type_cap("mail") is tenant.type_cap("mail")
    assert tenant.type_hold("mail") is tenant.type_hold("mail")
