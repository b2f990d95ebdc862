"""Entries that a bookie reports of a ledger, read from the packed form (see `ledger.core.bookie_entry_list`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from ledger.errors import RemoteProtocolError
from ledger.replication.core.fragments import Share

_HEAD: Final = struct.Struct(">ii")
_HEADER_BYTES: Final = 64
_GROUP: Final = struct.Struct(">qqii")


class HeldEntries(msgspec.Struct, frozen=True):
    """Runs of entries, as groups of equal ones.

    Attributes:
        groups: (start of the first run, start of the last run, entries of a run, distance of two starts or 0 for a
            single run), ascending.

    """

    groups: tuple[tuple[int, int, int, int], ...] = ()

    def missing(self, share: Share) -> Iterator[int]:
        """Yield the entries of a share that are not held, ascending; computed as they are asked for."""
        for first, last in self.gaps(share):
            yield from share.between(first, last)

    def gaps(self, share: Share) -> Iterator[tuple[int, int]]:
        """Yield (first, last), ascending, of stretches of which no entry of the share is held."""
        wanted = share.first_entry_id
        for first, last in self._covered(share):
            if last < wanted:
                continue
            if first > wanted:
                yield wanted, first - 1
            wanted = last + 1
        if wanted <= share.last_entry_id:
            yield wanted, share.last_entry_id

    def _covered(self, share: Share) -> Iterator[tuple[int, int]]:
        """Yield (first, last), ascending by first, of stretches of which every entry of the share is held."""
        stripe = share.quorum.ensemble_size
        for first, last_start, size, period in self.groups:
            if first > share.last_entry_id:
                return
            if period == 0 or size >= period or (period == stripe and _is_whole_stripe(share, first, size)):
                yield first, last_start + size - 1
                continue
            skipped = max(0, share.first_entry_id - first - size + 1) // period
            for start in range(first + skipped * period, min(last_start, share.last_entry_id) + 1, period):
                yield start, start + size - 1


def _is_whole_stripe(share: Share, first: int, size: int) -> bool:
    """Return whether a run from `first` is all that the share has between two of its gaps."""
    size_stripe, size_run = share.quorum.ensemble_size, share.quorum.write_quorum
    held = sum((share.position - entry_id) % size_stripe < size_run for entry_id in range(first, first + size))
    return held == size_run


NOTHING_HELD: Final = HeldEntries()
"""Entries of a ledger that the bookie does not know, or of which it lost an unknown part."""


def unpack_held_entries(packed: bytes) -> HeldEntries:
    """Read a bookie's answer.

    Raises:
        RemoteProtocolError: It is not in the packed form.

    """
    if len(packed) < _HEADER_BYTES:
        raise RemoteProtocolError(f"a list of entries is cut short: {len(packed)} bytes, its header has 64")
    version, count = _HEAD.unpack_from(packed)
    if version != 0 or len(packed) != _HEADER_BYTES + count * _GROUP.size:
        raise RemoteProtocolError(f"a list of entries of version {version} has {count} groups in {len(packed)} bytes")
    groups = tuple(_GROUP.iter_unpack(packed[_HEADER_BYTES:]))
    end = 0
    for first, last_start, size, period in groups:
        if first < end or last_start < first or size < 1 or period < 0 or (period == 0 and last_start != first):
            raise RemoteProtocolError(
                f"a list of entries has a group from {first} to {last_start} of {size} every {period}, behind {end}"
            )
        end = last_start + size
    return HeldEntries(groups)
