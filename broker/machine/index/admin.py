"""Index of the settings of administrators: policies of tenants, holds, code pools."""

from __future__ import annotations

from typing import TypeAlias

from broker.machine.index.timers import PlanKind, Timers
from broker.machine.policies import TenantPolicy
from broker.machine.rows import CodeRow, HoldRow
from broker.machine.rules import BrokerRules

HoldKey: TypeAlias = tuple[str, str, str]
"""Tenant, type and key of the tasks that are held; "" = any."""
_DEFAULT_POLICY = TenantPolicy()


class PolicyIndex:
    """Policies of tenants.

    Args:
        rules: What is in force where a policy says nothing.

    Attributes:
        by_tenant: Those that were set.

    """

    def __init__(self, rules: BrokerRules) -> None:
        self._rules = rules
        self.by_tenant: dict[str, TenantPolicy] = {}

    def of(self, tenant: str) -> TenantPolicy:
        """Return the policy in force."""
        return self.by_tenant.get(tenant, _DEFAULT_POLICY)

    def set(self, tenant: str, policy: TenantPolicy | None) -> None:
        """Set a tenant's policy; None = the default."""
        if policy is None:
            self.by_tenant.pop(tenant, None)
        else:
            self.by_tenant[tenant] = policy

    def retention_ms(self, tenant: str, is_dead: bool) -> int:
        """Return how long ended tasks of a tenant are kept."""
        policy, rules = self.of(tenant), self._rules
        if is_dead:
            return rules.dead_retention_ms if policy.dead_retention_ms is None else policy.dead_retention_ms
        return rules.retention_ms if policy.retention_ms is None else policy.retention_ms

    def waiting_max(self, tenant: str) -> int:
        """Return how many tasks of a tenant may be there that have not ended; 0 = no bound."""
        return self.of(tenant).waiting_max or self._rules.tenant_waiting_max

    def bytes_max(self, tenant: str) -> int:
        """Return how many bytes a tenant's tasks may have; 0 = no bound."""
        return self.of(tenant).bytes_max or self._rules.tenant_bytes_max


class HoldIndex:
    """Holds.

    1. A hold that ends by itself has a plan at that time; no other has one.
    2. Counts by tenant agree with the holds.

    Args:
        timers: Get the plans.

    Attributes:
        ends: When each ends by itself; 0 = it does not.
        counts: How many there are, by tenant.
        draining: Those that refuse tasks.

    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.ends: dict[HoldKey, int] = {}
        self.counts: dict[str, int] = {}
        self.draining: dict[HoldKey, None] = {}

    def set(self, hold: HoldKey, row: HoldRow) -> None:
        """Add a hold, or replace it."""
        tenant = hold[0]
        if hold not in self.ends:
            self.counts[tenant] = self.counts.get(tenant, 0) + 1
        self.ends[hold] = row.until_ms
        if row.is_draining:
            self.draining[hold] = None
        else:
            self.draining.pop(hold, None)
        if row.until_ms:
            self._timers.plan(PlanKind.HOLD, hold, row.until_ms)
        else:
            self._timers.forget(PlanKind.HOLD, hold)

    def remove(self, hold: HoldKey) -> None:
        """Forget a hold, if it is there."""
        if self.ends.pop(hold, None) is not None:
            tenant = hold[0]
            left = self.counts[tenant] - 1
            if left:
                self.counts[tenant] = left
            else:
                del self.counts[tenant]
        self.draining.pop(hold, None)
        self._timers.forget(PlanKind.HOLD, hold)

    def validate(self) -> None:
        """Check the invariants."""
        counts: dict[str, int] = {}
        for hold, until_ms in self.ends.items():
            counts[hold[0]] = counts.get(hold[0], 0) + 1
            assert self._timers.planned_ms(PlanKind.HOLD, hold) == (until_ms or None), f"hold {hold} and its plan"
        assert counts == self.counts
        assert self.draining.keys() <= self.ends.keys()


class CodeIndex:
    """Code pools, and how many tasks that have not ended need each.

    1. A pool with an end that nothing needs has a plan at that end.
    2. What is needed is there.

    Args:
        timers: Get the plans.

    Attributes:
        ends: When each may go; 0 = never.
        use: Tasks that need it and have not ended; none has 0.

    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.ends: dict[str, int] = {}
        self.use: dict[str, int] = {}

    def add(self, code: str, row: CodeRow) -> None:
        """Keep a pool, for its time."""
        self.ends[code] = row.created_ms + row.ttl_ms if row.ttl_ms else 0
        self._plan(code)

    def remove(self, code: str) -> None:
        """Forget a pool."""
        self.ends.pop(code, None)
        self._timers.forget(PlanKind.CODE, code)

    def need(self, code: str) -> None:
        """Note one more task that needs a pool."""
        self.use[code] = self.use.get(code, 0) + 1

    def release(self, code: str) -> None:
        """Note one task fewer."""
        left = self.use[code] - 1
        if left:
            self.use[code] = left
        else:
            del self.use[code]
            self._plan(code)

    def _plan(self, code: str) -> None:
        end_ms = self.ends.get(code, 0)
        if end_ms and code not in self.use:
            self._timers.plan(PlanKind.CODE, code, end_ms)
        else:
            self._timers.forget(PlanKind.CODE, code)

    def validate(self) -> None:
        """Check the invariants."""
        assert all(count > 0 for count in self.use.values())
        assert self.use.keys() <= self.ends.keys()
        for code, end_ms in self.ends.items():
            if code not in self.use:
                assert self._timers.planned_ms(PlanKind.CODE, code) == (end_ms or None), f"code {code} and its plan"
