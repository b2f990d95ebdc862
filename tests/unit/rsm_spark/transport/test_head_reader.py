"""Headers of calls: the short way says what hpack's decoder says, and leaves its table as that would."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.transport.head_reader import HeadReader
from rsm_spark.transport.http2_heads import RpcHead, head_of
from tests.sets import examples

_BYTES_MAX = 16 * 1024
_HEAD = [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/rsm.store.v1.Replica/Call"),
    (b":authority", b"127.0.0.1:4711"), (b"content-type", b"application/grpc"), (b"te", b"trailers"),
]  # fmt: skip
_TEXTS = st.text("abc-09", min_size=1, max_size=9).map(str.encode)
_FIELDS = st.one_of(
    st.sampled_from(_HEAD),
    st.tuples(st.just(b"grpc-timeout"), st.sampled_from([b"1S", b"29999963u", b"99m", b"never", b""])),
    st.tuples(st.just(b"authorization"), _TEXTS),
    st.tuples(_TEXTS, st.binary(max_size=300)),
    st.tuples(_TEXTS, st.just(b"x" * 2_000)),
)


class _Plain:
    """hpack's decoder alone."""

    def __init__(self) -> None:
        self.decoder = hpack.Decoder(max_header_list_size=_BYTES_MAX)

    def read(self, block: bytes) -> RpcHead:
        return head_of(self.decoder.decode(block, raw=True))


def _read(reader: HeadReader | _Plain, block: bytes) -> RpcHead | str:
    """Return what a block says; "" = it cannot be read."""
    try:
        return reader.read(block)
    except (hpack.HPACKError, UnicodeDecodeError):
        return ""


def _same(short: HeadReader, plain: _Plain, block: bytes) -> bool:
    """Read a block by both; return whether they can go on."""
    expected = _read(plain, block)
    assert _read(short, block) == expected
    if expected == "":
        return False
    tables = short._decoder.header_table, plain.decoder.header_table
    assert list(tables[0].dynamic_entries) == list(tables[1].dynamic_entries)
    return True


@given(st.lists(st.tuples(st.lists(_FIELDS, max_size=12), st.booleans(), st.booleans()), max_size=12))
@settings(max_examples=examples(150))
def test_what_a_caller_says_is_read_as_hpack_reads_it(
    calls: list[tuple[list[tuple[bytes, bytes]], bool, bool]],
) -> None:
    encoder = hpack.Encoder()
    short, plain = HeadReader(_BYTES_MAX), _Plain()
    for more, is_coded, is_secret in calls:
        fields = [(*field, is_secret) for field in (*_HEAD, *more)]
        if not _same(short, plain, encoder.encode(fields, huffman=is_coded)):
            return


@given(st.lists(st.binary(max_size=30) | st.lists(st.integers(0x40, 0xFF), max_size=20).map(bytes), max_size=8))
@settings(max_examples=examples(300))
def test_whatever_comes_is_read_or_refused_as_by_hpack(blocks: list[bytes]) -> None:
    encoder = hpack.Encoder()
    short, plain = HeadReader(_BYTES_MAX), _Plain()
    for block in (encoder.encode(_HEAD), *blocks):
        if not _same(short, plain, block):
            return


def test_calls_that_differ_by_their_time_limit_are_read_without_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, reader, plain = hpack.Encoder(), HeadReader(_BYTES_MAX), _Plain()
    whole = 0
    decode = reader._decoder.decode

    def counting(block: bytes, *, raw: bool) -> object:
        nonlocal whole
        whole += 1
        return decode(block, raw=raw)

    monkeypatch.setattr(reader._decoder, "decode", counting)
    for number in range(500):
        block = encoder.encode([*_HEAD, (b"grpc-timeout", b"%du" % (29_999_000 + number))])
        assert _same(reader, plain, block)
        unlimited = encoder.encode(_HEAD)
        assert _same(reader, plain, unlimited)
    assert whole < 30, "only where entries have left the table"


def test_entries_of_the_table_that_are_named_again_and_again_are_bounded() -> None:
    encoder, reader = hpack.Encoder(), HeadReader(_BYTES_MAX)
    reader.read(encoder.encode([*_HEAD, (b"x", b"y" * 1_000)]))
    with pytest.raises(hpack.OversizedHeaderListError):
        reader.read(bytes([0xBE]) * 60)
