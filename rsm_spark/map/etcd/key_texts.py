"""Keys in the bytes in which answers to reads tell them, kept for the next answer.

A read of a thousand keys is mostly a thousand messages of protobuf, made one by one. What a key is told as stays the
same until it is written again.

    known    told lately: key, the row that it had, and its text
    older    told before that: goes to `known` when it is told again, else with the next change of the two
"""

from __future__ import annotations

from typing import Final

from rsm_spark.map.etcd.etcd_pb2 import KeyValue
from rsm_spark.map.rows import MapEntry, value_of

TEXT_BYTES: Final = 32 * 1024 * 1024
_PLACE_BYTES: Final = 250
"""Memory of a text beside its bytes and those of its key, about."""
_KVS: Final = 2
"""Field of a range's answer in which its keys are."""


def field_text(number: int, text: bytes) -> bytes:
    """Return a message as a field of another one.

    Args:
        number: Of the field, below 16.
        text: Of the message.

    """
    return bytes((number << 3 | 2,)) + varint(len(text)) + text


def varint(number: int) -> bytes:
    """Return a number, 0 or above, as protobuf has it."""
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    text.append(number)
    return bytes(text)


def key_text(key: bytes, entry: MapEntry, lease: int, *, keys_only: bool = False) -> bytes:
    """Return a key as the answer to a read tells it."""
    told = KeyValue(
        key=key,
        create_revision=entry.create_revision,
        mod_revision=entry.mod_revision,
        version=entry.version,
        value=b"" if keys_only else value_of(entry.row),
        lease=lease,
    )
    return field_text(_KVS, told.SerializeToString())


class KeyTexts:
    """See the module. Keys with a lease are not kept. A key gets one with a new row alone.

    Args:
        bytes_max: Texts of about so many bytes are kept.

    Attributes:
        known: By key; a text is right while the row is the same object.

    """

    def __init__(self, bytes_max: int = TEXT_BYTES) -> None:
        self._half_max = self._room = bytes_max // 2
        self.known: dict[bytes, tuple[MapEntry, bytes]] = {}
        self._older: dict[bytes, tuple[MapEntry, bytes]] = {}

    def make(self, key: bytes, entry: MapEntry) -> bytes:
        """Return the text of a key without a lease, whose row is not known; it is from now on."""
        found = self._older.pop(key, None)
        if found is None or found[0] is not entry:
            found = (entry, key_text(key, entry, 0))
        text = found[1]
        self.known[key] = found
        self._room -= len(key) + len(text) + _PLACE_BYTES
        if self._room < 0:
            self._older, self.known, self._room = self.known, {}, self._half_max
        return text
