"""Files of bbolt: what is written is found again by a reader that knows the format alone."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.map.etcd.bolt_file import PAGE_BYTES, BoltWriter


class BoltReader:
    """Reads a file from its root on, and checks that keys rise and each page is reached once."""

    def __init__(self, text: bytes) -> None:
        assert len(text) % PAGE_BYTES == 0
        self.text = text
        self.seen: set[int] = {0, 1, 2}
        metas = [struct.unpack_from("<IIIIQQQQQQ", text, number * PAGE_BYTES + 16) for number in range(2)]
        for magic, version, page_bytes, _, _, _, free, pages, *_ in metas:
            assert (magic, version, page_bytes, free) == (0xED0CDAED, 2, PAGE_BYTES, 2)
            assert pages * PAGE_BYTES == len(text)
        assert metas[0][4] == metas[1][4]
        self.root = metas[1][4]

    def buckets(self) -> dict[bytes, list[tuple[bytes, bytes]]]:
        found = {}
        for name, value, kind in self.rows(self.root):
            assert kind == 1
            page, _ = struct.unpack("<QQ", value)
            rows = list(self.rows(page))
            assert all(kind == 0 for _, _, kind in rows)
            found[name] = [(key, value) for key, value, _ in rows]
        assert sorted(self.seen) == list(range(len(self.text) // PAGE_BYTES))
        return found

    def rows(self, page: int) -> Iterator[tuple[bytes, bytes, int]]:
        begin = page * PAGE_BYTES
        number, kind, count, more = struct.unpack_from("<QHHI", self.text, begin)
        assert number == page
        assert not self.seen & set(range(page, page + more + 1))
        self.seen |= set(range(page, page + more + 1))
        for at in range(count):
            head = begin + 16 + at * 16
            if kind == 2:
                row, place, key_bytes, value_bytes = struct.unpack_from("<IIII", self.text, head)
                key = self.text[head + place :][:key_bytes]
                assert head + place + key_bytes + value_bytes <= begin + (more + 1) * PAGE_BYTES
                yield key, self.text[head + place + key_bytes :][:value_bytes], row
            else:
                assert (kind, count > 1) == (1, True)
                place, key_bytes, below = struct.unpack_from("<IIQ", self.text, head)
                rows = list(self.rows(below))
                assert rows[0][0] == self.text[head + place :][:key_bytes]
                yield from rows


def written(buckets: dict[bytes, list[tuple[bytes, bytes]]]) -> bytes:
    file = io.BytesIO()
    writer = BoltWriter(file)
    for name, rows in buckets.items():
        writer.bucket(name, rows)
    assert writer.finish() == len(file.getvalue())
    return file.getvalue()


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 5_000])
@pytest.mark.parametrize("size", [0, 10, 1_500, 9_000])
def test_rows_are_found_again(count: int, size: int) -> None:
    rows = [(b"%06d" % n, b"%d" % n + b"v" * size) for n in range(min(count, 3_000_000 // (size + 1)))]
    buckets = {b"key": rows, b"meta": [(b"a", b"b")], b"empty": []}
    found = BoltReader(written(buckets)).buckets()
    assert found == buckets
    assert list(found) == sorted(buckets)


@settings(max_examples=50)
@given(st.dictionaries(st.binary(max_size=3_000), st.binary(max_size=6_000), max_size=40))
def test_rows_of_any_size_are_found_again(given_rows: dict[bytes, bytes]) -> None:
    rows = sorted(given_rows.items())
    assert BoltReader(written({b"key": rows})).buckets() == {b"key": rows}
