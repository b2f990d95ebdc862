"""Seals of a ledger's entries, for tasks: the keys that check them, and the entries that are set aside.

Tasks get the keys that check the seals of this one log, derived on the driver; never the log's key itself.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from ledger.core.entry_block import EntryBlock
from rsm_spark.core.envelope import HEADER_BYTES, SEAL_BYTES
from rsm_spark.core.seal import ForeignEntryError, KeyRing
from rsm_spark.errors import CorruptLogError

_SEALED = 2
_FORMAT_AT = 4
_MAC_BYTES = 32


class LedgerSeals(msgspec.Struct, frozen=True):
    """Seals of one ledger.

    Attributes:
        is_sealed: The ledger has a key: every entry of it is sealed.
        mac_keys: By key id; empty = seals are not checked.
        aside: Entries that are passed over: SHA-256 of the payload, hex, by entry id.

    """

    is_sealed: bool = False
    mac_keys: dict[bytes, bytes] = {}
    aside: dict[int, str] = {}

    @classmethod
    def of(cls, key_id: str, aside: dict[int, str], keys: KeyRing | None, log_id: bytes) -> LedgerSeals:
        """Return what is known of a ledger, given its key id in the chain."""
        mac_keys: dict[bytes, bytes] = {}
        for one in keys.ids if keys is not None else ():
            found = keys.entry_key(bytes.fromhex(one), log_id) if keys is not None else None
            if found is not None:
                mac_keys[found.key_id] = found.mac_key
        return cls(bool(key_id), mac_keys, aside)

    def entry_hash(self, payload: bytes | memoryview) -> bytes:
        """Return the prefix hash after an entry.

        Raises:
            ForeignEntryError: No leader of the log wrote it.

        """
        is_sealed = len(payload) >= HEADER_BYTES + SEAL_BYTES and payload[_FORMAT_AT] == _SEALED
        if not is_sealed:
            if self.is_sealed:
                raise ForeignEntryError("it has no seal, as every entry of this ledger has")
            return sha256(payload).digest()
        if not self.mac_keys:
            return sha256(payload).digest()
        end = len(payload) - _MAC_BYTES
        key_id = bytes(payload[len(payload) - SEAL_BYTES : end])
        mac_key = self.mac_keys.get(key_id)
        if mac_key is None:
            raise ForeignEntryError(f"it is sealed with key {key_id.hex()}, which the file of logKeyFile lacks")
        hasher = sha256(payload[:end])
        if not hmac.compare_digest(hmac.digest(mac_key, hasher.digest(), "sha256"), bytes(payload[end:])):
            raise ForeignEntryError(f"its seal is not that of key {key_id.hex()}")
        hasher.update(payload[end:])
        return hasher.digest()


def leave_out(blocks: Iterable[EntryBlock], aside: dict[int, str], place: str) -> Iterator[EntryBlock]:
    """Yield blocks without the entries that are set aside.

    Raises:
        CorruptLogError: Another entry lies at such a place than the one that was set aside.

    """
    for block in blocks:
        first = 0
        for entry_id in sorted(aside):
            at = entry_id - block.first_entry_id
            if not 0 <= at < len(block):
                continue
            if sha256(block.payloads[at]).hexdigest() != aside[entry_id]:
                raise CorruptLogError(f"{place} entry {entry_id} is set aside, but another entry lies there now")
            if at > first:
                yield _cut(block, first, at)
            first = at + 1
        if first == 0:
            yield block
        elif first < len(block):
            yield _cut(block, first, len(block))


def _cut(block: EntryBlock, first: int, end: int) -> EntryBlock:
    return EntryBlock(block.first_entry_id + first, block.payloads[first:end], block.lengths[first:end])
