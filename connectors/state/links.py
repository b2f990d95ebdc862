"""Proof that entries are one unbroken log: runs of entries are checked where they are read, and linked later. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rsm_spark.core.envelope import Envelope
from rsm_spark.errors import CorruptLogError, ForkedLogError


class Run(msgspec.Struct, array_like=True):
    """Entries of one ledger that follow each other: nothing is missing, each names the hash of the one before.

    Attributes:
        ledger_id: Their ledger.
        first_entry_id: First of them.
        last_entry_id: Last of them, inclusive.
        first_revision: Of their first record, or of the next one if they hold none.
        next_revision: After their last record.
        before: Prefix hash that the first names, 32 bytes.
        after: Prefix hash after the last, 32 bytes.
        payload_bytes: Of all of them.

    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    first_revision: int
    next_revision: int
    before: bytes
    after: bytes
    payload_bytes: int

    def goes_on(self, ledger_id: int, entry_id: int, envelope: Envelope) -> bool:
        """Return whether an entry continues the run."""
        return (ledger_id, entry_id, envelope.prefix_hash, envelope.first_revision) == (
            self.ledger_id,
            self.last_entry_id + 1,
            self.after,
            self.next_revision,
        )


class LinkEnd(msgspec.Struct, frozen=True):
    """End of linked runs.

    Attributes:
        prefix_hash: After the last entry, 32 bytes.
        revision: Of the last record.
        entry_count: Entries that were linked.
        payload_bytes: Of all of them.

    """

    prefix_hash: bytes
    revision: int
    entry_count: int
    payload_bytes: int


def link_runs(
    runs: Iterable[Run], ledger_ids: Sequence[int], before: bytes, next_revision: int, last: tuple[int, int]
) -> LinkEnd:
    """Check that runs are one unbroken range of a log.

    Args:
        runs: In any order.
        ledger_ids: Ledgers of the log, in the order of its chain.
        before: Prefix hash that the first entry must name.
        next_revision: Revision that its first record must have.
        last: Ledger and entry with which the range must end; (-1, -1) = it is empty.

    Raises:
        ForkedLogError: An entry does not continue the one before it.
        CorruptLogError: Entries or records are missing.

    """
    order = {ledger_id: index for index, ledger_id in enumerate(ledger_ids)}
    present, revision, count, size = before, next_revision, 0, 0
    ledger_id, entry_id = -1, -1
    for run in sorted(runs, key=lambda one: (order[one.ledger_id], one.first_entry_id)):
        place = f"ledger {run.ledger_id} entry {run.first_entry_id}"
        is_next = run.first_entry_id == entry_id + 1 if run.ledger_id == ledger_id else run.first_entry_id == 0
        if count and not is_next:
            raise CorruptLogError(f"{place}: entries before it are missing")
        if run.before != present:
            raise ForkedLogError(f"{place} does not continue the entry before it: the prefix hash differs")
        if run.first_revision != revision:
            raise CorruptLogError(f"{place} begins with record {run.first_revision}, {revision} is next")
        present, revision = run.after, run.next_revision
        ledger_id, entry_id = run.ledger_id, run.last_entry_id
        count += run.last_entry_id - run.first_entry_id + 1
        size += run.payload_bytes
    if count and (ledger_id, entry_id) != last:
        raise CorruptLogError(f"the entries end with ledger {ledger_id} entry {entry_id}, they should with {last}")
    return LinkEnd(present, revision - 1, count, size)
