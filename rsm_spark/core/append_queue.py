"""Queue of what is to be appended to a plain log, and composition of its entries.

1. All records of one append are in one entry: they are in the log together, or none of them is.
2. An entry takes what waits, oldest first, as far as it fits; while few are on their way it takes less, so that the
   next one is made while the first travels. So what was appended while entries were on their way travels together.
3. An append has an outcome exactly once: its last position when its entry is confirmed, else an error.
4. In a log with producers a note of all of them stands among the first records of each ledger, and behind every
   `NOTE_BYTES` or so. The writer trims only while the present ledger holds one. So whoever writes next finds the newest
   note by reading backward, not far, and nothing that is trimmed is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rsm_spark.core.batching import Batch
from rsm_spark.core.envelope import Envelope
from rsm_spark.core.plain_log import (
    RECORD_BYTES_MAX,
    RECORD_OVERHEAD,
    TXID_MAX,
    LogEndedError,
    PlainLogError,
    RecordTooLargeError,
    TransactionIdError,
    WrittenEnd,
    appended_records,
    encode_entry,
    ended_record,
    produced_records,
    resumed_record,
)
from rsm_spark.core.producers import ProducedRange, ProducerTable, RecordSource
from rsm_spark.core.records import KernelRecord, pack
from rsm_spark.core.seal import EntryKey
from rsm_spark.core.state import StateTip

WriterRecord = tuple[int, tuple[Any, ...]]
"""Type and fields of a record of a writer, as `WriterTable.judge` gives it."""

_RECORDS_MAX = 65_536

NOTE_BYTES = 8 * 1024 * 1024
"""Bytes of entries behind which the producers are noted again; or so many times those of the note."""
_NOTE_TIMES = 8


class PendingRecords:
    """Records that are appended together.

    Args:
        payloads: Of the records, at least one; none for the end mark.
        keys: One for each.
        txid: Their transaction id; of several ones the last.
        ticket: Of who waits; the shell's own.
        source: Whose they are; None = a program's that has opened the log as its writer.
        marks: Records of a writer, type and fields, that stand right before them; with marks there may be no records.
        txids: That of each; None = all have one.

    Attributes:
        size: Bytes that they take in an entry, at most.
        last_position: Of its last record, once it is in an entry.

    """

    __slots__ = ("keys", "last_position", "marks", "payloads", "size", "source", "ticket", "txid", "txids")

    def __init__(
        self,
        payloads: tuple[bytes, ...],
        keys: tuple[bytes | None, ...],
        txid: int,
        ticket: Any,
        source: RecordSource | None = None,
        marks: Sequence[WriterRecord] = (),
        txids: Sequence[int] | None = None,
    ) -> None:
        self.txids = txids
        self.payloads = payloads
        self.keys = keys
        self.txid = txid
        self.ticket = ticket
        self.source = source
        self.marks = marks
        if len(payloads) == 1:  # As most are.
            self.size = len(payloads[0]) + len(keys[0] or b"") + RECORD_OVERHEAD
        else:
            self.size = sum(map(len, payloads)) + sum(len(key or b"") for key in keys)
            self.size += RECORD_OVERHEAD * len(payloads)
        if source is not None:
            self.size += 4 * len(source.producer) * 2 + 4 * len(source.owner) + 2 * RECORD_OVERHEAD
        if marks:
            self.size += len(pack(marks)) + (len(marks) + 1) * RECORD_OVERHEAD
        self.last_position = 0


class AppendBatch(Batch, frozen=True):
    """An entry of a plain log, and the appends that it holds; `submissions` is empty."""

    appends: tuple[PendingRecords, ...] = ()


class AppendQueue:
    """Appends that are in no entry yet, of one writer.

    Args:
        log: Name of the log, for errors.
        end: What the log's last entry says.

    Attributes:
        size: Bytes that wait.
        txid: The last transaction id, of what waits too.
        is_ended: The end mark is in the log, or waits.
        last: Taken last; None = none was.

    """

    def __init__(self, log: str, end: WrittenEnd) -> None:
        self.size = 0
        self.txid = end.txid
        self.is_ended = end.is_ended
        self.last: PendingRecords | None = None
        self._log = log
        self._waiting: deque[PendingRecords] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        txid: int | None,
        make_ticket: Callable[[], Any],
        source: RecordSource | None = None,
        marks: Sequence[WriterRecord] = (),
        txids: Sequence[int] | None = None,
    ) -> PendingRecords:
        """Take records, all of one transaction id or each of its own; on an error nothing is taken.

        Args:
            payloads: Of the records.
            keys: One for each.
            txid: None = the same as of the record before.
            make_ticket: Called once it is certain that they are taken.
            source: Whose they are.
            marks: Records of a writer that go with them; there may be marks alone.
            txids: Transaction id of each, rising or equal, in place of `txid`.

        Raises:
            LogEndedError: The end mark was appended.
            TransactionIdError: It is below the last one, or out of range.
            RecordTooLargeError: They do not fit an entry.
            PlainLogError: There are none, or too many, or not as many keys.

        """
        if self.is_ended:
            raise LogEndedError(f"log {self._log}: it has its end mark: nothing can be appended any more")
        if txids is not None:
            txid = self._last_of(txids, len(payloads))
        txid = self.txid if txid is None else txid
        if not self.txid <= txid <= TXID_MAX:
            raise TransactionIdError(
                f"log {self._log}: transaction id {txid}: it must be {self.txid}, which is the last one, or above, and "
                f"at most {TXID_MAX}"
            )
        if not (payloads or marks) or len(payloads) > _RECORDS_MAX:
            raise PlainLogError(f"log {self._log}: {len(payloads)} records in one append: 1 to {_RECORDS_MAX} go")
        if len(keys) != len(payloads):
            raise PlainLogError(f"log {self._log}: {len(payloads)} records and {len(keys)} keys: one for each")
        own = None if txids is None else tuple(txids)
        found = PendingRecords(tuple(payloads), tuple(keys), txid, None, source, marks, own)
        if found.size - RECORD_OVERHEAD > RECORD_BYTES_MAX:
            raise RecordTooLargeError(
                f"log {self._log}: {found.size:,} bytes in one append, {RECORD_BYTES_MAX:,} go: make several of it, or "
                "put what is large elsewhere and append where it is"
            )
        found.ticket = make_ticket()
        self._take(found)
        self.txid = txid
        return found

    def _last_of(self, txids: Sequence[int], record_count: int) -> int | None:
        """Return the last one of transaction ids that may follow, one for each record; None = there are none."""
        if len(txids) != record_count:
            raise PlainLogError(f"log {self._log}: {record_count} records, {len(txids)} transaction ids: one for each")
        last = self.txid
        for number, txid in enumerate(txids):
            if not last <= txid <= TXID_MAX:
                raise TransactionIdError(
                    f"log {self._log}: transaction id {txid} of record {number} of this append: it must be {last}, "
                    f"which is that of the record before it, or above, and at most {TXID_MAX}"
                )
            last = txid
        return last if txids else None

    def add_end(self, make_ticket: Callable[[], Any]) -> PendingRecords:
        """Take the end mark.

        Raises:
            LogEndedError: It was appended before.

        """
        if self.is_ended:
            raise LogEndedError(f"log {self._log}: it has its end mark already")
        found = PendingRecords((), (), self.txid, make_ticket())
        self._take(found)
        self.is_ended = True
        return found

    def _take(self, append: PendingRecords) -> None:
        self._waiting.append(append)
        self.last = append
        self.size += append.size

    def take(self, own_bytes: int = 0, bytes_max: int = RECORD_BYTES_MAX) -> list[PendingRecords]:
        """Take out what one entry holds.

        Args:
            own_bytes: What stands in it already, beside records of a few bytes.
            bytes_max: Take no more, unless it is the oldest append alone.

        """
        taken: list[PendingRecords] = []
        room, count = RECORD_BYTES_MAX + RECORD_OVERHEAD - own_bytes, 0
        unwanted = room - bytes_max
        waiting = self._waiting
        while waiting and waiting[0].size <= room and count < _RECORDS_MAX:
            append = waiting.popleft()
            room -= append.size
            count += len(append.payloads)
            taken.append(append)
            if waiting and room - waiting[0].size < unwanted:
                break
        self.size -= sum([append.size for append in taken])
        return taken

    def take_all(self) -> list[PendingRecords]:
        """Take out all that is in no entry."""
        taken, self._waiting, self.size = list(self._waiting), deque(), 0
        return taken


class AppendComposer:
    """Composes the entries of one writer, each behind the one before, confirmed or not.

    Args:
        log_id: uuid of the log, 16 bytes.
        leader_epoch: Of the own claim.
        tip: Where the log ends.
        end: What its last entry says.
        entry_key: Seals every entry; None = the log has no key.
        producers: Of the log as it ends; None = it has none, by its format level.

    Attributes:
        tip: Where the log ends once all that was composed is confirmed.
        end: What the last entry says then.
        producers: The same of the producers.
        noted_bytes: Of the last note.
        is_note_wanted: The next entry notes them, whether that is due or not.

    """

    def __init__(
        self,
        log_id: bytes,
        leader_epoch: int,
        tip: StateTip,
        end: WrittenEnd,
        entry_key: EntryKey | None,
        producers: ProducerTable | None = None,
    ) -> None:
        self.tip = tip
        self.end = end
        self.producers = producers
        self.noted_bytes = 0
        self.is_note_wanted = False
        self._unnoted_bytes = 0  # Of entries, since the producers were noted.
        self._log_id = log_id
        self._leader_epoch = leader_epoch
        self._entry_key = entry_key

    def note(self, now_ms: int, ttl_ms: int) -> bytes | None:
        """Return the producers, to be noted in the next entry; None = the log has none.

        Args:
            now_ms: Logged time.
            ttl_ms: Who has appended nothing for so long is left out.

        """
        if self.producers is None:
            return None
        self.producers.forget_idle(now_ms, ttl_ms)
        note = self.producers.rows()
        self.is_note_wanted = False
        self._unnoted_bytes, self.noted_bytes = 0, len(note)
        return note

    def writer_records(self) -> list[tuple[object, ...]]:
        """Return the rows of all writers, which follow a note, and what says that they end."""
        if self.producers is None:
            return []
        kind = int(KernelRecord.WRITER_MARKED)
        rows: list[tuple[object, ...]] = [(kind, None, fields) for fields in self.producers.writers.all_fields()]
        return [*rows, resumed_record(self.end.txid)] if rows and not self.end.is_ended else rows

    @property
    def is_note_due(self) -> bool:
        """True if the next entry has to note the producers."""
        if self.producers is None:
            return False
        return self.is_note_wanted or self._unnoted_bytes >= max(NOTE_BYTES, _NOTE_TIMES * self.noted_bytes)

    def compose(
        self,
        own: Sequence[tuple[object, ...]],
        appends: Sequence[PendingRecords],
        *,
        confirmed_revision: int,
        logged_ms: int,
    ) -> AppendBatch:
        """Compose the next entry.

        Args:
            own: Records of the writer's own, which stand first.
            appends: What follows.
            confirmed_revision: The highest revision that is confirmed now.
            logged_ms: Of the entry; one before that of the entry before counts as that.

        """
        tip = self.tip
        first_revision = tip.revision + 1
        records = list(own)
        txid, is_ended = self.end
        is_chunk_open = False  # The last records are rows of a writer's batch: what is nobody's may not follow them.
        for append in appends:
            payloads = append.payloads
            if append.marks:
                self._fold_marks(append.marks, records, first_revision)
            elif payloads and append.source is None and is_chunk_open:
                records.append(resumed_record(txid))
            is_chunk_open = bool(append.marks and payloads)
            if payloads:
                if append.source is not None:
                    records += self._produced(append, first_revision + len(records), max(logged_ms, tip.logged_ms))
                txid = append.txid
                records += appended_records(first_revision + len(records), append.keys, txid, payloads, append.txids)
            elif append.marks:
                records.append(resumed_record(txid))
            else:
                records.append(ended_record(txid))
                is_ended = True
            append.last_position = tip.revision + len(records)
        self.end = WrittenEnd(txid, is_ended)
        key = self._entry_key
        envelope = Envelope(
            self._log_id,
            self._leader_epoch,
            first_revision,
            confirmed_revision,
            max(logged_ms, tip.logged_ms),
            len(records),
            tip.prefix_hash,
            b"" if key is None else key.key_id,
        )
        payload, prefix_hash = encode_entry(envelope, records, key)
        self.tip = StateTip(
            envelope.last_revision, prefix_hash, self._leader_epoch, envelope.logged_ms, key is not None
        )
        self._unnoted_bytes += len(payload)
        return AppendBatch(payload, prefix_hash, envelope, (), (), tuple(appends))

    def _fold_marks(
        self, marks: Sequence[WriterRecord], records: list[tuple[object, ...]], first_revision: int
    ) -> None:
        """Add the records that tell of a writer's batch, and fold them."""
        assert self.producers is not None, "a log without producers takes no marks"
        for kind, fields in marks:
            self.producers.writers.fold(kind, fields, first_revision + len(records))
            records.append((kind, None, fields))

    def _produced(self, append: PendingRecords, revision: int, logged_ms: int) -> list[tuple[object, ...]]:
        """Return the records that tell whose the next ones are, and fold them."""
        source, table = append.source, self.producers
        assert source is not None
        assert table is not None, "a log without producers takes none"
        producer, owner, sequence = source
        count = len(append.payloads)
        is_new = table.get(producer) is None
        told = produced_records(producer, owner if is_new else None, sequence, count)
        if is_new:
            table.open(producer, owner, logged_ms)
        table.add(producer, ProducedRange(sequence, count, revision + len(told) - 1 + count), logged_ms)
        return told
