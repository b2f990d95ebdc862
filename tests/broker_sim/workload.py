"""What clients ask for: drawn for each seed, then task by task."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

import msgspec

from broker.machine.commands import (
    BrokerCommand,
    ClearHold,
    DeployCode,
    LimitResource,
    RemoveTenant,
    SetHold,
    SetTenant,
    TaskSpec,
)
from broker.machine.holds import Author, AuthorRole
from broker.machine.policies import ErrorRule, RetryPolicy, TenantPolicy

__all__ = ["BAN", "CODE", "TENANTS", "Workload", "deploy_code", "draw_lift", "undo_all"]

TENANTS = ("acme", "bolt", "core")
_TYPES = ("mail", "call", "build")
_KEYS = ("", "", "k1", "k2")
_RESOURCES = ("db", "gpu")
CODE = "pool-1"
BAN = SetHold("acme", "", "banned", reason="by an operator")
"""Of a key that no task has: it holds nothing back, and is the operator's."""
_TENANT = Author(AuthorRole.TENANT, "a tenant")
_ARCHIVE = b"PK no zip"


class Workload(msgspec.Struct, kw_only=True):
    """Shares, 0 to 1, of what clients do and of what their tasks ask for.

    Attributes:
        pause_ms: Longest usual pause of a client.
        batch_max: Tasks of one submit.
        keyed: Submits with a request key.
        at_most_once: Tasks that are run at most once.
        slot: Tasks with a slot.
        delayed: Tasks that start later.
        deadline: Tasks with a deadline.
        timeout: Tasks with a timeout.
        heartbeat: Tasks that are watched.
        resources: Tasks that ask for resources.
        limited_attempts: Tasks with a bound of attempts.
        transaction, cancel, change, replay, govern: Weights of what clients do beside submitting (1).
        lift: The same of tenants that try to end or replace an operator's ban. Not drawn.
        tenant_bytes_max: Quota of each tenant; 0 = none. Not drawn.
        bound_workers: Share of workers that may run the tasks of some tenants alone. Not drawn.

    """

    pause_ms: int = 300
    batch_max: int = 4
    keyed: float = 0.5
    at_most_once: float = 0.4
    slot: float = 0.2
    delayed: float = 0.2
    deadline: float = 0.2
    timeout: float = 0.2
    heartbeat: float = 0.2
    resources: float = 0.3
    limited_attempts: float = 0.3
    transaction: float = 0.2
    cancel: float = 0.2
    change: float = 0.1
    replay: float = 0.1
    govern: float = 0.2
    lift: float = 0.0
    tenant_bytes_max: int = 0
    bound_workers: float = 0.0

    @classmethod
    def draw(cls, rng: random.Random) -> Workload:
        """Draw a mix: some things much, some not at all."""
        shares: dict[str, Any] = {
            name: rng.choice((0.0, 0.1, 0.3, 0.7))
            for name in cls.__struct_fields__
            if name not in ("pause_ms", "batch_max", "keyed", "lift", "tenant_bytes_max")
        }
        return cls(
            pause_ms=rng.choice((200, 600)), batch_max=rng.choice((1, 4, 10)), keyed=rng.choice((0.3, 1.0)), **shares
        )

    def draw_task(self, rng: random.Random, payload: bytes, now_ms: int) -> TaskSpec:
        """Draw a task."""

        def chosen(share: float) -> bool:
            return rng.random() < share

        start, delay, deadline, ttl = 0, 0, 0, 0
        if chosen(self.delayed):
            length = rng.randint(1, 5_000)
            start, delay = (now_ms + length, 0) if chosen(0.5) else (0, length)
        if chosen(self.deadline):
            length = rng.choice((300, 3_000, 30_000))
            deadline, ttl = (now_ms + length, 0) if chosen(0.5) else (0, length)
        # Always its own: the backoff of a tenant's default grows beyond the end of the simulation.
        rules = (ErrorRule("KeyError", retry=False), ErrorRule("[timed_out]", max_attempts=2)) if chosen(0.3) else ()
        policy = RetryPolicy(backoff_ms=rng.choice((0, 0, 200, 2_000)), backoff_ms_max=5_000, rules=rules)
        retry = msgspec.json.encode(policy).decode()
        has_code = chosen(0.1)
        return TaskSpec(
            rng.choice(_TYPES),
            payload,
            chosen(self.at_most_once),
            rng.choice((1, 2, 4)) if chosen(self.limited_attempts) else None,
            rng.choice((-1, 5, 100)) if chosen(0.3) else None,
            rng.choice((1, 2)) if chosen(0.2) else None,
            {rng.choice(_RESOURCES): rng.choice((1, 1, 2))} if chosen(self.resources) else {},
            f"s{rng.randint(1, 3)}" if chosen(self.slot) else "",
            rng.choice(_KEYS),
            start,
            delay,
            deadline,
            ttl,
            rng.choice((200, 2_000)) if chosen(self.timeout) else 0,
            rng.choice((1_000, 3_000)) if chosen(self.heartbeat) else 0,
            CODE if has_code else "",
            "call" if has_code else "",
            retry,
        )

    def draw_government(self, rng: random.Random, now_ms: int) -> BrokerCommand:
        """Draw a command of an administrator."""
        tenant = rng.choice(TENANTS)
        makers: tuple[Callable[[], BrokerCommand], ...] = (
            lambda: SetTenant(tenant, _draw_policy(rng)),
            lambda: RemoveTenant(tenant),
            lambda: _draw_hold(rng, tenant, now_ms),
            lambda: ClearHold(tenant, rng.choice(("", *_TYPES)), ""),
            lambda: LimitResource(
                rng.choice(_RESOURCES),
                rng.choice((1, 2, 3, None)),
                rng.choice(("", tenant)),
                rng.choice(("", rng.choice(_TYPES))),
            ),
        )
        return rng.choice(makers)()


