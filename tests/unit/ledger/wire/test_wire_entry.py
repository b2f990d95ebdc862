"""Entries are what was sealed, or a clear error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.entry import Entry
from ledger.core.metadata import DigestType
from ledger.errors import DigestError, EntryTooLargeError
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import PAYLOAD_BYTES_MAX, check_payload, seal, seal_lac, unseal, unseal_lac
from tests.unit.ledger.entry_header import entry_header

SIZES = {DigestType.CRC32C: 4, DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.DUMMY: 0}
protecting = st.sampled_from([DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC])


@given(st.sampled_from(list(DigestType)), st.binary(max_size=100), st.integers(0, 2**62))
def test_an_entry_survives_a_round_trip(digest_type: DigestType, payload: bytes, entry_id: int) -> None:
    digest = Digest(digest_type, b"pw")
    body = seal(3, entry_id, entry_id - 1, 1000, payload, digest)
    assert len(body) == 32 + SIZES[digest_type] + len(payload)
    assert unseal(body, digest, ledger_id=3, entry_id=entry_id) == Entry(entry_id, entry_id - 1, 1000, payload)
    assert entry_header(body).length == 1000


@given(protecting, st.binary(min_size=1, max_size=50), st.integers(0, 2**31), st.integers(1, 255))
def test_a_changed_byte_fails_the_digest(digest_type: DigestType, payload: bytes, place: int, flip: int) -> None:
    digest = Digest(digest_type)
    body = bytearray(seal(3, 4, 3, 10, payload, digest))
    index = place % len(body)
    if digest_type == DigestType.CRC32 and 32 <= index < 36:
        index = 36  # the upper half of the 8 bytes is compared too, but take one that carries the sum
    body[index] ^= flip
    with pytest.raises(DigestError):
        unseal(bytes(body), digest, ledger_id=3, entry_id=4)


@given(protecting, st.integers(0, 60))
def test_an_entry_that_is_cut_fails(digest_type: DigestType, cut: int) -> None:
    digest = Digest(digest_type)
    body = seal(3, 4, 3, 10, b"payload of it", digest)
    with pytest.raises(DigestError):
        unseal(body[: cut % len(body)], digest, ledger_id=3, entry_id=4)


def test_another_entry_than_the_one_asked_for_is_refused() -> None:
    digest = Digest(DigestType.CRC32C)
    body = seal(3, 4, 3, 10, b"x", digest)
    with pytest.raises(DigestError, match="asked for entry 5"):
        unseal(body, digest, ledger_id=3, entry_id=5)
    with pytest.raises(DigestError, match="of ledger 2"):
        unseal(body, digest, ledger_id=2, entry_id=None)


def test_hmac_depends_on_the_password() -> None:
    body = seal(3, 4, 3, 10, b"x", Digest(DigestType.HMAC, b"one"))
    with pytest.raises(DigestError):
        unseal(body, Digest(DigestType.HMAC, b"two"), ledger_id=3, entry_id=4)


def test_digests_are_the_known_values() -> None:
    """CRC-32C and CRC-32 of "123456789" are the check values of their definitions."""
    assert Digest(DigestType.CRC32C).compute(b"1234", b"56789").hex() == "e3069283"
    assert Digest(DigestType.CRC32).compute(b"1234", b"56789").hex() == "00000000cbf43926"
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"  # SHA-1 of "ledger"


@given(st.sampled_from(list(DigestType)), st.integers(-1, 2**62))
def test_an_explicit_lac_survives_a_round_trip(digest_type: DigestType, lac: int) -> None:
    digest = Digest(digest_type, b"pw")
    assert unseal_lac(seal_lac(9, lac, digest), digest, ledger_id=9) == lac


@pytest.mark.parametrize("cut", range(20))
def test_an_explicit_lac_that_is_cut_or_of_another_ledger_fails(cut: int) -> None:
    digest = Digest(DigestType.CRC32C)
    body = seal_lac(9, 5, digest)
    with pytest.raises(DigestError):
        unseal_lac(body[:cut], digest, ledger_id=9)
    with pytest.raises(DigestError):
        unseal_lac(body, digest, ledger_id=8)


def test_a_payload_over_the_limit_says_what_fits() -> None:
    check_payload(bytes(PAYLOAD_BYTES_MAX), 1)
    with pytest.raises(EntryTooLargeError, match=str(PAYLOAD_BYTES_MAX)):
        check_payload(bytes(PAYLOAD_BYTES_MAX + 1), 1)
