"""The header of an entry."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.envelope import (
    HEADER_BYTES,
    Envelope,
    decode_envelope,
    encode_envelope,
    entry_hash,
    root_hash,
)
from rsm_spark.errors import CorruptLogError

_u64 = st.integers(0, 2**64 - 1)
_envelopes = st.builds(
    Envelope, st.binary(min_size=16, max_size=16), _u64, _u64, _u64, _u64, st.integers(0, 2**32 - 1),
    st.binary(min_size=32, max_size=32),
)  # fmt: skip
ENVELOPE = Envelope(b"i" * 16, 1, 2, 3, 4, 5, b"h" * 32)


@given(envelope=_envelopes, body=st.binary(max_size=20))
def test_header_is_read_back_from_bytes_and_views(envelope: Envelope, body: bytes) -> None:
    payload = encode_envelope(envelope, body)
    assert payload[HEADER_BYTES:] == body
    assert decode_envelope(payload) == decode_envelope(memoryview(payload)) == envelope


def test_layout_is_the_documented_one() -> None:
    payload = encode_envelope(ENVELOPE, b"")
    assert HEADER_BYTES == 96
    assert payload[:8] == b"RSM1\x01\x01\x00\x00"
    assert payload[8:24] == b"i" * 16
    assert [int.from_bytes(payload[at : at + 8], "big") for at in (24, 32, 40, 48)] == [1, 2, 3, 4]
    assert payload[56:64] == b"\0\0\0\5\0\0\0\0"
    assert payload[64:] == b"h" * 32


def test_last_revision_of_an_empty_entry_is_the_one_before() -> None:
    assert ENVELOPE.last_revision == 6
    assert Envelope(b"", 1, 2, 0, 0, 0, b"").last_revision == 1


@pytest.mark.parametrize(("position", "value", "message"), [
    (0, b"X", "not an entry of a log"), (4, b"\3", "upgrade"), (5, b"\2", "upgrade"), (6, b"\1", "upgrade"),
])  # fmt: skip
def test_entry_of_another_kind_is_refused(position: int, value: bytes, message: str) -> None:
    payload = bytearray(encode_envelope(ENVELOPE, b""))
    payload[position : position + 1] = value
    with pytest.raises(CorruptLogError, match=message):
        decode_envelope(bytes(payload))


def test_short_entry_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="shorter than an envelope"):
        decode_envelope(b"RSM1")


def test_hashes_are_plain_sha256() -> None:
    assert root_hash(b"x") == entry_hash(b"x") == hashlib.sha256(b"x").digest()
