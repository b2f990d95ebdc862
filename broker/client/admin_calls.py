"""Calls about tenants, holds, limits, workers, code and the broker itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from broker.client.calls import BrokerCalls, Request, path_of
from broker.client.code_archive import pack_code
from broker.client.errors import NotFoundError
from broker.client.shapes import (
    BrokerStatus,
    Code,
    Limits,
    Overview,
    Slot,
    Tenant,
    Transaction,
    WorkerSummary,
)
from broker.machine.policies import TenantPolicy
from ledger.decoding import convert
from ledger.errors import UsageError


class _Workers(msgspec.Struct, frozen=True):
    workers: list[WorkerSummary]


class _Tenants(msgspec.Struct, frozen=True):
    tenants: list[Tenant]
    next: str | None = None


class _Slots(msgspec.Struct, frozen=True):
    slots: list[Slot]
    next: str | None = None


class _Transactions(msgspec.Struct, frozen=True):
    transactions: list[Transaction]


class _Codes(msgspec.Struct, frozen=True):
    codes: list[Code]


class AdminCalls:
    """See `broker.client.client.AsyncBrokerClient`, which is this and more."""

    _calls: BrokerCalls
    _timeout_s: float
    _tenant: str

    async def _ask(
        self, *parts: object, kind: type[Any], query: dict[str, Any] | None = None, names_tenant: bool = False
    ) -> Any:
        request = Request("GET", path_of(*parts), query=query or {}, names_tenant=names_tenant)
        return await self._calls.call(request, kind, timeout_s=self._timeout_s)

    async def _tell(
        self, method: str, *parts: object, query: dict[str, Any] | None = None, content: Any = None
    ) -> None:
        request = Request(method, path_of(*parts), query=query or {}, content=content, names_tenant=True)
        await self._calls.response(request, timeout_s=self._timeout_s)

    # ---- the broker

    async def status(self) -> BrokerStatus:
        """Return what the broker in use says of itself."""
        status: BrokerStatus = await self._ask("status", kind=BrokerStatus)
        return status

    async def overview(self) -> Overview:
        """Return counts: of the tenant, or of all for an administrator who names none."""
        overview: Overview = await self._ask("overview", kind=Overview)
        return overview

    async def workers(self) -> list[WorkerSummary]:
        """Return all workers, by id."""
        answer: _Workers = await self._ask("workers", kind=_Workers)
        return answer.workers

    async def remove_worker(self, worker_id: str) -> None:
        """Forget a dead worker."""
        await self._tell("DELETE", "workers", worker_id)

    async def slots(self) -> AsyncIterator[Slot]:
        """Iterate over the slots that are taken."""
        after = ""
        while True:
            page: _Slots = await self._ask("slots", kind=_Slots, query={"after": after})
            for slot in page.slots:
                yield slot
            if not page.next:
                return
            after = page.next

    async def transactions(self) -> list[Transaction]:
        """Return the open transactions, by id."""
        answer: _Transactions = await self._ask("transactions", kind=_Transactions)
        return answer.transactions

    # ---- tenants

    async def tenants(self) -> AsyncIterator[Tenant]:
        """Iterate over tenants with a policy or with tasks, by name."""
        after = ""
        while True:
            page: _Tenants = await self._ask("tenants", kind=_Tenants, query={"after": after})
            for tenant in page.tenants:
                yield tenant
            if not page.next:
                return
            after = page.next

    async def tenant(self, tenant: str) -> Tenant:
        """Return a tenant.

        Raises:
            NotFoundError: Nothing was said of it and it has no task; or it is not this caller's to see.

        """
        found: Tenant = await self._ask("tenants", tenant, kind=Tenant, names_tenant=True)
        return found

    async def set_tenant(self, tenant: str, policy: TenantPolicy) -> None:
        """Set the policy of a tenant, whole; it holds from the next dispatch, for waiting tasks too."""
        await self._tell("PUT", "tenants", tenant, content=policy)

    async def change_tenant(self, tenant: str, **changes: Any) -> TenantPolicy:
        """Set some fields of a tenant's policy and leave the others; return the policy.

        Raises:
            UsageError: A policy has no such field, or the value is not one for it.

        """
        try:
            policy = (await self.tenant(tenant)).policy
        except NotFoundError:
            policy = TenantPolicy()
        try:
            changed = convert({**msgspec.to_builtins(policy), **changes}, TenantPolicy)
        except msgspec.ValidationError as error:
            raise UsageError(f"policy of tenant {tenant}: {error}") from None
        await self.set_tenant(tenant, changed)
        return changed

    async def remove_tenant(self, tenant: str) -> None:
        """Go back to the default policy."""
        await self._tell("DELETE", "tenants", tenant)

    # ---- holds and limits

    async def limits(self) -> Limits:
        """Return resources with their limits and use, and holds."""
        limits: Limits = await self._ask("limits", kind=Limits)
        return limits

    async def hold(
        self,
        *,
        tenant: str = "",
        type: str = "",  # noqa: A002 - what it is called everywhere
        key: str = "",
        is_paused: bool = True,
        is_draining: bool = False,
        until_ms: int = 0,
        reason: str = "",
    ) -> None:
        """Hold tasks back by tenant, type and key; "" = any.

        Args:
            tenant: Whose; "" = the client's; an administrator whose client has none means all.
            type: Of which type.
            key: Needs its tenant.
            is_paused: Nothing of it is dispatched; what runs goes on.
            is_draining: Nothing of it is accepted any more.
            until_ms: It ends by itself then; 0 = when it is released.
            reason: Shown to people.

        """
        content = {"is_paused": is_paused, "is_draining": is_draining, "until_ms": until_ms, "reason": reason}
        query = {"tenant": tenant or self._tenant, "type": type, "key": key}
        await self._tell("PUT", "holds", query=query, content=content)

    async def release(self, *, tenant: str = "", type: str = "", key: str = "") -> None:  # noqa: A002
        """End a hold."""
        await self._tell("DELETE", "holds", query={"tenant": tenant or self._tenant, "type": type, "key": key})

    async def limit(self, resource: str, amount_max: int | None, *, tenant: str = "", type: str = "") -> None:  # noqa: A002
        """Limit what all workers together use of a resource, in all or of one tenant or type; None = no limit."""
        query = {"tenant": tenant, "type": type}
        if amount_max is None:
            await self._tell("DELETE", "resources", resource, query=query)
        else:
            await self._tell("PUT", "resources", resource, query=query, content={"amount_max": amount_max})

    # ---- code

    async def codes(self) -> list[Code]:
        """Return the code pools, by name."""
        answer: _Codes = await self._ask("code", kind=_Codes)
        return answer.codes

    async def deploy_code(
        self,
        path: Path | str,
        *,
        entries: Sequence[str] = (),
        network: bool = False,
        name: str = "",
        ttl_s: float = 0.0,
    ) -> str:
        """Pack a folder, package or module and keep it at the broker; return its name, for `NewTask.code`.

        The same files have the same name, so that deploying them again changes nothing.

        Args:
            path: See `broker.client.code_archive.pack_code`, as for the next two.
            entries: What tasks may call, as "module:function"; none = the folder's `rsm-pool.toml` says so.
            network: With `entries`: whether the code needs the network.
            name: Instead of one made of the path and the content; the same name with other content is refused.
            ttl_s: Removed when it is so old and no task that has not ended needs it; 0 = never.

        """
        archive = pack_code(path, entries=entries, network=network)
        return await self.put_code(name or archive.name, archive.content, ttl_s=ttl_s)

    async def put_code(self, name: str, archive: bytes, *, ttl_s: float = 0.0) -> str:
        """Keep a zip at the broker; return its name."""
        query = {"ttl_s": ttl_s or None}
        await self._calls.response(
            Request("PUT", path_of("code", name), query=query, body=archive, names_tenant=True),
            timeout_s=self._timeout_s,
        )
        return name

    async def code(self, name: str) -> bytes:
        """Return the zip of a code pool."""
        return (await self._calls.response(Request("GET", path_of("code", name)), timeout_s=self._timeout_s)).body

    async def remove_code(self, name: str) -> None:
        """Forget a code pool; refused while a task that has not ended needs it."""
        await self._tell("DELETE", "code", name)
