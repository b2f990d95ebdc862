"""Plain ledgers as a query reads them: all of option `ledgers`, in the order of their ids, up to their LACs.

A ledger that was deleted is a loss of what the query had not read of it. With `failOnDataLoss=false` its position
stays in the offsets as it is, so that every restart means the same ledger; ids are never used again.
"""

from __future__ import annotations

import logging
from typing import Any

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.bounds import Bound, BoundKind
from connectors.source.loss import Loss, Losses
from connectors.source.narrow import narrow_ranges
from connectors.source.offsets import decode_ledger_offsets, encode_ledger_offsets
from connectors.source.options import SourceOptions
from connectors.source.plan import MicroBatchLimits, cut_ledgers
from connectors.source.progress import SourceLag
from connectors.source.row_plan import row_plan
from connectors.source.split import split_ledgers
from connectors.source.task_metadata import SourceAccess, task_metadata
from connectors.source.tasks import LedgerPartition
from ledger.core.metadata import LedgerMetadata
from ledger.errors import NoSuchLedgerError

_LOGGER = logging.getLogger(__name__)


class LedgersSource:
    """Plain ledgers; they need not be closed.

    Args:
        options: Of the query.
        access: Where to read.

    """

    def __init__(self, options: SourceOptions, access: SourceAccess) -> None:
        self._options = options
        self._access = access
        self._losses = Losses(_LOGGER.warning)
        # Ledgers known to be CLOSED, with their ends, exclusive: final.
        self._closed: dict[int, int] = {}
        # Deleted ledgers, with the ends that were known of them.
        self._gone: dict[int, int | None] = {}
        self._metadata: dict[int, LedgerMetadata] = {}
        # Ends only grow.
        self._ends: dict[int, int] = {}

    def _look(self) -> dict[int, int]:
        """Return the next entry after the last one that may be read, by the ids of ledgers that are there."""
        for ledger_id in self._options.ledger_ids:
            if ledger_id in self._closed or ledger_id in self._gone:
                continue
            metadata = self._read_metadata(ledger_id)
            if metadata is None:
                self._gone[ledger_id] = self._ends.get(ledger_id)
            elif metadata.is_closed:
                self._closed[ledger_id] = self._ends[ledger_id] = metadata.last_entry_id + 1
            else:
                confirmed = self._access.confirmed(ledger_id).last_add_confirmed + 1
                self._ends[ledger_id] = max(self._ends.get(ledger_id, 0), confirmed)
        return {i: self._ends[i] for i in self._options.ledger_ids if i not in self._gone}

    def _read_metadata(self, ledger_id: int) -> LedgerMetadata | None:
        """Return a ledger's metadata; None if it was deleted and that is no error."""
        try:
            metadata = self._metadata[ledger_id] = self._access.metadata(ledger_id)
        except NoSuchLedgerError as error:
            if not self._options.fail_on_data_loss:
                return None
            known = self._ends.get(ledger_id)
            read_to = "" if known is None else f"; it could be read up to entry {known - 1}"
            raise StartGoneError(
                f"ledger {ledger_id} does not exist (any more){read_to}: check the options ledgers and metadataUri; if "
                "it was deleted, start a new query (new checkpoint location) without it, or set failOnDataLoss=false "
                "to go on without it"
            ) from error
        return metadata

    def _lose(self, ledger_id: int, position: int) -> int:
        """Note what is lost of a deleted ledger; return where the query stands in it from now on."""
        end = self._gone[ledger_id]
        if end is None or position < end:
            last = None if end is None else end - 1
            self._losses.add(Loss(ledger_id=ledger_id, first=position, last=last, reason="the ledger was deleted"))
        return position if end is None else max(position, end)

    def bound(self, *, is_start: bool) -> dict[str, Any]:
        """Return the offset that the starting or ending option means now."""
        bounds = self._options.starting if is_start else self._options.ending
        ends = self._look()
        found = {i: _entry_of(bounds[str(i)], i, end) for i, end in ends.items()}
        if is_start:
            found |= {i: self._lose(i, bounds[str(i)].entry_id) for i in self._gone}
        return encode_ledger_offsets(found)

    def end(self) -> dict[str, Any]:
        """Return the offset after everything that may be read now."""
        return encode_ledger_offsets(self._look())

    def following(
        self, start: dict[str, Any], limits: MicroBatchLimits, target: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch; see `query_source.QuerySource`."""
        position = self._decode(start)
        ends = self._look()
        if target is not None:
            wanted = self._decode(target)
            ends = {i: min(end, wanted.get(i, end)) for i, end in ends.items()}
        # A LAC that was seen once counts, also when fewer bookies answer now.
        ends = {i: max(end, position.get(i, 0)) for i, end in ends.items()}
        found = cut_ledgers(position, ends, limits, self._length_at)
        return encode_ledger_offsets(found | {i: self._lose(i, position.get(i, 0)) for i in self._gone})

    def _length_at(self, ledger_id: int, entry_id: int) -> int:
        """Return the payload bytes of a ledger up to an entry (`plan.LengthAt`)."""
        metadata = self._metadata.get(ledger_id) or self._access.metadata(ledger_id)
        if metadata.is_closed and entry_id == metadata.last_entry_id:
            return metadata.length
        return self._access.read(ledger_id, entry_id, entry_id)[0].length

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LedgerPartition]:
        """Return the input partitions of [start, end); see `query_source.QuerySource`."""
        first, last = self._decode(start), self._decode(end)
        for i in [i for i in last if first.get(i, 0) < last[i] and i not in self._metadata]:
            # After a restart the micro-batch that was planned last is read again before anything is looked at.
            if i not in self._gone and self._read_metadata(i) is None:
                self._gone[i] = None
        for i in self._gone:
            self._lose(i, first.get(i, 0))
        last = {i: entry_id for i, entry_id in last.items() if first.get(i, 0) < entry_id and i not in self._gone}
        bounds = self._options.entry_bounds
        if bounds is not None:
            last = {i: entry_id for i, entry_id in last.items() if bounds.ledger_id.low <= i <= bounds.ledger_id.high}
        sizes = {i: self._length_at(i, entry_id - 1) // entry_id for i, entry_id in last.items()}
        ranges = split_ledgers(first, last, sizes, self._options.partition_count_min)
        if bounds is not None:
            ranges = narrow_ranges(ranges, bounds, {})
        given = task_metadata({part.ledger_id: self._metadata[part.ledger_id] for part in ranges}, self._access)
        return [
            LedgerPartition(
                part.ledger_id,
                part.first_entry_id,
                part.last_entry_id,
                0,
                0,
                given.metadata[part.ledger_id],
                given.addresses,
                str(self._options.rows),
                row_plan=row_plan(self._options),
                bounds=bounds,
            )
            for part in ranges
        ]

    def backlog(self, offset: dict[str, Any]) -> SourceLag:
        """Return what waits behind an offset; plain ledgers know no time."""
        position = self._decode(offset)
        waiting = {i: (position.get(i, 0), end) for i, end in self._look().items() if end > position.get(i, 0)}
        byte_count = sum(
            self._length_at(i, end - 1) - (self._length_at(i, first - 1) if first else 0)
            for i, (first, end) in waiting.items()
        )
        return SourceLag(sum(end - first for first, end in waiting.values()), byte_count, None)

    def losses(self) -> list[dict[str, Any]]:
        """Return what was skipped as it is gone."""
        return self._losses.as_json()

    def _decode(self, offset: dict[str, Any]) -> dict[int, int]:
        found = decode_ledger_offsets(offset)
        missing = sorted(set(found) - set(self._options.ledger_ids))
        if missing:
            raise SparkOffsetError(
                f"the checkpoint reads ledgers {', '.join(map(str, missing))}, option ledgers does not name them: add "
                "them, or use another checkpoint location"
            )
        return found


def _entry_of(bound: Bound, ledger_id: int, end: int) -> int:
    match bound.kind:
        case BoundKind.EARLIEST:
            return 0
        case BoundKind.BEFORE_LATEST:
            return max(0, end - bound.count)
        case BoundKind.POSITION:
            if bound.entry_id > end:
                raise SparkOffsetError(f"ledger {ledger_id} can be read up to entry {end - 1}, not {bound.entry_id}")
            return bound.entry_id
        case _:
            return end
