"""One write of the log chain at a time, by the rule of the held version.

The held version is the one that the own claim produced, then the one that each own write produced. A write that
failed, or whose reply was lost, is judged by reading the chain again (after `sync`):

    version = held                          it has not arrived, but still may: send the same bytes again
    version = held + 1, the bytes mine      done
    anything else                           somebody else leads: deposed

Never write from a version just read: between the two reads another leader may have confirmed entries.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class WriteVerdict(Enum):
    """Result of a write of the chain."""

    ARRIVED = "arrived"
    SEND_AGAIN = "send again"
    DEPOSED = "deposed"


class ChainWrite(msgspec.Struct, frozen=True):
    """A compare-and-set on its way.

    Attributes:
        value: Bytes of the whole chain.
        held_version: Version that it replaces.

    """

    value: bytes
    held_version: int

    def judge(self, value: bytes, version: int) -> WriteVerdict:
        """Say what became of this write, from what the chain holds now."""
        if version == self.held_version:
            return WriteVerdict.SEND_AGAIN
        if version == self.held_version + 1 and value == self.value:
            return WriteVerdict.ARRIVED
        return WriteVerdict.DEPOSED
