"""Runs of plain reads of protocol v2 that memory can answer: one unpack, one look, two parts of an answer each.

Whatever is not plain ends the run and goes through `ledger.bookie.handlers`: a fence, an entry that is on disk or is
not held, the last entry, a ledger that is not in memory.
"""

from __future__ import annotations

import struct
from typing import Final

from ledger.bookie.responder import Responder
from ledger.storage.bookie_ledger import BookieLedger
from ledger.storage.disk import Buffer
from ledger.storage.entry_store import EntryStore
from ledger.storage.tail import JournalPlace
from ledger.wire.codes import V2_PROTOCOL_VERSION, V2Opcode

_FRAME: Final = struct.Struct(">IIqq")
_HEADER: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.READ_ENTRY << 16  # no flags
_PACKET_BYTES: Final = 20
_ANSWER_BYTES: Final = 24
_pack_head = struct.Struct(">IIIqq").pack
_RUN_BYTES_MAX: Final = 1 << 20
"""Bytes of answers in one run; the rest waits until they are written, so that a client that never reads is noticed."""


class ReadRunsV2:
    """See the module.

    Args:
        store: Where the entries are.

    """

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self.taken_count = 0

    def take(self, connection: Responder, chunk: bytes, start: int, end: int) -> int:
        """Answer the plain reads at the head of `chunk[start:end]`; return where the first other frame begins."""
        unpack, find, ledgers = _FRAME.unpack_from, self._store.find, self._store.ledgers
        parts: list[Buffer] = []
        ledger: BookieLedger | None = None
        current_id = -1
        byte_count = 0
        position, last_start = start, end - _FRAME.size
        while position <= last_start and byte_count < _RUN_BYTES_MAX:
            length, header, ledger_id, entry_id = unpack(chunk, position)
            if header != _HEADER or length != _PACKET_BYTES or entry_id < 0:
                break
            if ledger_id != current_id:
                current_id, ledger = ledger_id, ledgers.get(ledger_id)
            if ledger is None or ledger.is_deleted:
                break
            found = find(ledger_id, entry_id)
            if found is None or isinstance(found, JournalPlace):
                break
            size = len(found)
            parts += (_pack_head(_ANSWER_BYTES + size, _HEADER, 0, ledger_id, entry_id), found)
            byte_count += size
            position += _FRAME.size
        if parts:
            self.taken_count += len(parts) // 2
            connection.send_all(parts)
        return position
