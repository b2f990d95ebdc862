"""Queue of what is to be appended to a plain log, and composition of its entries.

1. All records of one append are in one entry: they are in the log together, or none of them is.
2. An entry takes what waits, oldest first, as far as it fits. So what was appended while entries were on their way
   travels together.
3. An append has an outcome exactly once: its last position when its entry is confirmed, else an error.
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
)
from rsm_spark.core.seal import EntryKey
from rsm_spark.core.state import StateTip

Appended = tuple[bytes | None, int, bytes]
"""Key, transaction id and payload of a record."""

_RECORDS_MAX = 65_536


class PendingRecords:
    """Records that are appended together.

    Args:
        records: At least one; none for the end mark.
        ticket: Of who waits; the shell's own.

    Attributes:
        size: Bytes that they take in an entry, at most.
        last_position: Of its last record, once it is in an entry.

    """

    def __init__(self, records: Sequence[Appended], ticket: Any) -> None:
        self.records = records
        self.ticket = ticket
        self.size = sum(len(payload) + len(key or b"") + RECORD_OVERHEAD for key, _, payload in records)
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
        self, payloads: Sequence[bytes], keys: Sequence[bytes | None], txid: int | None, make_ticket: Callable[[], Any]
    ) -> PendingRecords:
        """Take records, all of one transaction id; on an error nothing is taken.

        Args:
            payloads: Of the records.
            keys: One for each.
            txid: None = the same as of the record before.
            make_ticket: Called once it is certain that they are taken.

        Raises:
            LogEndedError: The end mark was appended.
            TransactionIdError: It is below the last one, or out of range.
            RecordTooLargeError: They do not fit an entry.
            PlainLogError: There are none, or too many.

        """
        if self.is_ended:
            raise LogEndedError(f"log {self._log}: it has its end mark: nothing can be appended any more")
        txid = self.txid if txid is None else txid
        if not self.txid <= txid <= TXID_MAX:
            raise TransactionIdError(
                f"log {self._log}: transaction id {txid}: it must be {self.txid}, which is the last one, or above, and "
                f"at most {TXID_MAX}"
            )
        if not 0 < len(payloads) <= _RECORDS_MAX:
            raise PlainLogError(f"log {self._log}: {len(payloads)} records in one append: 1 to {_RECORDS_MAX} go")
        found = PendingRecords([(key, txid, payload) for key, payload in zip(keys, payloads, strict=True)], None)
        if found.size - RECORD_OVERHEAD > RECORD_BYTES_MAX:
            raise RecordTooLargeError(
                f"log {self._log}: {found.size:,} bytes in one append, {RECORD_BYTES_MAX:,} go: make several of it, or "
                "put what is large elsewhere and append where it is"
            )
        found.ticket = make_ticket()
        self._take(found)
        self.txid = txid
        return found

    def add_end(self, make_ticket: Callable[[], Any]) -> PendingRecords:
        """Take the end mark.

        Raises:
            LogEndedError: It was appended before.

        """
        if self.is_ended:
            raise LogEndedError(f"log {self._log}: it has its end mark already")
        found = PendingRecords((), make_ticket())
        self._take(found)
        self.is_ended = True
        return found

    def _take(self, append: PendingRecords) -> None:
        self._waiting.append(append)
        self.last = append
        self.size += append.size

    def take(self) -> list[PendingRecords]:
        """Take out what one entry holds."""
        taken: list[PendingRecords] = []
        room, count = RECORD_BYTES_MAX + RECORD_OVERHEAD, 0
        waiting = self._waiting
        while waiting and waiting[0].size <= room and count < _RECORDS_MAX:
            append = waiting.popleft()
            room -= append.size
            count += len(append.records)
            taken.append(append)
            self.size -= append.size
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

    Attributes:
        tip: Where the log ends once all that was composed is confirmed.
        end: What the last entry says then.

    """

    def __init__(
        self, log_id: bytes, leader_epoch: int, tip: StateTip, end: WrittenEnd, entry_key: EntryKey | None
    ) -> None:
        self.tip = tip
        self.end = end
        self._log_id = log_id
        self._leader_epoch = leader_epoch
        self._entry_key = entry_key

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
        for append in appends:
            if append.records:
                records += appended_records(first_revision + len(records), append.records)
                self.end = WrittenEnd(append.records[-1][1])
            else:
                records.append(ended_record(self.end.txid))
                self.end = WrittenEnd(self.end.txid, is_ended=True)
            append.last_position = tip.revision + len(records)
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
        return AppendBatch(payload, prefix_hash, envelope, (), (), tuple(appends))
