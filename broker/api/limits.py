"""Resources, holds and slots over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from broker.api.call import ApiRequest
from broker.api.documents import as_document, document_type
from broker.api.routes import Access, Route
from broker.api.task_bodies import Milliseconds, Name
from broker.api.tenants import DoneAt
from broker.machine.commands import ClearHold, LimitResource, SetHold
from broker.machine.queries import ListLimits, ListSlots
from broker.machine.replies import Done
from broker.machine.views import LimitsView, Slots
from ledger.http.replies import HttpReply, json_reply

_PAGE_MAX = 1_000
_REASON_MAX = 1_000


class TenantQuery(msgspec.Struct, frozen=True):
    """Tenant that a limit belongs to; only an administrator names it."""

    tenant: Name = ""


class SlotQuery(msgspec.Struct, frozen=True):
    """Slots after `after`, by name, at most `limit`; only an administrator names the tenant."""

    tenant: Name = ""
    after: Name = ""
    limit: Annotated[int, Meta(ge=1, le=_PAGE_MAX)] = _PAGE_MAX


class LimitQuery(msgspec.Struct, frozen=True):
    """For one tenant, or type, or both; without them for all together."""

    tenant: Name = ""
    type: Name = ""


class LimitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Amount of the resource that may be in use at once."""

    amount_max: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class HoldQuery(msgspec.Struct, frozen=True):
    """Tasks that a hold stops: by tenant, type and key; what is not named is any. A key needs its tenant."""

    tenant: Name = ""
    type: Name = ""
    key: Name = ""


class HoldBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Effect and reason of a hold.

    Attributes:
        is_paused: Nothing of it is dispatched; what runs goes on.
        is_draining: Nothing of it is accepted any more.
        until_ms: It ends by itself then; 0 = when it is cleared.
        reason: Shown to people.

    """

    is_paused: bool = True
    is_draining: bool = False
    until_ms: Milliseconds = 0
    reason: Annotated[str, Meta(max_length=_REASON_MAX)] = ""


async def _list(call: ApiRequest) -> HttpReply:
    found, revision = await call.expect(ListLimits(call.tenant_to_see(call.query.tenant)), LimitsView, "limit")
    return json_reply(as_document(found), revision=revision)


async def _slots(call: ApiRequest) -> HttpReply:
    query: SlotQuery = call.query
    wanted = ListSlots(call.tenant_to_see(query.tenant), query.after, query.limit)
    found, revision = await call.expect(wanted, Slots, "slot")
    return json_reply(as_document(found), revision=revision)


async def _limit(call: ApiRequest) -> HttpReply:
    query: LimitQuery = call.query
    body: LimitBody = call.body
    return _done(await call.execute(LimitResource(call.values[0], body.amount_max, query.tenant, query.type), Done))


async def _unlimit(call: ApiRequest) -> HttpReply:
    query: LimitQuery = call.query
    return _done(await call.execute(LimitResource(call.values[0], None, query.tenant, query.type), Done))


async def _hold(call: ApiRequest) -> HttpReply:
    query: HoldQuery = call.query
    body: HoldBody = call.body
    command = SetHold(
        call.tenant_to_see(query.tenant), query.type, query.key, body.is_paused, body.is_draining, body.until_ms,
        body.reason, call.author,
    )  # fmt: skip
    return _done(await call.execute(command, Done))


async def _clear(call: ApiRequest) -> HttpReply:
    query: HoldQuery = call.query
    command = ClearHold(call.tenant_to_see(query.tenant), query.type, query.key, call.author)
    return _done(await call.execute(command, Done))


def _done(done: Done) -> HttpReply:
    return json_reply(DoneAt(done.revision), revision=done.revision)


def routes() -> list[Route]:
    """Return what is served of resources, holds and slots."""
    done = [(200, DoneAt, "It is so.")]
    admin: dict[str, Any] = {"access": Access.ADMIN, "tag": "limits", "query": LimitQuery, "answers": done}
    hold: dict[str, Any] = {"access": Access.WRITE, "tag": "limits", "query": HoldQuery, "answers": done}
    hold["is_audited"] = True
    read: dict[str, Any] = {"access": Access.READ, "tag": "limits"}
    resource = "/api/v1/resources/{resource}"
    return [
        Route("GET", "/api/v1/limits", _list, summary="List resources, their use, and holds", query=TenantQuery,
              answers=[(200, document_type(LimitsView), "All of them.")], **read),
        Route("PUT", resource, _limit, summary="Limit a resource", body=LimitBody, **admin),
        Route("DELETE", resource, _unlimit, summary="Lift the limit of a resource", problems=[404], **admin),
        Route("PUT", "/api/v1/holds", _hold, summary="Hold tasks back", body=HoldBody, is_body_optional=True,
              problems=[403], **hold),
        Route("DELETE", "/api/v1/holds", _clear, summary="End a hold", problems=[403, 404], **hold),
        Route("GET", "/api/v1/slots", _slots, summary="List taken slots", query=SlotQuery,
              answers=[(200, document_type(Slots), "A page.")], **read),
    ]  # fmt: skip
