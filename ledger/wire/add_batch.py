"""Add requests by the batch: sealing, request and frame in one tight loop, for the writer's hot path."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from ledger.wire.digests import MASTER_KEY_BYTES, Digest
from ledger.wire.entry import ENTRY_HEADER_BYTES, seals
from ledger.wire.varint import encode_varint

_pack_length: Final = struct.Struct(">I").pack


def request_context(key: str, value: str) -> bytes:
    """Return a pair of `Request.requestContext`; each has less than 60 characters of ASCII."""
    name, text = key.encode("ascii"), value.encode("ascii")
    pair = b"\x0a%c%b\x12%c%b" % (len(name), name, len(text), text)
    return b"\xc2\x0c%c%b" % (len(pair), pair)


class AddEncoder:
    """Encodes the adds of one ledger. A request is `head + payload`; the head ends with the entry's own header."""

    def __init__(self, ledger_id: int, master_key: bytes, digest: Digest, write_flags: int = 0) -> None:
        assert len(master_key) == MASTER_KEY_BYTES
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._digest = digest
        self._overhead = ENTRY_HEADER_BYTES + digest.size
        # addRequest is: _before_entry, the entry id, _after_entry, the size of the sealed entry, and that entry. Write
        # flags have a higher number than the entry, but fields may come in any order.
        ledger = encode_varint(ledger_id)
        self._before_entry = b"\x08" + ledger + b"\x10"
        flags = b"\x28" + encode_varint(write_flags) if write_flags else b""
        self._after_entry = b"\x1a\x14" + master_key + flags + b"\x22"
        self._fixed_bytes = len(self._before_entry) + len(self._after_entry)
        self._stored_ledger = b"\x08\x00\x10" + ledger + b"\x18"

    def heads(
        self,
        first_txn: int,
        first_entry_id: int,
        last_add_confirmed: int,
        lengths: Iterable[int],
        payloads: Sequence[bytes],
        context: bytes = b"",
    ) -> tuple[list[bytes], list[bytes]]:
        """Seal payloads under consecutive ids and return their request heads and the frames that will say "stored".

        Args:
            first_txn: Transaction of the first request; the others follow.
            first_entry_id: Of the first payload; this and the rest are those of `seals`.
            last_add_confirmed: For every header.
            lengths: One per payload.
            payloads: What the application appends.
            context: `request_context` of every request: protobuf's fields may come in any order.

        """
        heads: list[bytes] = []
        answers: list[bytes] = []
        txn_number = first_txn
        entry_id = first_entry_id
        sizes: tuple[int, int, int] | None = None
        before_txn = before_entry = before_header = answer_before_txn = answer_before_entry = b""
        sealed = seals(self._digest, self._ledger_id, first_entry_id, last_add_confirmed, lengths, payloads)
        for payload, entry_seal in zip(payloads, sealed, strict=True):
            txn = encode_varint(txn_number)
            entry = encode_varint(entry_id)
            if sizes != (len(payload), len(txn), len(entry)):  # what is between the numbers changes with their sizes
                sizes = (len(payload), len(txn), len(entry))
                before_txn, before_entry, before_header = self._request_parts(*sizes, context)
                answer_before_txn, answer_before_entry = self._answer_parts(*sizes[1:])
            heads.append(b"".join((before_txn, txn, before_entry, entry, before_header, entry_seal)))
            answers.append(b"".join((answer_before_txn, txn, answer_before_entry, entry)))
            txn_number += 1
            entry_id += 1
        return heads, answers

    def again(self, txn_number: int, entry_id: int, head: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """Return the head under another transaction, the entry unchanged, and the frame that will say "stored"."""
        txn, entry = encode_varint(txn_number), encode_varint(entry_id)
        before_txn, before_entry, before_header = self._request_parts(len(payload), len(txn), len(entry))
        answer_before_txn, answer_before_entry = self._answer_parts(len(txn), len(entry))
        return (
            b"".join((before_txn, txn, before_entry, entry, before_header, head[-self._overhead :])),
            b"".join((answer_before_txn, txn, answer_before_entry, entry)),
        )

    def _request_parts(
        self, payload_bytes: int, txn_bytes: int, entry_bytes: int, context: bytes = b""
    ) -> tuple[bytes, bytes, bytes]:
        """Return what of a request's frame is in front of the transaction, the entry id and the entry's header."""
        sealed_bytes = self._overhead + payload_bytes
        sealed_raw = encode_varint(sealed_bytes)
        request_bytes = self._fixed_bytes + entry_bytes + len(sealed_raw) + sealed_bytes
        request_raw = encode_varint(request_bytes)
        frame_bytes = 9 + txn_bytes + len(context) + len(request_raw) + request_bytes
        return (
            b"%b\x0a%c\x08\x03\x10\x02\x18" % (_pack_length(frame_bytes), 5 + txn_bytes),
            context + b"\xaa\x06" + request_raw + self._before_entry,
            self._after_entry + sealed_raw,
        )

    def _answer_parts(self, txn_bytes: int, entry_bytes: int) -> tuple[bytes, bytes]:
        """Return what of the frame that answers EOK is in front of the transaction and of the entry id."""
        inner_bytes = len(self._stored_ledger) + entry_bytes
        return (
            b"%b\x0a%c\x08\x03\x10\x02\x18" % (_pack_length(12 + txn_bytes + inner_bytes), 5 + txn_bytes),
            b"\x10\x00\xaa\x06%c%b" % (inner_bytes, self._stored_ledger),
        )
