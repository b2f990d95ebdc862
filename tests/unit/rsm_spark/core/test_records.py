"""Records as msgpack."""

from __future__ import annotations

import msgspec
import pytest

from rsm_spark.core.records import CommandHead, Record, decode_records, encode_records, pack
from rsm_spark.errors import CorruptLogError

RECORDS = [
    Record(16, CommandHead(b"s" * 16, 1, 0, 2, b"reply"), ("key", 5)),
    Record(17, None, (b"key", None, 1.5, True)),
    Record(1, None, ()),
]


def test_records_are_read_back() -> None:
    assert decode_records(encode_records(RECORDS)) == RECORDS
    assert decode_records(memoryview(encode_records(RECORDS))) == RECORDS


def test_form_is_an_array_of_arrays_for_whoever_reads_without_this_code() -> None:
    plain = msgspec.msgpack.decode(encode_records(RECORDS))
    assert plain[0] == [16, [b"s" * 16, 1, 0, 2, b"reply"], ["key", 5]]
    assert plain[2] == [1, None, []]


@pytest.mark.parametrize("body", [b"", b"\x91\x01", b"\xc1", b"\x91\x93\x10\xc0\xc0", encode_records(RECORDS)[:-1]])
def test_bytes_that_are_no_records_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptLogError, match="no array of records"):
        decode_records(body)


def test_rows_are_packed_canonically() -> None:
    assert pack(("k", 1)) == b"\x92\xa1k\x01"
