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

_HEADER: Final = struct.Struct(">qqqq")
_CRC: Final = struct.Struct(">I")


class AddEncoder:
    """Encodes the adds of one ledger. A request is `head + payload`; the head ends with the entry's own header."""

    def __init__(self, ledger_id: int, master_key: bytes, digest: Digest) -> None:
        assert len(master_key) == MASTER_KEY_BYTES
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._digest = digest
        self._overhead = ENTRY_HEADER_BYTES + digest.size

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
        master_key = self._master_key
        overhead = self._overhead
        compute = None if self._digest.type == DigestType.CRC32C else self._digest.compute
        heads: list[bytes] = []
        txns: list[bytes] = []
        txn_number = first_txn
        entry_id = first_entry_id
        pack_header, pack_crc = _HEADER.pack, _CRC.pack
        for payload, length in zip(payloads, lengths, strict=True):
            header = pack_header(ledger_id, entry_id, last_add_confirmed, length)
            digest = pack_crc(crc32c(payload, crc32c(header))) if compute is None else compute(header, payload)
            sealed_bytes = overhead + len(payload)
            txn = encode_varint(txn_number)
            request = add_request_body(ledger_id, entry_id, master_key, sealed_bytes)
            heads.append(framed_add_request(txn, request, sealed_bytes) + header + digest)
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
