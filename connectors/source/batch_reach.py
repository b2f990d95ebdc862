"""Ledgers before one in which rows of its finished batches may stand. Pure; for readers of finished batches only.

A batch is shown where the mark of its end stands, and its rows may stand ledgers before. Among the first entries of
each ledger a writer of the log notes all writers of batches: which batches are open, and how many rows of each stand
before it. So the notes say in which ledgers the rows of open batches are; no other ledger is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from connectors.source.plan import LogSpan
from rsm_spark.core.finished_batches import BatchKey


class LedgerHead(NamedTuple):
    """Beginning of a ledger, as far as batches go.

    Attributes:
        open_rows: Batches that are open there, and how many rows of each stand before.
        is_first: That is said of what stands before the ledger's first entry; else before one of its next ones.

    """

    open_rows: Mapping[BatchKey, int]
    is_first: bool


HeadOf = Callable[[LogSpan], LedgerHead | None]
"""A ledger -> its head; None = what is there of the ledger does not tell."""


def ledgers_behind(spans: Sequence[LogSpan], place: int, head_of: HeadOf) -> list[LogSpan]:
    """Return the ledgers that have rows of batches which may end in a ledger, the nearest first.

    Args:
        spans: The log, oldest ledger first.
        place: Of the ledger.
        head_of: Asked once for each ledger that is looked at, from this one backward.

    """
    head = head_of(spans[place])
    wanted = None if head is None else _begun(head.open_rows)
    found: list[LogSpan] = []
    for span in reversed(spans[:place]):
        if wanted is not None and not wanted:
            break
        if span.last_entry_id < 0:
            continue
        before = head_of(span)
        if before is None:
            found.append(span)
            continue
        if wanted is None:
            found.append(span)
            wanted = _begun(before.open_rows)
            continue
        has_rows = any(before.open_rows.get(batch, 0) < row_count for batch, row_count in wanted.items())
        if has_rows or not before.is_first:
            found.append(span)
        wanted = {batch: before.open_rows[batch] for batch in wanted if before.open_rows.get(batch)}
    return found


def _begun(open_rows: Mapping[BatchKey, int]) -> dict[BatchKey, int]:
    return {batch: row_count for batch, row_count in open_rows.items() if row_count}
