"""Keys are derived, seals are checked, and both are the same in every version: they are in logs."""

from __future__ import annotations

import hmac
from hashlib import sha256

import pytest

from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.envelope import HEADER_BYTES, SEAL_BYTES, Envelope, body_of, decode_envelope, encode_envelope
from rsm_spark.core.seal import (
    ForeignEntryError,
    KeyRing,
    LogKey,
    UnknownKeyError,
    check_seal,
    checkpoint_message,
    key_id_of,
    ledger_password,
)
from rsm_spark.errors import CorruptLogError

SECRET = bytes(range(32))
KEY = LogKey(key_id_of(SECRET), SECRET)
RING = KeyRing([KEY])
LOG_ID = b"l" * 16


def _sealed(body: bytes = b"\x90", log_id: bytes = LOG_ID) -> tuple[bytes, bytes]:
    key = RING.entry_key(bytes.fromhex(KEY.key_id), log_id)
    assert key is not None
    head = encode_envelope(Envelope(log_id, 1, 1, 0, 0, 0, bytes(32), key.key_id), body)
    payload = bytearray(b"skipped" + head)
    prefix_hash = key.finish(payload, len(b"skipped"))
    return bytes(payload[len(b"skipped") :]), prefix_hash


def test_seal_is_what_the_module_says_it_is() -> None:
    payload, prefix_hash = _sealed()
    mac_key = hmac.digest(SECRET, b"rsm-spark entry\0" + LOG_ID, "sha256")
    assert payload[-40:-32].hex() == KEY.key_id == sha256(b"rsm-spark key id\0" + SECRET).hexdigest()[:16]
    assert payload[-32:] == hmac.digest(mac_key, sha256(payload[:-32]).digest(), "sha256")
    assert prefix_hash == sha256(payload).digest()
    assert (payload[4], len(payload)) == (2, HEADER_BYTES + 1 + SEAL_BYTES)


def test_a_sealed_entry_is_read_and_its_seal_is_no_part_of_its_records() -> None:
    payload, prefix_hash = _sealed(b"\x91\x05")
    envelope = decode_envelope(memoryview(payload))
    assert envelope.key_id.hex() == KEY.key_id
    assert body_of(payload) == b"\x91\x05"
    assert body_of(encode_envelope(Envelope(LOG_ID, 1, 1, 0, 0, 0, bytes(32)), b"\x91\x05")) == b"\x91\x05"
    assert check_seal(payload, envelope, RING, LOG_ID) == prefix_hash
    with pytest.raises(CorruptLogError, match="shorter than an envelope and its seal"):
        decode_envelope(payload[: HEADER_BYTES + SEAL_BYTES - 1])


@pytest.mark.parametrize("place", [0, 5, 30, HEADER_BYTES, HEADER_BYTES + 1, -33, -1])
def test_any_changed_byte_is_noticed(place: int) -> None:
    payload, _ = _sealed()
    envelope = decode_envelope(payload)
    changed = bytearray(payload)
    changed[place] ^= 0x40
    with pytest.raises(ForeignEntryError):
        check_seal(bytes(changed), envelope, RING, LOG_ID)


def test_a_seal_of_another_log_or_of_another_key_is_none() -> None:
    payload, _ = _sealed(log_id=b"m" * 16)
    with pytest.raises(ForeignEntryError, match="not that of key"):
        check_seal(payload, decode_envelope(payload), RING, LOG_ID)
    other = KeyRing([LogKey(key_id_of(b"x" * 32), b"x" * 32)])
    with pytest.raises(UnknownKeyError, match="give it the newest one"):
        check_seal(payload, decode_envelope(payload), other, b"m" * 16)


def test_a_ring_has_the_newest_key_last_and_takes_others() -> None:
    ring = KeyRing([KEY])
    newer = LogKey(key_id_of(b"x" * 32), b"x" * 32)
    before = ring.entry_key(bytes.fromhex(KEY.key_id), LOG_ID)
    ring.replace([KEY, newer])
    assert (ring.newest, ring.ids) == (newer, (KEY.key_id, newer.key_id))
    assert ring.entry_key(bytes.fromhex(KEY.key_id), LOG_ID) == before
    assert ring.entry_key(bytes(8), LOG_ID) is None
    assert not ring.refresh()
    assert SECRET.hex() not in repr(KEY)


def test_a_ledgers_password_is_that_of_its_key_or_of_before() -> None:
    ledgers = (
        ChainLedger(1, 0, 1, 1),
        ChainLedger(2, 0, 2, 5, key_id=KEY.key_id),
        ChainLedger(3, 0, 2, 9, key_id="ab"),
    )
    chain = LogChain("6c" * 16, ledgers=ledgers, key_id=KEY.key_id)
    assert ledger_password(chain, 1, RING, b"old") == b"old"
    password = ledger_password(chain, 2, RING, b"old")
    assert password == RING.password(KEY.key_id, "6c" * 16) != RING.password(KEY.key_id, "6d" * 16)
    assert ledger_password(chain, 2, None, b"old") is None
    with pytest.raises(UnknownKeyError):
        ledger_password(chain, 3, RING, b"old")


def test_a_shared_ledger_has_the_password_of_the_log_that_made_it() -> None:
    key_id, other = RING.newest.key_id, "cd" * 16
    ledgers = (ChainLedger(1, 0, 1, 1, key_id=key_id, log_id=other), ChainLedger(2, 0, 1, 1, key_id=key_id))
    chain = LogChain("ab" * 16, ledgers=ledgers)
    assert ledger_password(chain, 1, RING, b"") == RING.password(key_id, other)
    assert ledger_password(chain, 2, RING, b"") == RING.password(key_id, chain.log_id)


def test_a_checkpoints_message_names_everything_in_its_place() -> None:
    said = checkpoint_message(LOG_ID, 7, b"h" * 32, b"d" * 16, 3, 99)
    head = b"rsm-spark checkpoint\0" + LOG_ID + (7).to_bytes(8, "big")
    assert said == head + b"h" * 32 + b"d" * 16 + (3).to_bytes(8, "big") + (99).to_bytes(8, "big")
