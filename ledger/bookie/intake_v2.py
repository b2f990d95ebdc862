"""Runs of adds of protocol v2: one unpack of the fixed head of a frame tells everything.

length (4), header (4), master key (20), then the entry: ledger id (8), entry id (8), LAC (8), ...
"""

from __future__ import annotations

import struct
from typing import Final

from ledger.bookie.intake import ENTRY_BYTES_MAX, AddIntake, AddRun
from ledger.storage.bookie_ledger import BookieLedger
from ledger.storage.records import ENTRY_HEADER_BYTES
from ledger.storage.tail import LENGTH_BITS
from ledger.wire.codes import V2_PROTOCOL_VERSION, V2Opcode
from ledger.wire.digests import MASTER_KEY_BYTES

_FRAME: Final = struct.Struct(">II20sqqq")
_HEADER: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.ADD_ENTRY << 16  # no flags
_PREFIX_BYTES: Final = 4
_OVERHEAD_BYTES: Final = 4 + MASTER_KEY_BYTES  # of a packet beside its entry
_GAP_BYTES: Final = _PREFIX_BYTES + _OVERHEAD_BYTES  # between the entries of two frames
_PACKET_BYTES_MIN: Final = _OVERHEAD_BYTES + ENTRY_HEADER_BYTES
_PACKET_BYTES_MAX: Final = _OVERHEAD_BYTES + ENTRY_BYTES_MAX
# An answer is 28 bytes: these 12, then the ledger and entry ids as the request has them.
_ANSWER_HEAD: Final = struct.pack(">III", 24, _HEADER, 0)
_IDS_BYTES: Final = 16


class AddIntakeV2(AddIntake):
    def _scan(self, run: AddRun, chunk: bytes, start: int, end: int) -> int:
        unpack = _FRAME.unpack_from
        ids: list[bytes] = []
        append_ids, append_toc = ids.append, run.toc.append
        # A place is virtual offset and length; what is added to a frame's position to get the former is constant.
        base = run.generation.virtual_bytes - start
        ledger: BookieLedger | None = None
        tail: dict[int, int] = {}
        key = b""
        current_id = last = lac_max = floor = -1
        position, last_start = start, end - _PREFIX_BYTES - _PACKET_BYTES_MIN
        while position <= last_start:
            length, header, master_key, ledger_id, entry_id, lac = unpack(chunk, position)
            stop = position + _PREFIX_BYTES + length
            if header != _HEADER or stop > end or not _PACKET_BYTES_MIN <= length <= _PACKET_BYTES_MAX:
                break
            if ledger_id != current_id or master_key != key:
                run.leave(ledger, last, lac_max)
                ledger = None if entry_id < 0 else run.admit(ledger_id, master_key)
                if ledger is None:
                    break
                current_id, key, tail = ledger_id, master_key, ledger.tail
                last, lac_max, floor = ledger.last_entry_id, ledger.last_add_confirmed, ledger.floor_entry_id
            if entry_id > last:
                last = entry_id
            elif entry_id <= floor or entry_id in tail:
                break  # Perhaps held already, or no entry's id at all.
            if lac > lac_max:  # noqa: PLR1730 - max() costs a call per entry
                lac_max = lac
            size = length - _OVERHEAD_BYTES
            tail[entry_id] = base + position << LENGTH_BITS | size
            append_toc(_GAP_BYTES)
            append_toc(size)
            body = position + _GAP_BYTES
            append_ids(chunk[body : body + _IDS_BYTES])
            position = stop
        run.leave(ledger, last, lac_max)
        if ids:
            run.toc[0] = 0  # The item begins with the first entry, not with its frame.
            run.entry_count = len(ids)
            # All answers have one head: a join costs less than packing each.
            run.answers = _ANSWER_HEAD + _ANSWER_HEAD.join(ids)
            run.body_start, run.body_end = start + _GAP_BYTES, position
        return position
