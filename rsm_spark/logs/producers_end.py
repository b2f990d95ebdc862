"""Producers of a plain log as of its end: the newest note, and what stands behind it; the rest is not read."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ledger.core.metadata import NO_ENTRY
from rsm_spark.core.chain import LogChain
from rsm_spark.core.position import LogPosition
from rsm_spark.core.producers import EntryFacts, ProducerTable, facts_of, folded
from rsm_spark.errors import CorruptLogError
from rsm_spark.log.commit_log import LogReader
from rsm_spark.logs.context import LogContext

_ENTRIES = 64
"""Entries of one step backward."""


async def read_producers(context: LogContext, chain: LogChain, last_entry_id: int) -> ProducerTable:
    """Return the producers of a log whose ledgers are all closed.

    Args:
        context: Of the log.
        chain: As held by whoever has claimed it.
        last_entry_id: Of the chain's last ledger.

    Raises:
        CorruptLogError: What lies there is not the log's, or the newest note is gone.
        MissingLogError: A later claim has trimmed it.
        LedgerError, MetadataError: Bookies or metadata store cannot be asked; the same call may succeed later.

    """
    behind: list[EntryFacts] = []  # Newest first.
    async for facts in _backward(context, chain, last_entry_id):
        behind.append(facts)
        if facts.has_note:
            return folded(reversed(behind))
    if not chain.is_whole:
        raise CorruptLogError(
            f"log {context.log}: none of the ledgers that its chain still names tells who its producers are: what they "
            "have appended is not known. Find out what deleted the others"
        )
    return folded(reversed(behind))


async def _backward(context: LogContext, chain: LogChain, last_entry_id: int) -> AsyncIterator[EntryFacts]:
    """Yield what the entries of a log tell, the last one first."""
    for ledger in reversed(chain.ledgers):
        last = last_entry_id if ledger.closed is None else ledger.closed.last_entry_id
        while last > NO_ENTRY:
            first = max(0, last - _ENTRIES + 1)
            span = await _span(context, LogPosition(ledger.ledger_id, first - 1), ledger.first_revision - 1, last)
            for facts in reversed(span):
                yield facts
            last = first - 1


async def _span(context: LogContext, before: LogPosition, revision: int, last: int) -> list[EntryFacts]:
    """Return what the entries of a closed ledger tell, from behind a place up to an entry; what is set aside is not."""
    settings = context.settings
    reader = LogReader(
        context.client,
        context.chains,
        password=settings.ledger_password,
        keys=settings.log_keys,
        position=before,
        revision=revision,
        entries_max=last - before.entry_id,
    )
    found: list[EntryFacts] = []
    try:
        at = before.entry_id
        while at < last:
            entries = await reader.read()
            if not entries:
                break
            for entry in entries:
                at = entry.position.entry_id
                if entry.position.ledger_id != before.ledger_id or at > last:
                    return found
                found.append(facts_of(entry.payload))
    finally:
        await reader.close()
    return found
