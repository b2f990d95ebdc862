"""Payloads in a byte stream: lines, or 4 bytes of length and content; and entries as lines of JSON."""

from __future__ import annotations

import base64

import msgspec

from ledger.errors import UsageError
from ledger.wire.entry import PAYLOAD_BYTES_MAX

_PREFIX_BYTES = 4


class PayloadSplitter:
    """Cuts chunks, however they fall, into payloads.

    Args:
        length_prefixed: Payloads are 4 bytes of length (big-endian) and content; else lines, without their newline.

    """

    def __init__(self, *, length_prefixed: bool) -> None:
        self._length_prefixed = length_prefixed
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the payloads that are whole with this chunk.

        Raises:
            UsageError: A payload is longer than an entry can be.

        """
        data = self._rest + chunk
        if self._length_prefixed:
            payloads = self._cut(data)
        else:
            *payloads, self._rest = data.split(b"\n")
        if len(self._rest) > PAYLOAD_BYTES_MAX + _PREFIX_BYTES:
            raise UsageError(f"the input has a payload of over {PAYLOAD_BYTES_MAX} bytes, which no entry can hold")
        return payloads

    def finish(self) -> list[bytes]:
        """Return the last line if it has no newline.

        Raises:
            UsageError: The input ends inside a length-prefixed payload.

        """
        rest, self._rest = self._rest, b""
        if rest and self._length_prefixed:
            raise UsageError(f"the input ends inside a payload, {len(rest)} bytes after its start")
        return [rest] if rest else []

    def _cut(self, data: bytes) -> list[bytes]:
        payloads: list[bytes] = []
        position = 0
        while len(data) - position >= _PREFIX_BYTES:
            start = position + _PREFIX_BYTES
            stop = start + int.from_bytes(data[position:start], "big")
            if stop - start > PAYLOAD_BYTES_MAX:
                raise UsageError(f"a payload of {stop - start} bytes is announced; at most {PAYLOAD_BYTES_MAX} fit")
            if stop > len(data):
                break
            payloads.append(data[start:stop])
            position = stop
        self._rest = data[position:]
        return payloads


def json_line(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    """Return an entry as one line of JSON: `payload` if it is UTF-8, else `payload_base64`."""
    row: dict[str, int | str] = {"ledger_id": ledger_id, "entry_id": entry_id}
    try:
        row["payload"] = payload.decode()
    except UnicodeDecodeError:
        row["payload_base64"] = base64.b64encode(payload).decode()
    return msgspec.json.encode(row) + b"\n"
