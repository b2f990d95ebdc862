"""What a query reads, a log or some ledgers: bounds become offsets, offsets become input partitions. Driver only."""

from __future__ import annotations

import time
from typing import Any, Protocol

import msgspec

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.spark.access import DriverAccess
from connectors.spark.look import LogLook
from connectors.spark.offsets import (
    decode_ledger_offsets,
    decode_log_offset,
    encode_ledger_offsets,
    encode_log_offset,
)
from connectors.spark.options import Bound, BoundKind, Rows, SourceOptions
from connectors.spark.plan import Limits, LogView, cut_ledgers, cut_log, next_offset
from connectors.spark.progress import Backlog, log_backlog
from connectors.spark.split import EntryRange, split_ledgers, split_log
from connectors.spark.tasks import LedgerPartition
from ledger.core.metadata import DigestType, LedgerMetadata
from ledger.errors import NoSuchLedgerError
from rsm_spark.core.machine import encode_description

__all__ = ["LedgersSubject", "LogSubject", "Subject", "subject_of"]

Offset = dict[str, Any]

_LOOK_FRESH_S = 0.05


class Subject(Protocol):
    """What a query reads. All calls may block and use the network."""

    def bound(self, *, is_start: bool) -> Offset:
        """Return the offset that the starting or ending option means now."""
        ...

    def end(self) -> Offset:
        """Return the offset after everything that may be read now."""
        ...

    def following(self, start: Offset, limits: Limits, target: Offset | None) -> Offset:
        """Return the end of the next micro-batch; `start`, unchanged, if there is nothing to read.

        Args:
            start: Where the query stands.
            limits: At most so many records (of a log), entries (of ledgers) or bytes; rounded up to whole entries.
            target: Not beyond this offset; None = up to what may be read now.

        """
        ...

    def partitions(self, start: Offset, end: Offset) -> list[LedgerPartition]:
        """Return the input partitions of [start, end), in order."""
        ...

    def backlog(self, offset: Offset) -> Backlog:
        """Return what waits behind an offset."""
        ...

    def losses(self) -> list[dict[str, Any]]:
        """Return the ranges that were skipped because they are gone: ``{"log": …, "from": …, "to": …, "count": …}``."""
        ...


def subject_of(options: SourceOptions, access: DriverAccess) -> Subject:
    """Return what the options name."""
    return LogSubject(options, access) if options.log else LedgersSubject(options, access)


def _stripped(metadata: LedgerMetadata) -> LedgerMetadata:
    """Leave out what tasks do not need: the password, unless it makes the digest."""
    if metadata.digest_type == DigestType.HMAC:
        return metadata
    return msgspec.structs.replace(metadata, password=b"", custom={})


class LogSubject:
    """A replicated log."""

    def __init__(self, options: SourceOptions, access: DriverAccess) -> None:
        self._options = options
        self._access = access
        self._look = LogLook(options.log, access)
        self._view: LogView | None = None
        self._seen_s = float("-inf")

    def _fresh(self) -> LogView:
        """Look, unless that was done just now: Spark asks several things in a row for one micro-batch."""
        if self._view is None or time.monotonic() - self._seen_s > _LOOK_FRESH_S:
            self._view = self._look.look()
            self._seen_s = time.monotonic()
        return self._view

    def bound(self, *, is_start: bool) -> Offset:
        """Return the offset that the starting or ending option means now."""
        bounds = self._options.starting if is_start else self._options.ending
        view = self._look.look()
        position = self._look.position_of(view, bounds[view.log])
        if not is_start and position != view.end and self._look.is_inside_entry(view, position):
            # The entry that holds the end is read too; its records from the end on are left out.
            position = position._replace(entry_id=position.entry_id + 1)
        return encode_log_offset(view.log, position)

    def end(self) -> Offset:
        """Return the offset after everything that may be read now."""
        view = self._fresh()
        return encode_log_offset(view.log, view.end)

    def following(self, start: Offset, limits: Limits, target: Offset | None) -> Offset:
        """Return the end of the next micro-batch; see `Subject`."""
        log = self._options.log
        position = decode_log_offset(log, start)
        view = self._look.look()
        self._view, self._seen_s = view, time.monotonic()
        end = next_offset(view, position, counts_records=self._options.rows == Rows.RECORDS)
        if target is not None:
            wanted = decode_log_offset(log, target)
            if view.place(wanted) < view.place(end):
                end = wanted if view.place(wanted) > view.place(position) else position
        if end != position:
            end = cut_log(view, position, end, limits, self._look.head_at)
        return encode_log_offset(log, end)

    def partitions(self, start: Offset, end: Offset) -> list[LedgerPartition]:
        """Return the input partitions of [start, end); see `Subject`."""
        log = self._options.log
        first, last = decode_log_offset(log, start), decode_log_offset(log, end)
        if first == last:
            return []
        view = self._fresh()
        ranges = split_log(view, first, last, self._options.partition_count_min)
        ledger_ids = sorted({part.ledger_id for part in ranges})
        metadata = {ledger_id: self._access.metadata(ledger_id) for ledger_id in ledger_ids}
        described = {ledger_id: self._description(view, ledger_id) for ledger_id in ledger_ids}
        addresses = self._access.addresses(_bookies(metadata))
        return [
            LedgerPartition(
                part.ledger_id,
                part.first_entry_id,
                part.last_entry_id,
                part.first_revision,
                part.end_revision,
                _stripped(metadata[part.ledger_id]),
                addresses,
                str(self._options.rows),
                log,
                self._look.log_id,
                described[part.ledger_id],
            )
            for part in ranges
        ]

    def backlog(self, offset: Offset) -> Backlog:
        """Return what waits behind an offset."""
        return log_backlog(self._fresh(), decode_log_offset(self._options.log, offset), self._look.head_at)

    def losses(self) -> list[dict[str, Any]]:
        """Return what was skipped: nothing."""
        return []

    def _description(self, view: LogView, ledger_id: int) -> bytes | None:
        if self._options.rows == Rows.RAW:
            return None
        description = self._look.description_at(view, ledger_id)
        return None if description is None else encode_description(description)


