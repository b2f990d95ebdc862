"""Rights that each operation of a bookie needs, for both protocols."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from ledger.rights.table import Right
from ledger.wire import packets as p

RIGHTS: Final = MappingProxyType({
    p.AddRequest: Right.LEDGER_WRITE,  # those of a recovery too
    p.WriteLacRequest: Right.LEDGER_WRITE,
    p.ForceRequest: Right.LEDGER_WRITE,
    p.ReadRequest: Right.LEDGER_READ,  # one that fences: see `right_of`
    p.BatchReadRequest: Right.LEDGER_READ,
    p.ReadLacRequest: Right.LEDGER_READ,
    p.FenceCheckRequest: Right.LEDGER_WRITE,  # nobody but a writer needs it
    p.InfoRequest: Right.LEDGER_READ,
    p.ListRequest: Right.LEDGER_READ,
    p.UnsupportedRequest: Right.LEDGER_READ,
})  # fmt: skip
OPEN_REQUESTS: Final = (p.StartTlsRequest, p.AuthRequest, p.RefusedRequest)
"""Requests that lead to a log-in, and those that are refused in any case."""


def right_of(request: p.Request) -> Right | None:
    """Return what a request needs; None = it is for nobody."""
    if getattr(request, "is_fencing", False):
        return Right.LEDGER_WRITE
    return RIGHTS.get(type(request))
