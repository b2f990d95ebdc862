"""What waits to be appended, and the entries that are made of it."""

from __future__ import annotations

import pytest

from rsm_spark.core.append_queue import AppendComposer, AppendQueue
from rsm_spark.core.envelope import ENTRY_BYTES_MAX, entry_hash, root_hash
from rsm_spark.core.plain_log import (
    RECORD_BYTES_MAX,
    TXID_MAX,
    LogEndedError,
    PlainLogError,
    RecordTooLargeError,
    TransactionIdError,
    WrittenEnd,
    decode_entry,
    first_records,
    written_end,
)
from rsm_spark.core.state import StateTip

_LOG_ID = bytes(16)


def _queue(end: WrittenEnd | None = None) -> AppendQueue:
    return AppendQueue("clicks", end or WrittenEnd())


def _add(queue: AppendQueue, *payloads: bytes, txid: int | None = None) -> None:
    queue.add(payloads, (None,) * len(payloads), txid, object)


def _composer() -> AppendComposer:
    return AppendComposer(_LOG_ID, 1, StateTip(0, root_hash(_LOG_ID), 0, 0), WrittenEnd(), None)


def test_an_entry_takes_all_that_waits_in_order() -> None:
    queue, composer = _queue(), _composer()
    for number in range(5):
        _add(queue, b"%d" % number, b"", txid=number)
    assert (len(queue), queue.txid) == (5, 4)
    batch = composer.compose((), queue.take(), confirmed_revision=0, logged_ms=7)
    assert (len(queue), queue.size) == (0, 0)
    assert [append.last_position for append in batch.appends] == [2, 4, 6, 8, 10]
    assert [record.txid for record in decode_entry(batch.payload)[0]] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert composer.end == WrittenEnd(4)


def test_entries_follow_each_other_confirmed_or_not() -> None:
    queue, composer = _queue(), _composer()
    first = composer.compose(first_records("w", "i", WrittenEnd()), (), confirmed_revision=0, logged_ms=7)
    _add(queue, b"a")
    second = composer.compose((), queue.take(), confirmed_revision=0, logged_ms=3)
    assert second.envelope.prefix_hash == first.prefix_hash == entry_hash(first.payload)
    assert (second.envelope.first_revision, second.envelope.confirmed_revision) == (4, 0)
    assert second.envelope.logged_ms == 7, "logged time never falls"
    assert composer.tip.revision == 4


def test_an_append_is_never_split_and_never_overtaken() -> None:
    queue = _queue()
    big = bytes(RECORD_BYTES_MAX // 2)
    _add(queue, big)
    _add(queue, big, b"with it")
    _add(queue, b"small")
    assert [len(append.payloads) for append in queue.take()] == [1]
    assert [len(append.payloads) for append in queue.take()] == [2, 1]


def test_an_entry_takes_no_more_than_it_is_to_but_always_something() -> None:
    queue = _queue()
    for number in range(5):
        _add(queue, b"%d" % number)
    _add(queue, bytes(1000))
    _add(queue, b"last")
    size = queue.size
    taken = [queue.take(0, 150), queue.take(0, 150), queue.take(0, 150), queue.take(0, 150), queue.take(0, 150)]
    assert [[append.payloads[0][:4] for append in one] for one in taken] == [
        [b"0", b"1"],
        [b"2", b"3"],
        [b"4"],
        [bytes(4)],
        [b"last"],
    ]
    assert (size, queue.size) == (sum(append.size for one in taken for append in one), 0)


def test_as_many_keys_as_payloads_are_taken() -> None:
    queue = _queue()
    with pytest.raises(PlainLogError, match="2 records and 1 keys"):
        queue.add((b"a", b"b"), (None,), None, object)
    assert (len(queue), queue.size) == (0, 0)


def test_each_record_may_have_a_transaction_id_of_its_own() -> None:
    queue, composer = _queue(WrittenEnd(5)), _composer()
    queue.add((b"a", b"b", b"c"), (None,) * 3, None, object, txids=[5, 9, 9])
    _add(queue, b"d")
    queue.add((b"e",), (b"k",), None, object, txids=(12,))
    assert queue.txid == 12
    batch = composer.compose((), queue.take(), confirmed_revision=0, logged_ms=7)
    assert [record.txid for record in decode_entry(batch.payload)[0]] == [5, 9, 9, 9, 12]
    assert composer.end == written_end(batch.payload) == WrittenEnd(12)


@pytest.mark.parametrize(
    ("txids", "error", "said"),
    [
        ([4, 9], TransactionIdError, "transaction id 4 of record 0 of this append: it must be 5"),
        ([7, 6], TransactionIdError, "transaction id 6 of record 1 of this append: it must be 7"),
        ([7, TXID_MAX + 1], TransactionIdError, f"at most {TXID_MAX}"),
        ([7], PlainLogError, "2 records, 1 transaction ids"),
    ],
)
def test_transaction_ids_that_fall_change_nothing(txids: list[int], error: type[PlainLogError], said: str) -> None:
    queue = _queue(WrittenEnd(5))
    with pytest.raises(error, match=said):
        queue.add((b"a", b"b"), (None, None), None, object, txids=txids)
    assert (len(queue), queue.size, queue.txid, queue.last) == (0, 0, 5, None)


def test_the_largest_append_fits_an_entry_with_all_that_begins_a_ledger() -> None:
    queue, composer = _queue(), _composer()
    _add(queue, bytes(RECORD_BYTES_MAX))
    batch = composer.compose(
        first_records("w" * 500, "i" * 32, WrittenEnd()), queue.take(), confirmed_revision=0, logged_ms=0
    )
    assert RECORD_BYTES_MAX < len(batch.payload) <= ENTRY_BYTES_MAX


@pytest.mark.parametrize(
    ("payloads", "txid", "error"),
    [
        ((b"x",), 4, TransactionIdError),
        ((b"x",), TXID_MAX + 1, TransactionIdError),
        ((bytes(RECORD_BYTES_MAX + 1),), None, RecordTooLargeError),
        ((), None, PlainLogError),
    ],
)
def test_what_cannot_be_appended_changes_nothing(
    payloads: tuple[bytes, ...], txid: int | None, error: type[PlainLogError]
) -> None:
    queue = _queue(WrittenEnd(5))
    with pytest.raises(error, match="log clicks"):
        _add(queue, *payloads, txid=txid)
    assert (len(queue), queue.size, queue.txid, queue.last) == (0, 0, 5, None)


def test_nothing_is_taken_behind_the_end_mark() -> None:
    queue, composer = _queue(), _composer()
    _add(queue, b"last", txid=3)
    queue.add_end(object)
    with pytest.raises(LogEndedError):
        _add(queue, b"more")
    with pytest.raises(LogEndedError):
        queue.add_end(object)
    batch = composer.compose((), queue.take(), confirmed_revision=0, logged_ms=0)
    assert written_end(batch.payload) == composer.end == WrittenEnd(3, is_ended=True)
    with pytest.raises(LogEndedError):
        _add(_queue(composer.end), b"more")


def test_all_that_waits_is_given_back_at_the_end() -> None:
    queue = _queue()
    _add(queue, b"a")
    _add(queue, b"b")
    assert len(queue.take_all()) == 2
    assert (len(queue), queue.size) == (0, 0)
