"""The first 32 bytes of an entry, as no digest has checked them yet."""

from __future__ import annotations

import struct
from typing import NamedTuple


class EntryHeader(NamedTuple):
    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int


def entry_header(body: bytes | memoryview) -> EntryHeader:
    return EntryHeader(*struct.unpack_from(">qqqq", body))
