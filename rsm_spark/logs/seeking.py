"""Search for a place in a log: bisection over its ledgers and their entries, a read each.

Whatever is looked for rises along a log: positions, transaction ids, logged times. What is found is a place to begin at
or before: whoever reads from there passes over what comes too early. So an entry that cannot be read or that proves to
be none of the log's makes the way longer, and nothing wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ledger.client.read_handle import ReadHandle
from ledger.core.metadata import NO_ENTRY
from ledger.errors import DigestError, NoSuchEntryError, NoSuchLedgerError
from rsm_spark.core.chain import LogChain, last_entry_of
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.position import NO_REVISION, LogPosition
from rsm_spark.core.seal import ledger_password
from rsm_spark.errors import CorruptLogError
from rsm_spark.logs.context import LogContext

IsBefore = Callable[[bytes], bool]
"""True if an entry begins before what is looked for; false from some entry on, for good."""


class StartPlace(NamedTuple):
    """StartPlace before an entry.

    Attributes:
        position: Of the entry before it; None = it is the very first of the log.
        revision: Last revision before it.
        last_revision: Last revision of the entry, as far as it is known; else that before it.

    """

    position: LogPosition | None
    revision: int
    last_revision: int


async def find_place(context: LogContext, chain: LogChain, is_before: IsBefore) -> StartPlace:
    """Return a place from which on all is found that is looked for; as near as can be said.

    Raises:
        LedgerError, MetadataError: Bookies or metadata store cannot be asked.

    """
    if not chain.ledgers:
        return StartPlace(None, NO_REVISION, NO_REVISION)
    low, high = 0, len(chain.ledgers)  # The last ledger that begins before it is in [low, high).
    while high - low > 1:
        middle = (low + high) // 2
        found = await _LedgerSearch(context, chain, middle).bisect(is_before, first_only=True)
        low, high = (middle, high) if found is not None else (low, middle)
    found = await _LedgerSearch(context, chain, low).bisect(is_before, first_only=False)
    ledger = chain.ledgers[low]
    if found is None:
        before = ledger.first_revision - 1
        return StartPlace(LogPosition(ledger.ledger_id, NO_ENTRY), before, before)
    entry_id, payload = found
    envelope = decode_envelope(payload)
    return StartPlace(LogPosition(ledger.ledger_id, entry_id - 1), envelope.first_revision - 1, envelope.last_revision)


class _LedgerSearch:
    """Looks through one ledger."""

    def __init__(self, context: LogContext, chain: LogChain, place: int) -> None:
        self._context = context
        self._chain = chain
        self._ledger = chain.ledgers[place]

    async def bisect(self, is_before: IsBefore, *, first_only: bool) -> tuple[int, bytes] | None:
        """Return the last entry that begins before what is looked for; None = none does, as far as can be said."""
        context, ledger = self._context, self._ledger
        password = ledger_password(
            self._chain, ledger.ledger_id, context.settings.log_keys, context.settings.ledger_password
        )
        try:
            handle = await context.client.open_no_recovery(ledger.ledger_id, password=password)
        except NoSuchLedgerError:
            return None  # Whoever reads it finds out why.
        try:
            if handle.is_closed:
                last = last_entry_of(ledger, handle.metadata.last_entry_id)
            else:
                lac = await handle.read_lac()
                last = max(lac.last_add_confirmed, lac.explicit_lac)
            return await _bisect(handle, is_before, min(last, 0) if first_only else last)
        except (NoSuchEntryError, DigestError, CorruptLogError):
            return None
        finally:
            await handle.close()


async def _bisect(handle: ReadHandle, is_before: IsBefore, last: int) -> tuple[int, bytes] | None:
    """Return the last entry, up to `last`, that begins before what is looked for; None = none does."""
    low, high = 0, last + 1
    found = None
    while low < high:
        middle = (low + high) // 2
        payload = bytes((await handle.read(middle, middle))[0].payload)
        if is_before(payload):
            low, found = middle + 1, (middle, payload)
        else:
            high = middle
    return found
