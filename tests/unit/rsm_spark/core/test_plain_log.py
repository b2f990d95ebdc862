"""Records of plain logs: what is written is read, and what is none is refused."""

from __future__ import annotations

import msgspec
import pytest

from rsm_spark.core.chain import LogChain
from rsm_spark.core.description_rules import check_description
from rsm_spark.core.envelope import Envelope, decode_envelope, entry_hash, root_hash
from rsm_spark.core.plain_log import (
    PLAIN_LOG,
    LogRecord,
    PlainRecord,
    WrittenEnd,
    appended_records,
    decode_entry,
    encode_entry,
    ended_record,
    first_records,
    first_txid,
    ledger_records,
    written_end,
)
from rsm_spark.core.seal import EntryKey, KeyRing, LogKey, check_seal
from rsm_spark.errors import CorruptLogError

_LOG_ID = bytes(range(16))


def _entry(records: list[tuple[object, ...]], first: int = 1, key: EntryKey | None = None) -> bytes:
    envelope = Envelope(
        _LOG_ID, 3, first, first - 1, 1234, len(records), root_hash(_LOG_ID), key.key_id if key is not None else b""
    )
    payload, prefix_hash = encode_entry(envelope, records, key)
    assert prefix_hash == entry_hash(payload)
    return payload


def test_the_description_keeps_the_rules_of_every_machine() -> None:
    check_description(PLAIN_LOG)


def test_records_are_read_as_they_were_appended() -> None:
    payload = _entry([*appended_records(7, [None], 5, [b"one"]), *appended_records(8, [b"k"], 9, [b""])], first=7)
    assert decode_entry(payload) == (
        [LogRecord(7, 5, None, b"one", 1234), LogRecord(8, 9, b"k", b"", 1234)],
        False,
    )
    assert (first_txid(payload), written_end(payload)) == (5, WrittenEnd(9))


def test_what_a_writer_and_a_ledger_begin_with_tells_where_the_log_stands() -> None:
    for end in (WrittenEnd(), WrittenEnd(9), WrittenEnd(9, is_ended=True)):
        for records in (first_records("w", "i", end), ledger_records(end)):
            payload = _entry(records)
            assert written_end(payload) == end
            assert first_txid(payload) == end.txid
            assert decode_entry(payload) == ([], end.is_ended)


def test_the_end_mark_is_told() -> None:
    payload = _entry([*appended_records(1, [None], 2, [b"last"]), ended_record(2)])
    records, is_ended = decode_entry(payload)
    assert ([record.payload for record in records], is_ended) == ([b"last"], True)
    assert written_end(payload) == WrittenEnd(2, is_ended=True)


def test_an_entry_is_sealed_with_the_key() -> None:
    ring = KeyRing([LogKey("00" * 8, bytes(32))])
    payload = _entry(appended_records(1, [None], 0, [b"x"]), key=ring.entry_key(bytes(8), _LOG_ID))
    assert check_seal(payload, decode_envelope(payload), ring, _LOG_ID) == entry_hash(payload)
    assert decode_entry(payload)[0][0].payload == b"x"


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (appended_records(2, [None], 0, [b"x"]), "says that it is at position 2"),
        ([(int(PlainRecord.APPENDED), None, (1, None, 0))], "has 3 fields"),
    ],
)
def test_what_is_no_entry_of_a_plain_log_is_refused(records: list[tuple[object, ...]], said: str) -> None:
    with pytest.raises(CorruptLogError, match=said):
        decode_entry(_entry(records))


def test_an_entry_of_a_machine_says_nothing_about_the_end() -> None:
    for ask in (written_end, first_txid):
        with pytest.raises(CorruptLogError, match="no record of a plain log"):
            ask(_entry([(4, None, ())]))


def test_an_entry_that_names_more_records_than_it_holds_is_refused() -> None:
    payload = _entry(appended_records(1, [None], 0, [b"x"]))
    envelope = msgspec.structs.replace(decode_envelope(payload), record_count=2)
    with pytest.raises(CorruptLogError, match="names 2 records and holds 1"):
        decode_entry(encode_entry(envelope, appended_records(1, [None], 0, [b"x"]), None)[0])


def test_a_chain_needs_nothing_new() -> None:
    assert LogChain("00" * 16).format == 1
