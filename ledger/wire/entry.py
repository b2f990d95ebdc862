"""An entry as it lies on the wire and on disk, and the body of an explicit LAC.

    entry          ledger id (8), entry id (8), LAC (8), length (8), digest (0-20), payload
    explicit LAC   ledger id (8), LAC (8), digest over those 16 bytes

All integers are big-endian and signed. `length` counts the payload bytes of the ledger up to and including
this entry. The digest covers the 32-byte header, then the payload.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable
from itertools import count
from typing import Final

from crc32c import crc32c

from ledger.core.entry import Entry
from ledger.core.entry_block import EntryBlock
from ledger.core.metadata import DigestType
from ledger.errors import DigestError, EntryTooLargeError
from ledger.wire.digests import Digest
from ledger.wire.frames import FRAME_BYTES_MAX

ENTRY_HEADER_BYTES: Final = 32
PAYLOAD_BYTES_MAX: Final = FRAME_BYTES_MAX - 256
"""The rest of the frame is for the packet's header, the entry's header and the longest digest."""

_HEADER: Final = struct.Struct(">qqqq")
_CRC_HEADER: Final = struct.Struct(">qqqqI")
_pack_header: Final = _HEADER.pack
_pack_crc: Final = struct.Struct(">I").pack
_LAC: Final = struct.Struct(">qq")


def check_payload(payload: bytes | memoryview, ledger_id: int) -> None:
    """Refuse a payload that does not fit one frame, before anything is changed.

    Raises:
        EntryTooLargeError: It is longer than `PAYLOAD_BYTES_MAX`.

    """
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise EntryTooLargeError(
            f"cannot append {len(payload)} bytes to ledger {ledger_id}: an entry holds at most "
            f"{PAYLOAD_BYTES_MAX} bytes; split the payload",
            ledger_id=ledger_id,
        )


def seal(
    ledger_id: int,
    entry_id: int,
    last_add_confirmed: int,
    length: int,
    payload: bytes | memoryview,
    digest: Digest,
) -> bytes:
    """Return the bytes of an entry: header, digest, payload."""
    header = _HEADER.pack(ledger_id, entry_id, last_add_confirmed, length)
    return b"".join((header, digest.compute(header, payload), payload))


def seals(
    digest: Digest,
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    lengths: Iterable[int],
    payloads: Iterable[bytes],
) -> list[bytes]:
    """Return what stands before the payloads of entries with consecutive ids: header and digest of each.

    Args:
        digest: The ledger's digest.
        ledger_id: The ledger.
        first_entry_id: Entry id of the first payload; the others follow.
        last_add_confirmed: For every header.
        lengths: Cumulative payload bytes of the ledger, one per payload.
        payloads: What the application appends.

    """
    compute = None if digest.type == DigestType.CRC32C else digest.compute  # the usual case, quicker
    sealed: list[bytes] = []
    entry_id = first_entry_id
    for payload, length in zip(payloads, lengths, strict=True):
        header = _pack_header(ledger_id, entry_id, last_add_confirmed, length)
        sealed.append(
            header + (_pack_crc(crc32c(payload, crc32c(header))) if compute is None else compute(header, payload))
        )
        entry_id += 1
    return sealed


def unseal(body: bytes | memoryview, digest: Digest, *, ledger_id: int, entry_id: int | None) -> Entry:
    """Check an entry that a bookie sent and return what it holds.

    Args:
        body: The entry's bytes.
        digest: The ledger's digest.
        ledger_id: The ledger that was asked for.
        entry_id: The entry that was asked for; None takes any (a read of "the last one").

    Raises:
        DigestError: It is cut short, fails the digest, or is another entry than the one asked for.

    """
    if digest.type == DigestType.CRC32C and len(body) >= _CRC_HEADER.size:  # the usual case, quicker
        found_ledger, found_entry, last_add_confirmed, length, crc = _CRC_HEADER.unpack_from(body)
        payload = bytes(body[_CRC_HEADER.size :])
        is_asked_for = found_ledger == ledger_id and (entry_id is None or found_entry == entry_id)
        if is_asked_for and crc32c(payload, crc32c(body[:ENTRY_HEADER_BYTES])) == crc:
            return Entry(found_entry, last_add_confirmed, length, payload)
    payload_start = ENTRY_HEADER_BYTES + digest.size
    if len(body) < payload_start:
        raise DigestError(
            f"entry {entry_id} of ledger {ledger_id} is cut short: {len(body)} bytes", ledger_id=ledger_id
        )
    view = memoryview(body)
    header = view[:ENTRY_HEADER_BYTES]
    payload = bytes(view[payload_start:])
    if not hmac.compare_digest(digest.compute(header, payload), view[ENTRY_HEADER_BYTES:payload_start]):
        raise DigestError(
            f"entry {entry_id} of ledger {ledger_id} fails its {digest.type.name} digest", ledger_id=ledger_id
        )
    found_ledger, found_entry, last_add_confirmed, length = _HEADER.unpack(header)
    if found_ledger != ledger_id or (entry_id is not None and found_entry != entry_id):
        raise DigestError(
            f"asked for entry {entry_id} of ledger {ledger_id}, got entry {found_entry} of {found_ledger}",
            ledger_id=ledger_id,
        )
    return Entry(found_entry, last_add_confirmed, length, payload)


def unseal_run(
    bodies: Iterable[bytes | memoryview], digest: Digest, *, ledger_id: int, first_entry_id: int, stride: int = 1
) -> tuple[list[Entry], DigestError | None]:
    """Check entries that a bookie sent in one answer, `stride` apart, from `first_entry_id` on.

    Returns:
        The entries before the first one that is damaged, and what is wrong with that one; None if all are whole.

    """
    entries: list[Entry] = []
    append = entries.append
    if digest.type != DigestType.CRC32C:
        try:
            for entry_id, body in zip(count(first_entry_id, stride), bodies, strict=False):
                append(unseal(body, digest, ledger_id=ledger_id, entry_id=entry_id))
        except DigestError as error:
            return entries, error
        return entries, None
    unpack = _CRC_HEADER.unpack_from
    for entry_id, body in zip(count(first_entry_id, stride), bodies, strict=False):
        if len(body) >= _CRC_HEADER.size:
            found_ledger, found_entry, last_add_confirmed, length, crc = unpack(body)
            payload = bytes(body[_CRC_HEADER.size :])
            if (
                found_entry == entry_id
                and found_ledger == ledger_id
                and crc32c(payload, crc32c(body[:ENTRY_HEADER_BYTES])) == crc
            ):
                append(Entry(entry_id, last_add_confirmed, length, payload))
                continue
        try:  # for its message
            append(unseal(body, digest, ledger_id=ledger_id, entry_id=entry_id))
        except DigestError as error:
            return entries, error
    return entries, None


def unseal_block(
    bodies: Iterable[bytes | memoryview], digest: Digest, *, ledger_id: int, first_entry_id: int, stride: int = 1
) -> tuple[EntryBlock, DigestError | None]:
    """Do as `unseal_run`, but make no object of an entry but its payload; the block's entries are `stride` apart.

    Returns:
        The entries before the first one that is damaged, and what is wrong with that one; None if all are whole.

    """
    if digest.type != DigestType.CRC32C:
        run, error = unseal_run(bodies, digest, ledger_id=ledger_id, first_entry_id=first_entry_id, stride=stride)
        return EntryBlock.of(run) if run else EntryBlock(first_entry_id, (), ()), error
    payloads: list[bytes] = []
    lengths: list[int] = []
    take, take_length = payloads.append, lengths.append
    unpack, payload_start = _CRC_HEADER.unpack_from, _CRC_HEADER.size
    entry_id = first_entry_id
    for body in bodies:
        if len(body) >= payload_start:
            found_ledger, found_entry, _, length, crc = unpack(body)
            # Bytes, not a slice: slices are objects that the garbage collector follows.
            payload = bytes(body[payload_start:])
            if (
                found_entry == entry_id
                and found_ledger == ledger_id
                and crc32c(payload, crc32c(body[:ENTRY_HEADER_BYTES])) == crc
            ):
                take(payload)
                take_length(length)
                entry_id += stride
                continue
        try:  # for its message
            unseal(body, digest, ledger_id=ledger_id, entry_id=entry_id)
        except DigestError as error:
            return EntryBlock(first_entry_id, payloads, lengths), error
        raise AssertionError("a digest that fails once fails again")
    return EntryBlock(first_entry_id, payloads, lengths), None


def seal_lac(ledger_id: int, last_add_confirmed: int, digest: Digest) -> bytes:
    """Return the body of an explicit LAC."""
    header = _LAC.pack(ledger_id, last_add_confirmed)
    return header + digest.compute(header)


def unseal_lac(body: bytes | memoryview, digest: Digest, *, ledger_id: int) -> int:
    """Check an explicit LAC and return it.

    Raises:
        DigestError: It is cut short, fails the digest, or belongs to another ledger.

    """
    header = bytes(body[: _LAC.size])
    expected = digest.compute(header) if len(header) == _LAC.size else None
    if expected is None or not hmac.compare_digest(expected, bytes(body[_LAC.size : _LAC.size + digest.size])):
        raise DigestError(f"the explicit LAC of ledger {ledger_id} fails its digest", ledger_id=ledger_id)
    found_ledger, last_add_confirmed = _LAC.unpack(header)
    if found_ledger != ledger_id:
        raise DigestError(
            f"asked for the explicit LAC of ledger {ledger_id}, got that of {found_ledger}", ledger_id=ledger_id
        )
    return int(last_add_confirmed)
