"""Finds the entry of a log that holds a revision: by the chain, then by halving a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import MissingLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader

if TYPE_CHECKING:
    from ledger.client.client import LedgerClient

__all__ = ["reader_at"]


async def reader_at(
    client: LedgerClient,
    chains: ChainStore,
    revision: int,
    *,
    password: bytes = b"",
    poll_s: float = 1.0,
    entries_max: int = 256,
) -> LogReader:
    """Return a reader whose first entry is the one that holds a revision, or what follows it if it holds records.

    Args:
        client: Ledger client.
        chains: Chain of the log.
        revision: 1 or more; it may be one that the log does not have yet.
        password: Of the log's ledgers.
        poll_s: See `LogReader`.
        entries_max: See `LogReader`.

    Raises:
        MissingLogError: That part of the log has been trimmed; its `last_revision` + 1 is the first that is there.
        LedgerError, MetadataError: Bookies or metadata store cannot be asked.

    """
    chain, _ = await chains.read()
    ledger_id, before = _ledger_of(chain, revision, chains.log_name)
    if ledger_id is None:
        return LogReader(client, chains, password=password, poll_s=poll_s, entries_max=entries_max)
    handle = await client.open_no_recovery(ledger_id, password=password)
    try:
        if handle.is_closed:
            last = handle.metadata.last_entry_id
        else:
            lac = await handle.read_lac()
            last = max(lac.last_add_confirmed, lac.explicit_lac)
        low, high = 0, last + 1  # The entry looked for is in [low, high]; `last` + 1 stands for "not there yet".
        while low < high:
            middle = (low + high) // 2
            envelope = decode_envelope(bytes((await handle.read(middle, middle))[0].payload))
            if envelope.last_revision >= revision:
                high = middle
            else:
                low, before = middle + 1, envelope.last_revision
    finally:
        await handle.close()
    place = LogPosition(ledger_id, low - 1)
    return LogReader(
        client, chains, password=password, position=place, revision=before, poll_s=poll_s, entries_max=entries_max
    )


def _ledger_of(chain: LogChain, revision: int, log_name: str) -> tuple[int | None, int]:
    """Return the ledger that holds a revision, or will, and the revision before it; None for a log without ledgers."""
    found = None
    for ledger in chain.ledgers:
        if found is None or ledger.first_revision <= revision:
            found = ledger
    if found is None:
        return None, 0
    first = chain.ledgers[0]
    is_whole = first.ledger_id == chain.first_ledger_id and chain.base is None
    if found.first_revision > revision and not is_whole:
        raise MissingLogError(
            f"log {log_name}: revision {revision} has left the log; the first that is there is {first.first_revision}",
            first_revision=revision,
            last_revision=first.first_revision - 1,
        )
    return found.ledger_id, found.first_revision - 1
