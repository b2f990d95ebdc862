"""Tenants: their limits, holds and counts, as far as dispatching is concerned."""

from __future__ import annotations

from array import array

from broker.core.policies import TenantPolicy
from broker.core.scheduling.accounts import Account
from broker.core.scheduling.gates import Gate
from broker.core.scheduling.lines import Line

__all__ = ["DEFAULT_POLICY", "WAITS_KEPT", "Tenant"]

WAITS_KEPT = 128
"""Last waits of a tenant that are remembered, a power of two."""

DEFAULT_POLICY = TenantPolicy()


class Tenant:
    """A tenant.

    Attributes:
        policy: In force.
        version: Rises when a limit of this tenant is set: its lines then look at their gates anew.
        hold: Closed while the tenant is held.
        cap: Its `running_max`; in use: its running tasks.
        type_holds: Closed while the tenant's tasks of a type are held.
        type_caps: Its `running_max_by_type`; in use: its running tasks of that type.
        held_keys: (type or "", key) that are held.
        lines: By class.
        dispatched: Tasks started, since the scheduler exists.

    """

    __slots__ = (
        "account", "cap", "dispatched", "held_keys", "hold", "lines", "name", "policy", "type_caps", "type_holds",
        "version", "waits",
    )  # fmt: skip

    def __init__(self, name: str, account: Account) -> None:
        self.name = name
        self.account = account
        self.policy = DEFAULT_POLICY
        self.version = 0
        self.hold = Gate("held", tenant=name)
        self.cap = Gate("tenant-limit", tenant=name)
        self.type_holds: dict[str, Gate] = {}
        self.type_caps: dict[str, Gate] = {}
        self.held_keys: set[tuple[str, str]] = set()
        self.lines: dict[tuple[str, int, tuple[tuple[str, int], ...]], Line] = {}
        self.dispatched = 0
        self.waits: array[int] | None = None

    def type_hold(self, task_type: str) -> Gate:
        """Return the gate of a type's hold."""
        gate = self.type_holds.get(task_type)
        if gate is None:
            gate = self.type_holds[task_type] = Gate("held", tenant=self.name, task_type=task_type)
        return gate

    def type_cap(self, task_type: str) -> Gate:
        """Return the gate of a type's cap."""
        gate = self.type_caps.get(task_type)
        if gate is None:
            gate = self.type_caps[task_type] = Gate("tenant-type-limit", tenant=self.name, task_type=task_type)
            gate.limit = self.policy.running_max_by_type.get(task_type) or None
        return gate

    def note_wait(self, wait_ms: int) -> None:
        """Remember how long a task waited that starts now."""
        waits = self.waits
        if waits is None:
            waits = self.waits = array("q", bytes(8 * WAITS_KEPT))
        waits[self.dispatched & (WAITS_KEPT - 1)] = max(wait_ms, 0)
        self.dispatched += 1

    def last_waits(self) -> list[int]:
        """Return the last waits in ms, ascending."""
        return [] if self.waits is None else sorted(self.waits[: min(self.dispatched, WAITS_KEPT)])
