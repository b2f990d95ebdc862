"""Messages of the map's clients and their replies: msgpack arrays whose first element is the kind.

    commands   put              ``[1, key, value]``
               delete           ``[2, key]``
               compare-and-set  ``[3, key, expected, value | nil]``; expected is the value (bin), the mod revision
                                (int) or nil for "no such key"; a new value of nil deletes
               transaction      ``[4, [[key, what, relation, operand], ...], [operation, ...], [operation, ...]]``;
                                an operation is one of 1, 2, 5, 9, 10 or ``[11, key]``: read
               increment        ``[5, key, amount]``
               grant lease      ``[6, ttl_ms, lease]``   keep lease ``[7, lease]``        revoke lease ``[8, lease]``
               put, expiring    ``[9, key, value, ttl_ms, lease]``; one of the last two is 0
               delete range     ``[10, start, end | nil]``
               branch           ``[12, [[start, end | nil, what, relation, operand], ...], [operation, ...],
                                [operation, ...]]``; an operation is one of 10, 12 or ``[14, key, value | nil, lease |
                                nil]``: write, with nil for what stays as it is
               compact history  ``[13, revision]``
               write rows       ``[15, [[key, value | nil, ttl_ms, [expected]], ...], conflict_prefix]``; the last two
                                of a row may be left out; expected is empty, or one as in 3
               set alarm        ``[16, kind, member, is_raised]``; kind is "nospace" or "corrupt"
    replies    written          ``[0, mod_revision]``
               not found        ``[1]``                    there was nothing to delete, or no such lease
               mismatched       ``[2, mod_revision]``      of the key as it is; 0 = no such key
               refused          ``[3, reason]``            the command breaks a rule of the map
               executed         ``[4, succeeded, [result, ...]]``; a result is one of 0, 1, 5, 8 or
                                ``[9, value, mod_revision, create_revision, version]``: seen
               incremented      ``[5, value, mod_revision]``
               granted          ``[6, lease]``             kept ``[7, ttl_ms]``
               removed          ``[8, count, revision]``   by a range delete, or with a lease
               branched         ``[10, first_revision, last_revision, [held, ...]]``
               unfulfilled      ``[11, what, revision]``   there is no such lease or key, or the like
               wrote rows       ``[12, written, removed, conflicts]``; a bit for each row
    queries    get              ``[1, key]``
               scan             ``[2, start, end | nil, limit, at_revision, keeps, keys_only, counts]``; start
                                inclusive, end exclusive; nil = to the end; the last four may be left out
               count            ``[6, start, end | nil]``
               show lease       ``[3, lease]``       show expiry ``[4, key]``       list leases ``[5, after, limit]``
               list alarms      ``[7]``
    results    found            ``[0, value, mod_revision, create_revision, version]``
               not found        ``[1]``
               refused          ``[3, reason]``
               page             ``[4, [[key, value, mod_revision], ...], next_start | nil]``; rows end with create
                                revision and version if `counts` was asked for
               lease            ``[5, lease, ttl_ms, since_ms, key_count]``             leases ``[7, [lease, ...]]``
               expiry           ``[6, ttl_ms, since_ms, lease]``
               forgotten        ``[8]``                    the revision of the scan is not remembered
               counted          ``[9, count]``
               alarms           ``[10, [[kind, member, since_ms], ...]]``

The *mod revision* of a key is the revision of the last record of the command that last wrote it: all keys that one
command writes have the same. It is in the reply, so that a command that is sent again hears the same. The *create
revision* is the mod revision that the key got when it was created, the *version* the number of its writes since. Where
the log is of a version of the map before 3, the mod revision is that of the key's own record, and the others are 0, or
missing.
"""

from __future__ import annotations

import msgspec

from rsm_spark.errors import InvalidCommandError
from rsm_spark.map.commands import (
    Branch,
    Branched,
    CompactHistory,
    Compare,
    CompareAndSet,
    Compared,
    CompareRange,
    Delete,
    DeleteRange,
    Executed,
    Granted,
    GrantLease,
    Increment,
    Incremented,
    KeepLease,
    Kept,
    MapCommand,
    MapRefused,
    MapReply,
    MapTransaction,
    Mismatched,
    NotFound,
    Operation,
    OperationResult,
    Put,
    PutExpiring,
    Read,
    Removed,
    RevokeLease,
    RowWrite,
    Seen,
    SetAlarm,
    Unfulfilled,
    WriteKey,
    WriteRows,
    Written,
    WroteRows,
)
from rsm_spark.map.limits import (
    COMPARES_MAX,
    KEY_BYTES_MAX,
    OPERATIONS_MAX,
    ROW_WRITES_MAX,
    SCAN_BYTES_MAX,
    SCAN_LIMIT_MAX,
    TTL_MS_MAX,
    VALUE_BYTES_MAX,
    key_fault,
    prefix_end,
    ttl_fault,
    value_fault,
)
from rsm_spark.map.queries import (
    AlarmShown,
    AlarmsShown,
    Count,
    Counted,
    ExpiryShown,
    Forgotten,
    Found,
    Get,
    KeyValue,
    Leases,
    LeaseShown,
    ListAlarms,
    ListLeases,
    MapQuery,
    MapResult,
    Page,
    Scan,
    ShowExpiry,
    ShowLease,
)

__all__ = [
    "SetAlarm",
    "AlarmShown",
    "AlarmsShown",
    "ListAlarms",
    "WroteRows",
    "WriteRows",
    "RowWrite",
    "ROW_WRITES_MAX",
    "WriteKey",
    "Unfulfilled",
    "CompareRange",
    "CompactHistory",
    "Branched",
    "Branch",
    "COMPARES_MAX",
    "KEY_BYTES_MAX",
    "OPERATIONS_MAX",
    "SCAN_BYTES_MAX",
    "SCAN_LIMIT_MAX",
    "TTL_MS_MAX",
    "VALUE_BYTES_MAX",
    "Compare",
    "CompareAndSet",
    "Compared",
    "Count",
    "Counted",
    "Delete",
    "DeleteRange",
    "Executed",
    "ExpiryShown",
    "Forgotten",
    "Found",
    "Get",
    "GrantLease",
    "Granted",
    "Increment",
    "Incremented",
    "KeepLease",
    "Kept",
    "KeyValue",
    "LeaseShown",
    "Leases",
    "ListLeases",
    "MapCommand",
    "MapQuery",
    "MapReply",
    "MapResult",
    "Mismatched",
    "NotFound",
    "Operation",
    "OperationResult",
    "Page",
    "Put",
    "PutExpiring",
    "Read",
    "MapRefused",
    "Removed",
    "RevokeLease",
    "Scan",
    "Seen",
    "ShowExpiry",
    "ShowLease",
    "MapTransaction",
    "Written",
    "decode_command",
    "decode_query",
    "decode_reply",
    "decode_result",
    "encode",
    "key_fault",
    "prefix_end",
    "ttl_fault",
    "value_fault",
]

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


decode_reply = _REPLIES.decode
"""Read the reply to a command."""
decode_result = _RESULTS.decode
"""Read the result of a query."""