class LedgersSubject:
    """Plain ledgers, in the order of their ids; they need not be closed."""

    def __init__(self, options: SourceOptions, access: DriverAccess) -> None:
        self._options = options
        self._access = access
        # Ends of ledgers known to be CLOSED, exclusive: final.
        self._closed: dict[int, int] = {}
        self._metadata: dict[int, LedgerMetadata] = {}
        # Ends only grow.
        self._ends: dict[int, int] = {}

    def _look(self) -> dict[int, int]:
        """Return the next entry after the last one that may be read, by ledger id."""
        for ledger_id in self._options.ledger_ids:
            if ledger_id in self._closed:
                continue
            metadata = self._read_metadata(ledger_id)
            if metadata.is_closed:
                self._closed[ledger_id] = self._ends[ledger_id] = metadata.last_entry_id + 1
            else:
                confirmed = self._access.confirmed(ledger_id).last_add_confirmed + 1
                self._ends[ledger_id] = max(self._ends.get(ledger_id, 0), confirmed)
        return {ledger_id: self._ends[ledger_id] for ledger_id in self._options.ledger_ids}

    def _read_metadata(self, ledger_id: int) -> LedgerMetadata:
        try:
            metadata = self._metadata[ledger_id] = self._access.metadata(ledger_id)
        except NoSuchLedgerError as error:
            raise StartGoneError(
                f"ledger {ledger_id} does not exist (any more): check the options ledgers and metadataUri; if it was "
                "deleted, start a new query (new checkpoint location) without it"
            ) from error
        return metadata

    def bound(self, *, is_start: bool) -> Offset:
        """Return the offset that the starting or ending option means now."""
        bounds = self._options.starting if is_start else self._options.ending
        ends = self._look()
        return encode_ledger_offsets({i: _entry_of(bounds[str(i)], i, end) for i, end in ends.items()})

    def end(self) -> Offset:
        """Return the offset after everything that may be read now."""
        return encode_ledger_offsets(self._look())

    def following(self, start: Offset, limits: Limits, target: Offset | None) -> Offset:
        """Return the end of the next micro-batch; see `Subject`."""
        position = self._decode(start)
        ends = self._look()
        if target is not None:
            wanted = self._decode(target)
            ends = {i: min(end, wanted.get(i, end)) for i, end in ends.items()}
        # A LAC that was seen once counts, also when fewer bookies answer now.
        ends = {i: max(end, position.get(i, 0)) for i, end in ends.items()}
        return encode_ledger_offsets(cut_ledgers(position, ends, limits, self._length_at))

    def _length_at(self, ledger_id: int, entry_id: int) -> int:
        """Return the payload bytes of a ledger up to an entry (`plan.LengthAt`)."""
        metadata = self._metadata.get(ledger_id) or self._read_metadata(ledger_id)
        if metadata.is_closed and entry_id == metadata.last_entry_id:
            return metadata.length
        return self._access.read(ledger_id, entry_id, entry_id)[0].length

    def partitions(self, start: Offset, end: Offset) -> list[LedgerPartition]:
        """Return the input partitions of [start, end); see `Subject`."""
        first, last = self._decode(start), self._decode(end)
        moved = [i for i in last if first.get(i, 0) < last[i]]
        sizes = {i: self._entry_bytes(i, last[i]) for i in moved}
        ranges: list[EntryRange] = split_ledgers(first, last, sizes, self._options.partition_count_min)
        metadata = {i: self._metadata[i] for i in moved}
        addresses = self._access.addresses(_bookies(metadata)) if moved else {}
        return [
            LedgerPartition(
                part.ledger_id,
                part.first_entry_id,
                part.last_entry_id,
                0,
                0,
                _stripped(metadata[part.ledger_id]),
                addresses,
                str(self._options.rows),
            )
            for part in ranges
        ]

    def backlog(self, offset: Offset) -> Backlog:
        """Return what waits behind an offset; plain ledgers know no time."""
        position = self._decode(offset)
        waiting = {i: (position.get(i, 0), end) for i, end in self._look().items() if end > position.get(i, 0)}
        byte_count = sum(
            self._length_at(i, end - 1) - (self._length_at(i, first - 1) if first else 0)
            for i, (first, end) in waiting.items()
        )
        return Backlog(sum(end - first for first, end in waiting.values()), byte_count, None)

    def losses(self) -> list[dict[str, Any]]:
        """Return what was skipped: nothing."""
        return []

    def _entry_bytes(self, ledger_id: int, end: int) -> int:
        """Return the mean size of an entry, from the length that the last one carries."""
        return self._length_at(ledger_id, end - 1) // end

    def _decode(self, offset: Offset) -> dict[int, int]:
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


def _bookies(metadata: dict[int, LedgerMetadata]) -> frozenset[str]:
    """Return the ids of all bookies of the ledgers; for look-ups, the order does not matter."""
    return frozenset(b for found in metadata.values() for segment in found.segments for b in segment.bookies)
