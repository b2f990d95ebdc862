"""Blocks of segments that cannot be read any more: what they held is unknown here, and lies on other bookies."""

from __future__ import annotations

import logging

import msgspec

from ledger.storage.index import BlockRow

_LOGGER = logging.getLogger(__name__)
_COUNT_MAX = 10_000


class Damage(msgspec.Struct, frozen=True):
    """One block that is damaged.

    Attributes:
        row: Where it is, and which entries it held: some of `first_entry_id` to `last_entry_id`, both included.
        reason: What was seen.

    """

    row: BlockRow
    reason: str


class Damages:
    """Damages found since the start of the process, each block once; at most 10,000 are remembered.

    Reported from several threads: each operation is atomic.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], Damage] = {}

    def report(self, row: BlockRow, error: BaseException) -> None:
        """Take note of a block that could not be read."""
        key = (row.segment_id, row.byte_offset)
        if key in self._found or len(self._found) >= _COUNT_MAX:
            return
        self._found[key] = Damage(row, str(error))
        _LOGGER.error(
            "a block cannot be read: answering EIO for its entries until they are copied from other bookies",
            extra={
                "ledger": row.ledger_id,
                "first_entry": row.first_entry_id,
                "last_entry": row.last_entry_id,
                "reason": str(error),
            },
        )

    def found(self) -> list[Damage]:
        """Return what is damaged, in the order in which it was found."""
        return list(self._found.values())

    def forget(self, damage: Damage) -> None:
        """Drop what was repaired."""
        self._found.pop((damage.row.segment_id, damage.row.byte_offset), None)
