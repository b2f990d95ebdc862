"""An entry as readers see it, and what a bookie may answer instead of one."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry whose digest has been checked.

    Attributes:
        entry_id: 0-based.
        last_add_confirmed: Highest id that the writer had confirmed when it sent this entry: a floor.
        length: Payload bytes of the ledger up to and including this entry.
        payload: What the application appended.

    """

    entry_id: int
    last_add_confirmed: int
    length: int
    payload: bytes


class MissKind(Enum):
    """Reasons why a bookie did not give an entry. Only ABSENT is a no; everything else is "unknown"."""

    ABSENT = "absent"  # no such entry, or no such ledger: the bookie is certain
    CORRUPT = "corrupt"  # it sent bytes that fail the digest: it has, or had, something
    DENIED = "denied"  # it does not accept the password, or demands TLS or a log-in
    UNKNOWN = "unknown"  # no answer, an IO error, overload, limbo: it may hold the entry


class Miss(msgspec.Struct, frozen=True, gc=False):
    """A bookie's answer that is no entry, with what it said."""

    kind: MissKind
    reason: str


Answer: TypeAlias = Entry | Miss
