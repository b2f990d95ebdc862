"""Tenants and workers over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from broker.api.call import ApiRequest
from broker.api.documents import as_document, document_type
from broker.api.routes import Access, Route
from broker.api.task_bodies import Name
from broker.machine.commands import RemoveTenant, RemoveWorker, SetTenant
from broker.machine.policies import TenantPolicy
from broker.machine.queries import ListTenants, ListWorkers
from broker.machine.replies import Done
from broker.machine.views import Tenants, TenantView, Workers
from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply, json_reply

_PAGE_MAX = 1_000


class DoneAt(msgspec.Struct, frozen=True):
    """It is so from this revision on."""

    revision: int


class PageQuery(msgspec.Struct, frozen=True):
    """Tenants after `after`, by name, at most `limit`."""

    tenant: Name = ""
    after: Name = ""
    limit: Annotated[int, Meta(ge=1, le=_PAGE_MAX)] = _PAGE_MAX


async def _list(call: ApiRequest) -> HttpReply:
    query: PageQuery = call.query
    wanted = ListTenants(call.tenant_to_see(query.tenant), query.after, query.limit)
    found, revision = await call.expect(wanted, Tenants, "tenant")
    return json_reply(as_document(found), revision=revision)


async def _get(call: ApiRequest) -> HttpReply:
    tenant = call.tenant_to_see(call.values[0])
    found, revision = await call.expect(ListTenants(tenant), Tenants, "tenant")
    shown = next((one for one in found.tenants if one.tenant == tenant), None)
    if shown is None:
        if call.sees_all:
            raise HttpProblem(404, "not-found", f"tenant {tenant!r} has neither a policy nor tasks")
        shown = TenantView(tenant, TenantPolicy(), True, {}, 0.0, 0, -1.0, -1.0)  # noqa: FBT003
    return json_reply(as_document(shown), revision=revision)


async def _put(call: ApiRequest) -> HttpReply:
    return _done(await call.execute(SetTenant(call.values[0], call.body), Done))


async def _delete(call: ApiRequest) -> HttpReply:
    return _done(await call.execute(RemoveTenant(call.values[0]), Done))


async def _workers(call: ApiRequest) -> HttpReply:
    found, revision = await call.expect(ListWorkers(), Workers, "worker")
    return json_reply(as_document(found), revision=revision)


async def _remove_worker(call: ApiRequest) -> HttpReply:
    return _done(await call.execute(RemoveWorker(call.values[0]), Done))


def _done(done: Done) -> HttpReply:
    return json_reply(DoneAt(done.revision), revision=done.revision)


def routes() -> list[Route]:
    """Return what is served of tenants and workers."""
    admin: dict[str, Any] = {"access": Access.ADMIN, "answers": [(200, DoneAt, "It is so.")]}
    base = "/api/v1/tenants"
    return [
        Route("GET", base, _list, access=Access.READ, tag="tenants", summary="List tenants by name", query=PageQuery,
              answers=[(200, document_type(Tenants), "A page.")]),
        Route("GET", f"{base}/{{tenant}}", _get, access=Access.READ, tag="tenants", summary="Show a tenant",
              answers=[(200, document_type(TenantView), "The tenant.")], problems=[404]),
        Route("PUT", f"{base}/{{tenant}}", _put, tag="tenants", summary="Set the policy of a tenant",
              body=TenantPolicy, **admin),
        Route("DELETE", f"{base}/{{tenant}}", _delete, tag="tenants", summary="Go back to the default policy",
              problems=[404, 409], **admin),
        Route("GET", "/api/v1/workers", _workers, access=Access.CLUSTER, tag="workers", summary="List workers by id",
              answers=[(200, document_type(Workers), "All of them.")]),
        Route("DELETE", "/api/v1/workers/{worker_id}", _remove_worker, tag="workers", summary="Forget a dead worker",
              problems=[404, 409], **admin),
    ]  # fmt: skip
