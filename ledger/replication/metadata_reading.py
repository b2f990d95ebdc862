"""Reading the metadata of all ledgers of a cluster, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from ledger.core.metadata import LedgerMetadata
from ledger.errors import CorruptMetadataError
from ledger.replication.questions import read_patiently
from ledger.zookeeper.ledgers import LedgerStore

_READS_AT_A_TIME: Final = 32


async def read_each(ledgers: LedgerStore, ids: Sequence[int]) -> AsyncIterator[tuple[int, LedgerMetadata | None]]:
    """Yield ledgers with their metadata, in the order asked for; None for metadata that are damaged.

    A ledger that was deleted meanwhile is passed over.

    Raises:
        MetadataError: The metadata store does not answer.

    """
    for start in range(0, len(ids), _READS_AT_A_TIME):
        part = ids[start : start + _READS_AT_A_TIME]
        found = await asyncio.gather(*[_read(ledgers, ledger_id) for ledger_id in part])
        for ledger_id, (metadata, is_damaged) in zip(part, found, strict=True):
            if metadata is not None or is_damaged:
                yield ledger_id, metadata


async def _read(ledgers: LedgerStore, ledger_id: int) -> tuple[LedgerMetadata | None, bool]:
    try:
        return await read_patiently(ledgers, ledger_id), False
    except CorruptMetadataError:
        return None, True
