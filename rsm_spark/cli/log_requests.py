"""Requests of the command line to a log: a client for one command, and orders to the leader."""

from __future__ import annotations

from typing import Annotated, Any

from ledger.client.client import LedgerClient
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.operators import Operator
from ledger.options import Option
from rsm_spark.cli.terminal import LogsOptions, run
from rsm_spark.errors import PartitionedLogError, RsmError
from rsm_spark.log.admin_requests import (
    AdminRequests,
    ForgetWriterRequest,
    HandOverWriterRequest,
    Order,
    WritersRequest,
)
from rsm_spark.log.chain_store import ChainStore


async def place_order(
    log: str, order: Order, timeout_s: float, metadata_uri: str | None, rsm_root: str, by: Operator | None = None
) -> dict[str, Any]:
    """Have the leader carry out an order of somebody; return what came of it.

    Raises:
        RsmError: It refuses, or does not answer.

    """
    async with await LedgerClient.connect(metadata_uri) as client:
        try:
            await ChainStore(client.store, log, rsm_root).read()  # A log that does not exist has no leader to wait for.
        except PartitionedLogError:
            if not isinstance(order, WritersRequest | ForgetWriterRequest | HandOverWriterRequest):
                raise
        answer = await AdminRequests(client.store, log, rsm_root).place(order, timeout_s=timeout_s, by=by)
    if answer.refusal:
        raise RsmError(answer.refusal)
    return {"leader": answer.by, **answer.outcome}


class OrderOptions(AuditOptions, frozen=True, kw_only=True):
    """Options of a command whose work the leader does."""

    reason: Annotated[str, Option("Why; the audit keeps it.")] = ""
    timeout_s: Annotated[float, Option("How long to wait for the leader.", name="timeout", ge=1.0, metavar="S")] = 30.0


def give_order(log: str, order: Order, at: LogsOptions, how: OrderOptions, command: str) -> dict[str, Any]:
    """Have the leader carry out what a command orders, in the name of who runs it; return what came of it."""
    by = this_operator(how.reason)
    with audited_command(how.audit_file, command, f"log {log}", by):
        return run(place_order(log, order, how.timeout_s, at.metadata_uri, at.rsm_root, by))
