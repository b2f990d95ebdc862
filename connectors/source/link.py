"""Checks that entries are of one log and follow each other: log id, revisions, prefix hash. A block of them at a time.

What can be compared for a whole block is; only a block in which something is wrong is gone through entry by entry, for
the place and the reason. The hash of every entry is computed, whatever the query asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from connectors.source.seals import LedgerSeals
from ledger.core.entry_block import EntryBlock
from rsm_spark.core.envelope import HEADER_BYTES, Envelope, decode_envelope, entry_hash
from rsm_spark.core.seal import ForeignEntryError
from rsm_spark.errors import CorruptLogError, ForkedLogError

_HEAD: Final = np.dtype(
    [
        ("kind", ">u8"),
        ("log_id", ">u8", (2,)),
        ("epoch", ">i8"),
        ("first", ">i8"),
        ("confirmed", ">i8"),
        ("logged_ms", ">i8"),
        ("count", ">u4"),
        ("zero", ">u4"),
        ("prefix", "V32"),
    ]
)
assert _HEAD.itemsize == HEADER_BYTES
# Magic, format 1 or 2 (sealed), codec 1, no compression; the flags behind them do not count.
_KIND: Final = np.uint64(int.from_bytes(b"RSM1\x01\x01\x00\x00", "big"))
_SEALED_KIND: Final = np.uint64(int.from_bytes(b"RSM1\x02\x01\x00\x00", "big"))
_KIND_MASK: Final = np.uint64(0xFFFF_FFFF_FFFF_FF00)


class BlockHeads(NamedTuple):
    """Heads of a block's entries from their envelopes, one column per field.

    Attributes:
        first_revisions: Of each entry's first record, or of the next one if it holds none.
        record_counts: Records of each.
        epochs: Of the leaders that proposed them.
        logged_ms: Logged times.
        hashes: The prefix hash after each.
        errors: Place in the block -> why its envelope cannot be read; 0 stands in the columns above then.

    """

    first_revisions: NDArray[np.int64]
    record_counts: NDArray[np.int64]
    epochs: NDArray[np.int64]
    logged_ms: NDArray[np.int64]
    hashes: list[bytes]
    errors: dict[int, str]


class LogLink:
    """Follows the entries of one ledger of a log.

    The first entry's own prefix hash is taken as it is: the range before it is somebody else's.

    Args:
        log: Name of the log.
        log_id: Its id.
        ledger_id: The ledger.
        keeps_bad: Whether an entry without a readable envelope is told as an error of its own, not raised. The hash
            chain goes through it all the same; only the revisions after it are taken as they are.
        seals: What is known of the ledger's entries.

    """

    __slots__ = ("_hash", "_keeps_bad", "_ledger_id", "_log", "_log_id", "_revision", "_seals")

    def __init__(
        self,
        log: str,
        log_id: bytes,
        ledger_id: int,
        *,
        keeps_bad: bool = False,
        seals: LedgerSeals = LedgerSeals(),  # noqa: B008 - frozen
    ) -> None:
        self._seals = seals
        self._log = log
        self._log_id = log_id
        self._ledger_id = ledger_id
        self._keeps_bad = keeps_bad
        self._hash: bytes | None = None
        self._revision: int | None = None

    def place(self, entry_id: int) -> str:
        """Say where an entry is, for errors."""
        return f"log {self._log}: ledger {self._ledger_id} entry {entry_id}"

    def follow(self, block: EntryBlock) -> BlockHeads:
        """Return what the envelopes of the next entries say.

        Raises:
            CorruptLogError: One is no entry of this log (`ForeignEntryError`), or revisions have a gap.
            ForkedLogError: One does not continue the entry before it.

        """
        payloads = block.payloads
        hashes = self._hashes(block)
        if min(map(len, payloads)) >= HEADER_BYTES:
            heads = np.frombuffer(b"".join([payload[:HEADER_BYTES] for payload in payloads]), _HEAD)
            firsts, counts = heads["first"].astype(np.int64), heads["count"].astype(np.int64)
            if self._is_sound(heads, firsts, counts, hashes):
                self._hash, self._revision = hashes[-1], int(firsts[-1] + counts[-1])
                times = heads["logged_ms"].astype(np.int64)
                return BlockHeads(firsts, counts, heads["epoch"].astype(np.int64), times, hashes, {})
        return self._follow_slowly(block, hashes)

    def _hashes(self, block: EntryBlock) -> list[bytes]:
        if not self._seals.is_sealed and not self._seals.mac_keys:
            return [sha256(payload).digest() for payload in block.payloads]
        hashes: list[bytes] = []
        for entry_id, payload in enumerate(block.payloads, block.first_entry_id):
            try:
                hashes.append(self._seals.entry_hash(payload))
            except ForeignEntryError as error:
                raise ForeignEntryError(f"{self.place(entry_id)}: {error}") from None
        return hashes

    def _is_sound(
        self, heads: NDArray[Any], firsts: NDArray[np.int64], counts: NDArray[np.int64], hashes: list[bytes]
    ) -> bool:
        ends = firsts + counts
        kinds = heads["kind"] & _KIND_MASK
        own_id = np.frombuffer(self._log_id, ">u8")
        # Each entry names the hash of the one before it.
        named = heads["prefix"].tobytes()
        return bool(
            ((kinds == _KIND) | (kinds == _SEALED_KIND)).all()
            and (heads["log_id"] == own_id).all()
            and (ends[:-1] == firsts[1:]).all()
            and (self._revision is None or firsts[0] == self._revision)
            and named[32:] == b"".join(hashes[:-1])
            and (self._hash is None or named[:32] == self._hash)
        )

    def _follow_slowly(self, block: EntryBlock, hashes: list[bytes]) -> BlockHeads:
        """Go through a block in which something is wrong."""
        errors: dict[int, str] = {}
        rows: list[tuple[int, int, int, int]] = []
        for place, payload in enumerate(block.payloads):
            entry_id = block.first_entry_id + place
            try:
                envelope = decode_envelope(payload)
            except CorruptLogError as error:
                said = f"{self.place(entry_id)}: {error}"
                if not self._keeps_bad:
                    raise CorruptLogError(said) from error
                errors[place] = said
                rows.append((0, 0, 0, 0))
                self._hash, self._revision = entry_hash(payload), None
                continue
            self._follow_one(entry_id, envelope)
            self._hash = hashes[place]
            self._revision = envelope.last_revision + 1
            rows.append((envelope.first_revision, envelope.record_count, envelope.leader_epoch, envelope.logged_ms))
        return BlockHeads(*_columns(rows), hashes, errors)

    def _follow_one(self, entry_id: int, envelope: Envelope) -> None:
        if envelope.log_id != self._log_id:
            raise CorruptLogError(
                f"{self.place(entry_id)} belongs to log {envelope.log_id.hex()}, not to {self._log_id.hex()}"
            )
        if self._hash is not None and envelope.prefix_hash != self._hash:
            raise ForkedLogError(
                f"{self.place(entry_id)} does not continue the entry before it: the prefix hash differs"
            )
        if self._revision is not None and envelope.first_revision != self._revision:
            raise CorruptLogError(
                f"{self.place(entry_id)} begins with record {envelope.first_revision}, {self._revision} is next: "
                "records are missing"
            )


def _columns(
    rows: Sequence[tuple[int, int, int, int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    table = np.array(rows, dtype=np.int64)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]
