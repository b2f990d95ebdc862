"""What clients of the map say and hear: msgpack arrays whose first element is the kind.

    commands   put              ``[1, key, value]``
               delete           ``[2, key]``
               compare-and-set  ``[3, key, expected, value | nil]``; expected is the value (bin), the mod revision
                                (int) or nil for "no such key"; a new value of nil deletes
    replies    written          ``[0, mod_revision]``
               not found        ``[1]``                    there was nothing to delete
               mismatched       ``[2, mod_revision]``      of the key as it is; 0 = no such key
               refused          ``[3, reason]``            the command breaks a rule of the map
    queries    get              ``[1, key]``
               scan             ``[2, start, end | nil, limit]``; start inclusive, end exclusive; nil = to the end
    results    found            ``[0, value, mod_revision]``
               not found        ``[1]``
               refused          ``[3, reason]``
               page             ``[4, [[key, value, mod_revision], ...], next_start | nil]``

The *mod revision* of a key is the revision of the record that last wrote it. It is in the reply, so that a command that
is sent again hears the same.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rsm_spark.errors import InvalidCommandError

__all__ = [
    "KEY_BYTES_MAX",
    "SCAN_BYTES_MAX",
    "SCAN_LIMIT_MAX",
    "VALUE_BYTES_MAX",
    "CompareAndSet",
    "Delete",
    "Found",
    "Get",
    "KeyValue",
    "MapCommand",
    "MapQuery",
    "MapReply",
    "MapResult",
    "Mismatched",
    "NotFound",
    "Page",
    "Put",
    "Refused",
    "Scan",
    "Written",
    "decode_command",
    "decode_query",
    "decode_reply",
    "decode_result",
    "encode",
    "key_fault",
    "prefix_end",
    "value_fault",
]

KEY_BYTES_MAX = 4096
VALUE_BYTES_MAX = 1024 * 1024
"""With its key well below an entry's 4 MiB, twice over: a snapshot row and a reply hold it too."""

SCAN_LIMIT_MAX = 10_000
SCAN_BYTES_MAX = 2 * 1024 * 1024
"""A page ends at whichever comes first: it is made in one go on the leader's loop, and travels in one message."""


class Put(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """Write the value of a key, whether it exists or not."""

    key: bytes
    value: bytes


class Delete(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """Remove a key."""

    key: bytes


class CompareAndSet(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """Write or delete a key only if it is as expected.

    Attributes:
        key: The key.
        expected: Its value, or its mod revision, or None: it does not exist.
        value: The new value; None deletes.

    """

    key: bytes
    expected: bytes | int | None
    value: bytes | None


class Written(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """The command was carried out by the record of this revision; 0 if it changed nothing, as expected."""

    revision: int


class NotFound(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """There is no such key."""


class Mismatched(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """The key is not as expected; its mod revision, 0 if there is no such key."""

    revision: int


class Refused(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The request breaks a rule of the map, or is none of its requests."""

    reason: str


class Get(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """Read one key."""

    key: bytes


class Scan(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """Read keys in order.

    Attributes:
        start: First key, inclusive; empty for the very first.
        end: Exclusive; None = to the last.
        limit: Most keys wanted; a page also ends at `SCAN_LIMIT_MAX` keys or `SCAN_BYTES_MAX` bytes.

    """

    start: bytes
    end: bytes | None
    limit: int


class Found(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """A key's value and the revision of the record that wrote it."""

    value: bytes
    revision: int


class KeyValue(NamedTuple):
    """One row of a scan."""

    key: bytes
    value: bytes
    revision: int


class Page(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Some keys in order, all at one revision (that of the answer).

    Attributes:
        entries: Ascending by key.
        next_start: Where the next page begins; None: the range holds no more.

    """

    entries: list[KeyValue]
    next_start: bytes | None


MapCommand = Put | Delete | CompareAndSet
MapReply = Written | NotFound | Mismatched | Refused
MapQuery = Get | Scan
MapResult = Found | NotFound | Refused | Page

_ENCODER = msgspec.msgpack.Encoder()
encode = _ENCODER.encode
"""Return the bytes of any message of this module."""

_COMMANDS: msgspec.msgpack.Decoder[MapCommand] = msgspec.msgpack.Decoder(MapCommand)
_REPLIES: msgspec.msgpack.Decoder[MapReply] = msgspec.msgpack.Decoder(MapReply)
_QUERIES: msgspec.msgpack.Decoder[MapQuery] = msgspec.msgpack.Decoder(MapQuery)
_RESULTS: msgspec.msgpack.Decoder[MapResult] = msgspec.msgpack.Decoder(MapResult)


def decode_command(text: bytes) -> MapCommand:
    """Read a command.

    Raises:
        InvalidCommandError: The bytes are none.

    """
    try:
        return _COMMANDS.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidCommandError(f"not a command of the map: {error}") from error


def decode_query(text: bytes) -> MapQuery:
    """Read a query.

    Raises:
        InvalidCommandError: The bytes are none.

    """
    try:
        return _QUERIES.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidCommandError(f"not a query of the map: {error}") from error


def decode_reply(text: bytes) -> MapReply:
    """Read the reply to a command."""
    return _REPLIES.decode(text)


def decode_result(text: bytes) -> MapResult:
    """Read the result of a query."""
    return _RESULTS.decode(text)


def key_fault(key: bytes) -> str | None:
    """Return what is wrong with a key, or None."""
    if 0 < len(key) <= KEY_BYTES_MAX:
        return None
    return f"a key has 1 to {KEY_BYTES_MAX} bytes, this one has {len(key)}"


def value_fault(value: bytes) -> str | None:
    """Return what is wrong with a value, or None."""
    if len(value) <= VALUE_BYTES_MAX:
        return None
    return f"a value has at most {VALUE_BYTES_MAX} bytes, this one has {len(value)}"


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that begin with `prefix`; None if there is no such bound."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
