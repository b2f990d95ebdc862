"""The answer to a request of which nothing is done: a status, and the ids that let the client match it."""

from __future__ import annotations

from ledger.wire import packets as p
from ledger.wire.codes import OperationType, Status


def refusal(request: p.Request, status: Status) -> p.Response:
    """Return the answer that says no more than `status`, which is not EOK.

    Args:
        request: Any but a `RefusedRequest`, which carries its answer.
        status: Why it is refused.

    """
    match request:
        case p.AddRequest():
            return p.AddResponse(request.txn_id, status, request.ledger_id, request.entry_id)
        case p.ReadRequest():
            return p.ReadResponse(request.txn_id, status, request.ledger_id, request.entry_id)
        case p.BatchReadRequest():
            return p.BatchReadResponse(request.txn_id, status, request.ledger_id, request.entry_id)
        case p.WriteLacRequest():
            return p.WriteLacResponse(request.txn_id, status, request.ledger_id)
        case p.ReadLacRequest():
            return p.ReadLacResponse(request.txn_id, status, request.ledger_id)
        case p.FenceCheckRequest():
            return p.FenceCheckResponse(request.txn_id, status, request.ledger_id)
        case p.ForceRequest():
            return p.ForceResponse(request.txn_id, status, request.ledger_id)
        case p.ListRequest():
            return p.ListResponse(request.txn_id, status, request.ledger_id)
        case p.InfoRequest():
            return p.InfoResponse(request.txn_id, status)
        case p.AuthRequest():
            return p.UnsupportedResponse(request.txn_id, status, OperationType.AUTH)
        case p.StartTlsRequest():
            return p.StartTlsResponse(request.txn_id, status)
        case p.UnsupportedRequest():
            return p.UnsupportedResponse(request.txn_id, status, request.operation)
        case p.RefusedRequest():
            raise AssertionError("a refused request carries its answer")
