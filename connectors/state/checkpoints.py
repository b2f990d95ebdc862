"""The newest checkpoint of a log, found by reading it backwards."""

from __future__ import annotations

from typing import Protocol

from connectors.source.decode import StoredEntry
from connectors.source.plan import LogView
from rsm_spark.core.kernel_tables import peek_checkpoint

_CHUNK_ENTRIES = 64


class EntryAccess(Protocol):
    """Access to entries; `connectors.source.access.DriverAccess` is the real one."""

    def read(self, ledger_id: int, first_entry_id: int, last_entry_id: int) -> list[StoredEntry]:
        """Read entries of a ledger."""
        ...


def newest_checkpoint(view: LogView, access: EntryAccess, revision: int | None = None) -> int | None:
    """Return the revision of the newest checkpoint; None if the log holds none.

    Args:
        view: The log as it is.
        access: Where to read.
        revision: Not above it; None = the newest there is.

    """
    for span in reversed(view.spans):
        if revision is not None and span.first_revision > revision + 1:
            continue
        last = span.last_entry_id
        while last >= 0:
            first = max(0, last - _CHUNK_ENTRIES + 1)
            for entry in reversed(access.read(span.ledger_id, first, last)):
                found = peek_checkpoint(entry.payload)
                if found is not None and 0 < found.revision <= (found.revision if revision is None else revision):
                    return found.revision
            last = first - 1
    return None
