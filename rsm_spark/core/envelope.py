"""The envelope of a log entry: a fixed header of 96 bytes, then the records, then the seal if the log has a key.

    bytes  field                 meaning
    0-3    magic                 ``RSM1``
    4      format                1 = no seal, 2 = sealed
    5      codec                 1 = msgpack records
    6      compression           0 = none
    7      flags                 0
    8-23   log_id                uuid of the log
    24-31  leader_epoch          of the leader that proposed it first
    32-39  first_revision        of its first record; of the next record if it has none
    40-47  confirmed_revision    the highest revision that the leader knew as committed when it proposed it
    48-55  logged_ms             logged time, never decreasing along the log
    56-59  record_count
    60-63  zero
    64-95  prefix_hash           H of the entry before it; H of the log id for the first

A sealed entry ends with 40 bytes more, see `rsm_spark.core.seal`: 8 bytes of key id and a MAC of 32 bytes over all
that stands before it.

Numbers are big-endian. H(log) = SHA-256(log id) before the first entry, H(entry) = SHA-256(its whole payload), which
holds the hash before it: so entries hash in parallel and link afterwards. Nothing in a payload names a place (ledger,
entry): an entry that is appended again keeps every byte.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from rsm_spark.errors import CorruptLogError

ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""Header and body of one entry; below the ledger's frame limit of 5 MiB."""

_HEADER = struct.Struct(">4sBBBB16sQQQQII32s")
_COUNT = struct.Struct(">I")
_COUNT_AT = 56
_MAGIC = b"RSM1"
_FORMAT = 1
_SEALED_FORMAT = 2
_FORMAT_AT = 4
_CODEC_MSGPACK = 1
HEADER_BYTES = _HEADER.size
KEY_ID_BYTES = 8
_MAC_BYTES = 32
SEAL_BYTES = KEY_ID_BYTES + _MAC_BYTES


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """Header of one entry; see the module for the fields. `key_id` is that of its seal, b"" if it has none."""

    log_id: bytes
    leader_epoch: int
    first_revision: int
    confirmed_revision: int
    logged_ms: int
    record_count: int
    prefix_hash: bytes
    key_id: bytes = b""

    @property
    def last_revision(self) -> int:
        """Revision of the last record; `first_revision` - 1 if there is none."""
        return self.first_revision + self.record_count - 1


def encode_envelope(envelope: Envelope, body: bytes) -> bytes:
    """Return the payload of an entry; that of a sealed one still lacks the seal."""
    header = _HEADER.pack(
        _MAGIC,
        _SEALED_FORMAT if envelope.key_id else _FORMAT,
        _CODEC_MSGPACK,
        0,
        0,
        envelope.log_id,
        envelope.leader_epoch,
        envelope.first_revision,
        envelope.confirmed_revision,
        envelope.logged_ms,
        envelope.record_count,
        0,
        envelope.prefix_hash,
    )
    return header + body


def decode_envelope(payload: bytes | memoryview) -> Envelope:
    """Return the header of an entry; see `body_of` for the rest. Whether a seal is right is not looked at.

    Raises:
        CorruptLogError: It is no envelope, or of a format that this version cannot read.

    """
    if len(payload) < HEADER_BYTES:
        raise CorruptLogError(f"entry of {len(payload)} bytes is shorter than an envelope ({HEADER_BYTES})")
    (
        magic,
        version,
        codec,
        compression,
        _flags,
        log_id,
        leader_epoch,
        first_revision,
        confirmed_revision,
        logged_ms,
        record_count,
        _zero,
        prefix_hash,
    ) = _HEADER.unpack_from(payload)
    if magic != _MAGIC:
        raise CorruptLogError(f"entry begins with {bytes(magic)!r}, not with {_MAGIC!r}: not an entry of a log")
    if version not in (_FORMAT, _SEALED_FORMAT) or (codec, compression) != (_CODEC_MSGPACK, 0):
        raise CorruptLogError(
            f"entry has format {version}, codec {codec}, compression {compression}; this version reads "
            f"formats {_FORMAT} and {_SEALED_FORMAT}, codec {_CODEC_MSGPACK}, compression 0: upgrade this process"
        )
    key_id = b""
    if version == _SEALED_FORMAT:
        if len(payload) < HEADER_BYTES + SEAL_BYTES:
            raise CorruptLogError(f"entry of {len(payload)} bytes is shorter than an envelope and its seal")
        key_id = bytes(payload[-SEAL_BYTES : len(payload) - _MAC_BYTES])
    return Envelope(
        log_id, leader_epoch, first_revision, confirmed_revision, logged_ms, record_count, prefix_hash, key_id
    )


def body_of(payload: bytes | memoryview) -> memoryview:
    """Return the records of an entry, encoded."""
    view = memoryview(payload)
    sealed = len(payload) > _FORMAT_AT and payload[_FORMAT_AT] == _SEALED_FORMAT
    return view[HEADER_BYTES : len(view) - SEAL_BYTES] if sealed else view[HEADER_BYTES:]


def bodies_of(payloads: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the records of many entries, each encoded; all of them have whole headers."""
    return [
        payload[HEADER_BYTES:-SEAL_BYTES] if payload[_FORMAT_AT] == _SEALED_FORMAT else payload[HEADER_BYTES:]
        for payload in payloads
    ]


def record_count_of(payload: bytes | memoryview) -> int:
    """Return how many records a whole entry holds, without decoding the rest of its header."""
    count: int = _COUNT.unpack_from(payload, _COUNT_AT)[0]
    return count


def root_hash(log_id: bytes) -> bytes:
    """Return the prefix hash before the first entry of a log."""
    return hashlib.sha256(log_id).digest()


def entry_hash(payload: bytes | memoryview) -> bytes:
    """Return the prefix hash after this entry."""
    return hashlib.sha256(payload).digest()
