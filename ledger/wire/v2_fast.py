"""Hand-made codecs for the packets of protocol v2 that come by the hundred thousand: adds, answers, plain reads.

What they write is what `ledger.wire.v2` writes; the tests compare.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from ledger.wire.codes import V2_PROTOCOL_VERSION, V2Opcode
from ledger.wire.digests import MASTER_KEY_BYTES, Digest
from ledger.wire.entry import ENTRY_HEADER_BYTES, seals

_pack_prefix: Final = struct.Struct(">II").pack
_pack_read: Final = struct.Struct(">IIqq").pack
_STORED: Final = struct.Struct(">12sqq")

_ADD: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.ADD_ENTRY << 16
_READ: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.READ_ENTRY << 16
_READ_BYTES: Final = 20
_STORED_PREFIX: Final = struct.pack(">III", 24, _ADD, 0)
"""The frame that says "stored" begins so; ledger and entry follow."""
_IDS_BYTES: Final = 16


def read_request_frame(ledger_id: int, entry_id: int) -> bytes:
    """Return a whole frame that asks for an entry, without any flag or key."""
    return _pack_read(_READ_BYTES, _READ, ledger_id, entry_id)


def stored_frame(ledger_id: int, entry_id: int) -> bytes:
    """Return the whole frame that answers EOK to an add."""
    return _STORED.pack(_STORED_PREFIX, ledger_id, entry_id)


def stored_ids(buffer: bytes | bytearray, position: int, end: int) -> tuple[int, int, int] | None:
    """Read the frame at `position` as an answer EOK to an add.

    Returns:
        Ledger, entry and the end of the frame; None if it is anything else, or not whole.

    """
    if end - position < _STORED.size:
        return None
    prefix, ledger_id, entry_id = _STORED.unpack_from(buffer, position)
    return (ledger_id, entry_id, position + _STORED.size) if prefix == _STORED_PREFIX else None


class V2AddEncoder:
    """Encodes the adds of one ledger; `AddEncoder` is its twin for protocol v3.

    A request is `head + payload`; the head ends with the entry's own header. Transactions are not sent.
    """

    def __init__(self, ledger_id: int, master_key: bytes, digest: Digest) -> None:
        assert len(master_key) == MASTER_KEY_BYTES
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._digest = digest
        self._overhead = 4 + MASTER_KEY_BYTES + ENTRY_HEADER_BYTES + digest.size

    def heads(
        self,
        first_txn: int,  # noqa: ARG002 - for v3
        first_entry_id: int,
        last_add_confirmed: int,
        lengths: Iterable[int],
        payloads: Sequence[bytes],
        context: bytes = b"",  # noqa: ARG002 - the same
    ) -> tuple[list[bytes], list[bytes]]:
        """Seal payloads under consecutive ids and return their request heads and the frames that will say "stored".

        Args:
            first_txn: Not used.
            first_entry_id: Of the first payload; this and the rest are those of `seals`.
            last_add_confirmed: For every header.
            lengths: One per payload.
            payloads: What the application appends.
            context: Not used.

        """
        heads: list[bytes] = []
        payload_bytes = -1
        prefix = b""
        sealed = seals(self._digest, self._ledger_id, first_entry_id, last_add_confirmed, lengths, payloads)
        for payload, entry_seal in zip(payloads, sealed, strict=True):
            if len(payload) != payload_bytes:
                payload_bytes = len(payload)
                prefix = _pack_prefix(self._overhead + payload_bytes, _ADD) + self._master_key
            heads.append(prefix + entry_seal)
        return heads, [_STORED_PREFIX + entry_seal[:_IDS_BYTES] for entry_seal in sealed]

    def again(self, txn_number: int, entry_id: int, head: bytes, payload: bytes) -> tuple[bytes, bytes]:  # noqa: ARG002
        """Return the head, which is the same again, and the frame that will say "stored"."""
        return head, stored_frame(self._ledger_id, entry_id)
