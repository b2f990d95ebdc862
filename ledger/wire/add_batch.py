"""Add requests by the batch: sealing, request and frame in one tight loop, for the writer's hot path."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from ledger.core.metadata import DigestType
from ledger.wire.digests import MASTER_KEY_BYTES, Digest
from ledger.wire.entry import ENTRY_HEADER_BYTES
from ledger.wire.v3_fast import add_request_body, framed_add_request
from ledger.wire.varint import encode_varint

__all__ = ["AddEncoder"]

_pack_header: Final = struct.Struct(">qqqq").pack
_pack_crc: Final = struct.Struct(">I").pack
_pack_length: Final = struct.Struct(">I").pack


class AddEncoder:
    """Encodes the adds of one ledger. A request is `head + payload`; the head ends with the entry's own header."""

    def __init__(self, ledger_id: int, master_key: bytes, digest: Digest) -> None:
        assert len(master_key) == MASTER_KEY_BYTES
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._digest = digest
        self._overhead = ENTRY_HEADER_BYTES + digest.size
        # addRequest is: _before_entry, the entry id, _after_entry, the size of the sealed entry, and that entry.
        self._before_entry = b"\x08" + encode_varint(ledger_id) + b"\x10"
        self._after_entry = b"\x1a\x14" + master_key + b"\x22"
        self._fixed_bytes = len(self._before_entry) + len(self._after_entry)

    def heads(
        self,
        first_txn: int,
        first_entry_id: int,
        last_add_confirmed: int,
        lengths: Iterable[int],
        payloads: Iterable[bytes],
    ) -> tuple[list[bytes], list[bytes]]:
        """Seal payloads under consecutive ids and return their request heads and raw transactions.

        Args:
            first_txn: Transaction of the first request; the others follow.
            first_entry_id: Entry id of the first payload; the others follow.
            last_add_confirmed: For every header.
            lengths: Cumulative payload bytes of the ledger, one per payload.
            payloads: What the application appends.

        """
        ledger_id = self._ledger_id
        before_entry, after_entry, fixed_bytes = self._before_entry, self._after_entry, self._fixed_bytes
        compute = None if self._digest.type == DigestType.CRC32C else self._digest.compute
        heads: list[bytes] = []
        txns: list[bytes] = []
        txn_number = first_txn
        entry_id = first_entry_id
        payload_bytes = sealed_bytes = -1
        sealed_raw = b""
        for payload, length in zip(payloads, lengths, strict=True):
            header = _pack_header(ledger_id, entry_id, last_add_confirmed, length)
            digest = _pack_crc(crc32c(payload, crc32c(header))) if compute is None else compute(header, payload)
            if len(payload) != payload_bytes:
                payload_bytes = len(payload)
                sealed_bytes = self._overhead + payload_bytes
                sealed_raw = encode_varint(sealed_bytes)
            txn = encode_varint(txn_number)
            entry = encode_varint(entry_id)
            request_bytes = fixed_bytes + len(entry) + len(sealed_raw) + sealed_bytes
            request_raw = encode_varint(request_bytes)
            txn_bytes = len(txn)
            heads.append(
                b"%b\x0a%c\x08\x03\x10\x02\x18%b\xaa\x06%b%b%b%b%b%b%b"
                % (
                    _pack_length(9 + txn_bytes + len(request_raw) + request_bytes),
                    5 + txn_bytes,
                    txn,
                    request_raw,
                    before_entry,
                    entry,
                    after_entry,
                    sealed_raw,
                    header,
                    digest,
                )
            )
            txns.append(txn)
            txn_number += 1
            entry_id += 1
        return heads, txns

    def again(self, txn_number: int, entry_id: int, head: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """Return the head under another transaction, the sealed entry unchanged, and the raw transaction."""
        txn = encode_varint(txn_number)
        sealed_bytes = self._overhead + len(payload)
        request = add_request_body(self._ledger_id, entry_id, self._master_key, sealed_bytes)
        return framed_add_request(txn, request, sealed_bytes) + head[-self._overhead :], txn
