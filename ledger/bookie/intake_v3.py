"""Runs of adds of protocol v3 in the canonical layout that protobuf's own encoders write: one regular expression."""

from __future__ import annotations

import re
import struct
from typing import Final

from ledger.bookie.intake import ENTRY_BYTES_MAX, AddIntake, AddRun
from ledger.storage.bookie_ledger import BookieLedger
from ledger.storage.records import ENTRY_HEADER_BYTES
from ledger.storage.tail import LENGTH_BITS
from ledger.wire.varint import decode_varint

_V: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_ANY: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# The frame's length, header {version 3, operation ADD, txnId}, addRequest {ledgerId, entryId, masterKey, body up to
# the end}. The two lengths that frame these fields are not compared: the frame's, the body's own and the ids are.
_ADD: Final = re.compile(
    rb"(.{4})\x0a.\x08\x03\x10\x02\x18"
    + _V
    + rb"\xaa\x06"
    + _ANY
    + rb"\x08"
    + _V
    + rb"\x10"
    + _V
    + rb"\x1a\x14(.{20})\x22"
    + _V,
    re.DOTALL,
)
_HEAD: Final = struct.Struct(">qqq")
_LENGTH: Final = struct.Struct(">I")
_PREFIX_BYTES: Final = 4


class AddIntakeV3(AddIntake):
    def _scan(self, run: AddRun, chunk: bytes, start: int, end: int) -> int:
        # Methods and state of the present ledger are locals: this loop runs once per entry.
        match, unpack = _ADD.match, _HEAD.unpack_from
        answers: list[bytes] = []
        append_toc, append_answer = run.toc.append, answers.append
        ledger: BookieLedger | None = None
        tail: dict[int, int] = {}
        ledger_raw = key = b""
        sizes = (-1, -1)
        prefix_seen, length = b"", -1
        size_raw_seen, size_seen = b"", -1
        head = middle = b""
        last = lac_max = floor = current_id = -1
        position, previous_end, base = start, -1, 0
        while found := match(chunk, position, end):
            prefix, txn, raw, entry_raw, master_key, size_raw = found.groups()
            # A writer's frames mostly have the same length: equal bytes are not decoded twice.
            if prefix != prefix_seen:
                prefix_seen, length = prefix, int.from_bytes(prefix, "big")
            if size_raw != size_raw_seen:
                size_raw_seen, size_seen = size_raw, decode_varint(size_raw)
            body, stop = found.end(), position + _PREFIX_BYTES + length
            if stop > end or stop - body != size_seen or not ENTRY_HEADER_BYTES <= size_seen <= ENTRY_BYTES_MAX:
                break
            ledger_id, entry_id, lac = unpack(chunk, body)
            if entry_id != decode_varint(entry_raw):
                break
            if raw != ledger_raw or master_key != key:
                run.leave(ledger, last, lac_max)
                is_odd = entry_id < 0 or decode_varint(raw) != ledger_id
                ledger = None if is_odd else run.admit(ledger_id, master_key)
                if ledger is None:
                    break
                ledger_raw, key, current_id, tail = raw, master_key, ledger_id, ledger.tail
                last, lac_max, floor = ledger.last_entry_id, ledger.last_add_confirmed, ledger.floor_entry_id
                sizes = (-1, -1)
            elif ledger_id != current_id:
                break
            if entry_id > last:
                last = entry_id
            elif entry_id <= floor or entry_id in tail:
                break  # Perhaps held already, or no entry's id at all.
            if lac > lac_max:  # noqa: PLR1730 - max() costs a call per entry
                lac_max = lac
            if previous_end < 0:
                run.body_start = previous_end = body
                base = run.generation.virtual_bytes - body
            append_toc(body - previous_end)
            append_toc(size_seen)
            tail[entry_id] = base + body << LENGTH_BITS | size_seen
            # Within a ledger all of an answer but two varints depends on their lengths: made when one of these changes.
            if sizes != (len(txn), len(entry_raw)):
                sizes = (len(txn), len(entry_raw))
                head, middle = _answer_template(ledger_raw, *sizes)
            append_answer(head + txn + middle + entry_raw)
            position = previous_end = stop
        run.leave(ledger, last, lac_max)
        run.entry_count = len(answers)
        run.answers = b"".join(answers)
        run.body_end = previous_end
        return position


def _answer_template(ledger_raw: bytes, txn_bytes: int, entry_bytes: int) -> tuple[bytes, bytes]:
    """Return what stands before and behind the transaction in a frame that answers an add with EOK."""
    inner = 4 + len(ledger_raw) + entry_bytes
    length = 12 + txn_bytes + inner
    head = _LENGTH.pack(length) + b"\x0a%c\x08\x03\x10\x02\x18" % (5 + txn_bytes)
    return head, b"\x10\x00\xaa\x06%c\x08\x00\x10%b\x18" % (inner, ledger_raw)
