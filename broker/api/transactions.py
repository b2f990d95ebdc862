"""Transactions over HTTP: many submits that become tasks at once, or not at all."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from broker.api.call import ApiRequest
from broker.api.documents import as_document, document_type
from broker.api.routes import Access, Route
from broker.api.task_bodies import Name
from broker.machine.commands import BeginTransaction, CommitTransaction, RollbackTransaction
from broker.machine.queries import ListTransactions
from broker.machine.replies import Begun, Committed
from broker.machine.views import Transactions
from ledger.http.replies import HttpReply, json_reply

_BASE = "/api/v1/transactions"


class BeginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A transaction is rolled back by itself after `ttl_s`."""

    ttl_s: Annotated[float, Meta(gt=0, le=7 * 86_400)] = 300.0
    tenant: Name = ""


class BegunTransaction(msgspec.Struct, frozen=True):
    """Its id, and when it is rolled back by itself, ms since 1970."""

    transaction: int
    expires_ms: int


class EndedTransaction(msgspec.Struct, frozen=True):
    """Number of tasks of a transaction that has ended."""

    transaction: int
    task_count: int


class EndBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tenant of the transaction; only an administrator may name another than its own."""

    tenant: Name = ""


class TransactionListQuery(msgspec.Struct, frozen=True):
    """Tenant of the transactions; only an administrator names it."""

    tenant: Name = ""


async def _begin(call: ApiRequest) -> HttpReply:
    body: BeginBody = call.body
    command = BeginTransaction(call.tenant_to_write(body.tenant), max(1, round(body.ttl_s * 1_000)))
    begun = await call.execute(command, Begun)
    return json_reply(
        BegunTransaction(begun.transaction, begun.expires_ms), status=201, revision=begun.transaction,
        location=f"{_BASE}/{begun.transaction}",
    )  # fmt: skip


async def _list(call: ApiRequest) -> HttpReply:
    query: TransactionListQuery = call.query
    wanted = ListTransactions(call.tenant_to_see(query.tenant))
    found, revision = await call.expect(wanted, Transactions, "transaction")
    return json_reply(as_document(found), revision=revision)


async def _commit(call: ApiRequest) -> HttpReply:
    transaction = call.number(call.values[0], "a transaction")
    return await _end(call, transaction, CommitTransaction(call.tenant_to_write(call.body.tenant), transaction))


async def _rollback(call: ApiRequest) -> HttpReply:
    transaction = call.number(call.values[0], "a transaction")
    return await _end(call, transaction, RollbackTransaction(call.tenant_to_write(call.body.tenant), transaction))


async def _end(call: ApiRequest, transaction: int, command: CommitTransaction | RollbackTransaction) -> HttpReply:
    committed = await call.execute(command, Committed)
    return json_reply(EndedTransaction(transaction, committed.task_count))


def routes() -> list[Route]:
    """Return what is served of transactions."""
    end: dict[str, Any] = {"access": Access.WRITE, "tag": "transactions", "body": EndBody, "is_body_optional": True,
                           "problems": [404, 409], "answers": [(200, EndedTransaction, "It is over.")]}  # fmt: skip
    return [
        Route("POST", _BASE, _begin, access=Access.WRITE, tag="transactions", summary="Begin a transaction",
              body=BeginBody, is_body_optional=True, answers=[(201, BegunTransaction, "It is open.")]),
        Route("GET", _BASE, _list, access=Access.READ, tag="transactions", summary="List open transactions",
              query=TransactionListQuery, answers=[(200, document_type(Transactions), "By id.")]),
        Route("POST", f"{_BASE}/{{transaction}}/commit", _commit, summary="Have its tasks wait to be run", **end),
        Route("POST", f"{_BASE}/{{transaction}}/rollback", _rollback, summary="Forget its tasks", **end),
    ]  # fmt: skip