def draw_lift(rng: random.Random, now_ms: int) -> BrokerCommand:
    """Draw how a tenant tries to be rid of a ban."""
    hold = (BAN.tenant, BAN.type, BAN.key)
    return rng.choice(
        (
            ClearHold(*hold, by=_TENANT),
            SetHold(*hold, is_paused=True, by=_TENANT, reason="mine"),
            SetHold(*hold, until_ms=now_ms + 1_000, by=_TENANT),
        )
    )


def _draw_policy(rng: random.Random) -> TenantPolicy:
    return TenantPolicy(
        weight=rng.choice((0.5, 1.0, 4.0)),
        running_max=rng.choice((0, 1, 3)),
        running_max_by_type=rng.choice(({}, {"mail": 1})),
        waiting_max=rng.choice((0, 0, 30)),
        group=rng.choice((1, 2)),
        priority=rng.choice((0, 10)),
        max_attempts=rng.choice((0, 3)),
        retention_ms=rng.choice((None, 1_000)),
    )


def _draw_hold(rng: random.Random, tenant: str, now_ms: int) -> SetHold:
    key = rng.choice(("", "", "k1"))
    is_draining = rng.random() < 0.2
    return SetHold(
        tenant if key else rng.choice(("", tenant, tenant)),
        rng.choice(("", *_TYPES)),
        key,
        is_paused=not is_draining or rng.random() < 0.5,
        is_draining=is_draining,
        until_ms=now_ms + rng.randint(500, 8_000) if rng.random() < 0.7 else 0,
    )


def deploy_code() -> DeployCode:
    """Return the command that deploys the code that tasks ask for."""
    return DeployCode(CODE, _ARCHIVE, hashlib.sha256(_ARCHIVE).hexdigest())


def undo_all(holds: list[tuple[str, str, str]], limits: list[tuple[str, str, str]]) -> list[BrokerCommand]:
    """Return the commands after which nothing holds a task back any more."""
    commands: list[BrokerCommand] = [ClearHold(*hold) for hold in holds]
    commands += [LimitResource(resource, None, tenant, kind) for resource, tenant, kind in limits]
    commands += [SetTenant(tenant, TenantPolicy()) for tenant in TENANTS]
    return commands
