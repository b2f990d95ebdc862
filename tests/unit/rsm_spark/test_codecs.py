"""Codecs alone: what they take, what they refuse."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import UsageError
from rsm_spark.codecs.aes_gcm import AesGcmCodec
from rsm_spark.codecs.deflate import DeflateCodec
from rsm_spark.codecs.framing import CodecError, PayloadCodec, decoded, encoded

KEY, OTHER = bytes(range(32)), bytes(32)
CODECS: list[PayloadCodec] = [AesGcmCodec([KEY]), AesGcmCodec([KEY], compresses=True), DeflateCodec()]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: str(codec.codec_id))
@given(plain=st.binary(max_size=2_000), place=st.binary(max_size=20))
def test_what_was_encoded_comes_back(codec: PayloadCodec, plain: bytes, place: bytes) -> None:
    assert decoded(codec, encoded(codec, plain, place), place) == plain


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: str(codec.codec_id))
@given(kept=st.binary(max_size=200), at=st.integers(0, 400), byte=st.integers(1, 255))
def test_nothing_but_codec_errors_comes_of_nonsense(codec: PayloadCodec, kept: bytes, at: int, byte: int) -> None:
    made = bytearray(encoded(codec, b"a value" * 20, b"place"))
    made[at % len(made)] ^= byte
    for value in (bytes(made), encoded(codec, b"", b"")[:6] + kept, encoded(codec, b"", b"")[: at % 6]):
        try:
            decoded(codec, value, b"place")
        except CodecError:
            pass


def test_an_encrypted_value_shows_nothing_and_opens_at_its_place_with_its_key_only() -> None:
    codec = AesGcmCodec([KEY])
    kept = encoded(codec, b"card 4711", b"map\0orders\0a")
    assert b"4711" not in kept
    assert kept != encoded(codec, b"card 4711", b"map\0orders\0a")
    with pytest.raises(CodecError, match="was changed, or belongs elsewhere"):
        decoded(codec, kept, b"map\0orders\0b")
    with pytest.raises(CodecError, match="which is not here"):
        decoded(AesGcmCodec([OTHER]), kept, b"map\0orders\0a")
    for place in range(len(kept)):
        changed = bytearray(kept)
        changed[place] ^= 1
        with pytest.raises(CodecError):
            decoded(codec, bytes(changed), b"map\0orders\0a")


def test_keys_change_with_an_overlap(tmp_path: Path) -> None:
    file = tmp_path / "payloads.key"
    file.write_text(f"# of 2026\n{KEY.hex()}\n")
    file.chmod(0o600)
    old = encoded(AesGcmCodec.from_file(file), b"old", b"")
    file.write_text(f"{OTHER.hex()}\n{KEY.hex()}\n")
    both = AesGcmCodec.from_file(file)
    assert decoded(both, old, b"") == b"old"
    new = encoded(both, b"new", b"")
    assert decoded(AesGcmCodec([OTHER]), new, b"") == b"new"


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (KEY.hex(), 0o644, "others may read it"),
        ("", 0o600, "64 hexadecimal digits"),
        (KEY.hex()[:-2], 0o600, "64 hexadecimal digits"),
        ("x" * 64, 0o600, "64 hexadecimal digits"),
    ],
)
def test_a_key_file_that_is_none_or_that_others_read_is_refused(text: str, mode: int, why: str, tmp_path: Path) -> None:
    file = tmp_path / "payloads.key"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(UsageError, match=why):
        AesGcmCodec.from_file(file)


def test_plain_values_are_taken_where_that_is_said() -> None:
    assert decoded(DeflateCodec(), b"plain", b"") == b"plain"
    assert decoded(AesGcmCodec([KEY], reads_plain=True), b"plain", b"") == b"plain"
    with pytest.raises(CodecError, match="takes encoded ones only"):
        decoded(AesGcmCodec([KEY]), b"plain", b"")
    with pytest.raises(CodecError, match="encoded by codec 1, this one is 2"):
        decoded(AesGcmCodec([KEY], reads_plain=True), encoded(DeflateCodec(), b"x", b""), b"")


def test_what_is_unpacked_is_bounded() -> None:
    codec = DeflateCodec(bytes_max=1_000_000)
    bomb = encoded(codec, b"", b"")[:6] + b"\1" + zlib.compress(bytes(50_000_000))
    with pytest.raises(CodecError, match="more than 1,000,000 bytes"):
        decoded(codec, bomb, b"")
    assert decoded(codec, encoded(codec, bytes(1_000_000), b""), b"") == bytes(1_000_000)
    assert len(encoded(codec, bytes(1_000_000), b"")) < 2_000
    noise = os.urandom(1_000)
    assert len(encoded(codec, noise, b"")) == 1_007
