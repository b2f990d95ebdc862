"""Resources, holds and slots over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from broker.core.commands import ClearHold, LimitResource, SetHold
from broker.core.queries import ListLimits, ListSlots
from broker.core.replies import Done
from broker.core.shown import Limits, Slots
from broker.http.call import Call
from broker.http.documents import as_document, document_type
from broker.http.replies import Reply, json_reply
from broker.http.routes import Access, Route
from broker.http.task_bodies import Milliseconds, Name
from broker.http.tenants import DoneAt

__all__ = ["routes"]

_PAGE_MAX = 1_000
_REASON_MAX = 1_000


class TenantQuery(msgspec.Struct, frozen=True):
    """Whose; only of the administrator."""

    tenant: Name = ""


class SlotQuery(msgspec.Struct, frozen=True):
    """Those after `after`, by name, at most `limit`; `tenant` only of the administrator."""

    tenant: Name = ""
    after: Name = ""
    limit: Annotated[int, Meta(ge=1, le=_PAGE_MAX)] = _PAGE_MAX


class LimitQuery(msgspec.Struct, frozen=True):
    """For one tenant, or type, or both; without them for all together."""

    tenant: Name = ""
    type: Name = ""


class LimitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the resource may be in use at once."""

    amount_max: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class HoldQuery(msgspec.Struct, frozen=True):
    """What is held back: by tenant, type and key; what is not named is any. A key needs its tenant."""

    tenant: Name = ""
    type: Name = ""
    key: Name = ""


class HoldBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it is held back.

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


async def _list(call: Call) -> Reply:
    found, revision = await call.expect(ListLimits(call.tenant_to_see(call.query.tenant)), Limits, "limit")
    return json_reply(as_document(found), revision=revision)


async def _slots(call: Call) -> Reply:
    query: SlotQuery = call.query
    wanted = ListSlots(call.tenant_to_see(query.tenant), query.after, query.limit)
    found, revision = await call.expect(wanted, Slots, "slot")
    return json_reply(as_document(found), revision=revision)


async def _limit(call: Call) -> Reply:
    query: LimitQuery = call.query
    body: LimitBody = call.body
    return _done(await call.execute(LimitResource(call.values[0], body.amount_max, query.tenant, query.type), Done))


async def _unlimit(call: Call) -> Reply:
    query: LimitQuery = call.query
    return _done(await call.execute(LimitResource(call.values[0], None, query.tenant, query.type), Done))


async def _hold(call: Call) -> Reply:
    query: HoldQuery = call.query
    body: HoldBody = call.body
    command = SetHold(
        call.tenant_to_see(query.tenant), query.type, query.key, body.is_paused, body.is_draining, body.until_ms,
        body.reason,
    )  # fmt: skip
    return _done(await call.execute(command, Done))


async def _clear(call: Call) -> Reply:
    query: HoldQuery = call.query
    return _done(await call.execute(ClearHold(call.tenant_to_see(query.tenant), query.type, query.key), Done))


def _done(done: Done) -> Reply:
    return json_reply(DoneAt(done.revision), revision=done.revision)


def routes() -> list[Route]:
    """Return what is served of resources, holds and slots."""
    done = [(200, DoneAt, "It is so.")]
    admin: dict[str, Any] = {"access": Access.ADMIN, "tag": "limits", "query": LimitQuery, "answers": done}
    hold: dict[str, Any] = {"access": Access.WRITE, "tag": "limits", "query": HoldQuery, "answers": done}
    read: dict[str, Any] = {"access": Access.READ, "tag": "limits"}
    resource = "/api/v1/resources/{resource}"
    return [
        Route("GET", "/api/v1/limits", _list, summary="List resources, their use, and holds", query=TenantQuery,
              answers=[(200, document_type(Limits), "All of them.")], **read),
        Route("PUT", resource, _limit, summary="Limit a resource", body=LimitBody, **admin),
        Route("DELETE", resource, _unlimit, summary="Lift the limit of a resource", problems=[404], **admin),
        Route("PUT", "/api/v1/holds", _hold, summary="Hold tasks back", body=HoldBody, is_body_optional=True, **hold),
        Route("DELETE", "/api/v1/holds", _clear, summary="End a hold", problems=[404], **hold),
        Route("GET", "/api/v1/slots", _slots, summary="List taken slots", query=SlotQuery,
              answers=[(200, document_type(Slots), "A page.")], **read),
    ]  # fmt: skip
