"""Apache BookKeeper's protocol in Python: client, bookie and the tools around them.

    async with await LedgerClient.connect("zk+hierarchical://127.0.0.1:2181/ledgers") as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        entry_id = await writer.append(b"hello")

Names are imported when they are first used, so that `import ledger` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.client.adv_handle import AdvWriteHandle
    from ledger.client.blocking import (
        BlockingAdvWriteHandle,
        BlockingLedgerClient,
        BlockingReadHandle,
        BlockingWriteHandle,
    )
    from ledger.client.client import LedgerClient
    from ledger.client.lac_watch import LacInfo
    from ledger.client.read_handle import ReadHandle
    from ledger.client.settings import ClientSettings
    from ledger.client.write_handle import WriteHandle
    from ledger.core.entry import Entry
    from ledger.core.metadata import NO_ENTRY, DigestType, LedgerMetadata, LedgerState, Segment
    from ledger.core.quorum import QuorumConfig
    from ledger.errors import LedgerError

__all__ = [
    "NO_ENTRY",
    "AdvWriteHandle",
    "BlockingAdvWriteHandle",
    "BlockingLedgerClient",
    "BlockingReadHandle",
    "BlockingWriteHandle",
    "ClientSettings",
    "DigestType",
    "Entry",
    "LacInfo",
    "LedgerClient",
    "LedgerError",
    "LedgerMetadata",
    "LedgerState",
    "QuorumConfig",
    "ReadHandle",
    "Segment",
    "WriteHandle",
]

_HOMES = {
    "NO_ENTRY": "ledger.core.metadata",
    "AdvWriteHandle": "ledger.client.adv_handle",
    "BlockingAdvWriteHandle": "ledger.client.blocking",
    "BlockingLedgerClient": "ledger.client.blocking",
    "BlockingReadHandle": "ledger.client.blocking",
    "BlockingWriteHandle": "ledger.client.blocking",
    "ClientSettings": "ledger.client.settings",
    "DigestType": "ledger.core.metadata",
    "Entry": "ledger.core.entry",
    "LacInfo": "ledger.client.read_handle",
    "LedgerClient": "ledger.client.client",
    "LedgerError": "ledger.errors",
    "LedgerMetadata": "ledger.core.metadata",
    "LedgerState": "ledger.core.metadata",
    "QuorumConfig": "ledger.core.quorum",
    "ReadHandle": "ledger.client.read_handle",
    "Segment": "ledger.core.metadata",
    "WriteHandle": "ledger.client.write_handle",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
