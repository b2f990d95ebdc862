"""Ledgers of a log that no chain has to name: their own metadata say whose they are."""

from __future__ import annotations

import asyncio
import contextlib

from ledger.client.client import LedgerClient
from ledger.core.metadata import LedgerMetadata
from ledger.errors import MetadataDeniedError, NoSuchLedgerError
from rsm_spark.core.orphans import maker_of

_SLICE = 100


async def ledgers_of(client: LedgerClient, log_id: str, unread: list[int] | None = None) -> dict[int, LedgerMetadata]:
    """Return the ledgers that say that they are of a log, by id, whether a chain names them or not.

    Args:
        client: Connected ledger client.
        log_id: Of the log, 32 hex digits.
        unread: Takes the ids of ledgers whose metadata this log-in may not read; None = one of them is an error.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    found: dict[int, LedgerMetadata] = {}
    ledger_ids = sorted(await client.list())
    for first in range(0, len(ledger_ids), _SLICE):
        wanted = ledger_ids[first : first + _SLICE]
        known = await asyncio.gather(*(_known(client, one, unread) for one in wanted))
        found |= {
            ledger_id: metadata
            for ledger_id, metadata in zip(wanted, known, strict=True)
            if metadata is not None and maker_of(metadata.custom) == log_id
        }
    return found


async def _known(client: LedgerClient, ledger_id: int, unread: list[int] | None) -> LedgerMetadata | None:
    try:
        with contextlib.suppress(NoSuchLedgerError):  # Deleted meanwhile.
            return await client.metadata(ledger_id)
    except MetadataDeniedError:
        if unread is None:
            raise
        unread.append(ledger_id)
    return None
