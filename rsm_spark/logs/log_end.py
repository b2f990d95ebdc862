"""The end of a plain log, read from its last entry alone: the whole of it need not be read again to go on."""

from __future__ import annotations

from typing import NamedTuple

from ledger.core.metadata import NO_ENTRY
from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import entry_hash, root_hash
from rsm_spark.core.plain_log import WrittenEnd, written_end
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import StateTip
from rsm_spark.errors import CorruptLogError
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.logs.context import LogContext


class LogEnd(NamedTuple):
    """End of a log whose ledgers are all closed.

    Attributes:
        tip: What the next entry follows.
        position: Of the last entry; None = there is none.
        written: What that entry says.
        epoch: Of the chain while it was read.

    """

    tip: StateTip
    position: LogPosition | None
    written: WrittenEnd
    epoch: int


async def read_log_end(context: LogContext, chain: LogChain, last_entry_id: int) -> LogEnd:
    """Return where a log ends.

    Args:
        context: Of the log.
        chain: As held by whoever has claimed it.
        last_entry_id: Of the chain's last ledger, which is closed.

    Raises:
        CorruptLogError: What lies there is not the log's; `ForeignEntryError` if its seal is not.
        MissingLogError: A later claim has trimmed it.
        LedgerError, MetadataError: Bookies or metadata store cannot be asked; the same call may succeed later.

    """
    for place in range(len(chain.ledgers) - 1, -1, -1):
        ledger = chain.ledgers[place]
        last = last_entry_id if ledger.closed is None else ledger.closed.last_entry_id
        for entry_id in range(last, NO_ENTRY, -1):
            found = await _entry_at(context, LogPosition(ledger.ledger_id, entry_id - 1), ledger.first_revision - 1)
            if found is not None:  # Else it is set aside: no leader wrote it.
                return _end_at(*found)
    if not chain.is_whole:
        raise CorruptLogError(
            f"log {context.log}: none of the ledgers that its chain still names holds an entry: where it ends is not "
            "known. Find out what deleted the others"
        )
    return LogEnd(StateTip(0, root_hash(chain.ancestry.root), 0, 0), None, WrittenEnd(), chain.leader_epoch)


async def _entry_at(context: LogContext, before: LogPosition, revision: int) -> tuple[LogEntry, int] | None:
    """Return the last entry behind a place of a closed ledger, and the epoch of the chain."""
    settings = context.settings
    reader = LogReader(
        context.client,
        context.chains,
        password=settings.ledger_password,
        keys=settings.log_keys,
        position=before,
        revision=revision,
        entries_max=settings.tail_entries_max,
    )
    try:
        entries = await reader.read()
        assert reader.chain is not None
        here = [entry for entry in entries if entry.position.ledger_id == before.ledger_id]
        return (here[-1], reader.chain.leader_epoch) if here else None
    finally:
        await reader.close()


def _end_at(entry: LogEntry, epoch: int) -> LogEnd:
    envelope = entry.envelope
    tip = StateTip(
        envelope.last_revision,
        entry.prefix_hash or entry_hash(entry.payload),
        envelope.leader_epoch,
        envelope.logged_ms,
        bool(envelope.key_id),
    )
    return LogEnd(tip, entry.position, written_end(entry.payload), epoch)
