"""Rows that are cut out of what a client sends, as it comes: what is not a whole row yet waits. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from rsm_spark.sql.limits import VALUE_BYTES_MAX
from rsm_spark.sql.pg.faults import TOO_LARGE, PgFault

BAD_COPY: Final = "22P04"
ROW_BYTES_MAX: Final = 2 * VALUE_BYTES_MAX
_SMALL_BYTES: Final = 8 * 1024


class CutRows(ABC):
    """Holds the bytes of a row that is not whole.

    Args:
        row: What a row is called in messages.
        held_bytes_max: Bytes that are held.

    Attributes:
        count: Rows that were cut.

    """

    def __init__(self, row: str, held_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._called = row
        self._held_bytes_max = held_bytes_max
        self._left = b""
        self._more = bytearray()  # That came since, and was not looked at.
        self.count = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of a row that is not whole."""
        return len(self._left) + len(self._more)

    def feed(self, content: bytes, *, is_last: bool = False) -> Iterator[list[bytes | None]]:
        """Iterate over the rows that are whole now.

        Args:
            content: What came.
            is_last: Nothing comes any more.

        Raises:
            PgFault: It is no row, or is too long.

        """
        self._more += content
        # A long row that comes byte by byte is not read anew for each.
        if is_last or len(self._left) < _SMALL_BYTES or len(self._more) >= len(self._left) // 2:
            text = self._left + bytes(self._more)
            self._left = b""
            self._more.clear()
            yield from self._cut(text, is_last=is_last)
        if self.held_bytes > self._held_bytes_max:
            raise PgFault(TOO_LARGE, f"{self._called} {self.count + 1} has more than {ROW_BYTES_MAX} bytes")

    @abstractmethod
    def _cut(self, text: bytes, *, is_last: bool) -> Iterator[list[bytes | None]]:
        """Iterate over the rows of a text, count them, and leave what is not whole in `_left`."""
