"""Keys of the map that a command or a query touches, checked against a client's scope.

A lease has no key of its own. A client with a prefix may show it, keep it and attach keys to it while it has none, or
one with that prefix; it may end it only if all its keys have the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ledger.rights.principal import Principal
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map.commands import (
    Branch,
    CompactHistory,
    DeleteRange,
    GrantLease,
    KeepLease,
    MapCommand,
    MapTransaction,
    Operation,
    Put,
    PutExpiring,
    RevokeLease,
    SetAlarm,
    WriteKey,
    WriteRows,
)
from rsm_spark.map.messages import decode_command, decode_query, encode
from rsm_spark.map.queries import Count, ListAlarms, ListLeases, Scan, ShowLease
from rsm_spark.map.records import MAP_TABLE

_ALARM_TAG = b"\x10"
_TAG_BYTES_MAX = 14
"""Bytes of the longest header of an array and of a number."""
_LEASE_KEYS_MAX = 10_000
"""Keys of a lease that are looked at; one with more is ended by those alone who have no prefix."""


class MapScopes:
    """See the module.

    Args:
        keys_of: Returns the keys that are attached to a lease now.

    Attributes:
        nothing: A command that changes nothing: the map refuses an empty key.

    """

    def __init__(self, keys_of: Callable[[int], Iterable[bytes]]) -> None:
        self._keys_of = keys_of
        self.nothing: bytes = encode(Put(b"", b""))
        self.has_keys = True

    @staticmethod
    def log_fault(principal: Principal) -> str:
        """Return why a client's scope has nothing of a log of keys: it names tables alone."""
        if not principal.has_table_bounds or principal.prefix:
            return ""
        return f"the state of this log has keys: {principal} has the right to some tables alone, and may not touch it"

    @staticmethod
    def is_governing(command: bytes) -> bool:
        """Return whether a command is one that administers the log."""
        if _ALARM_TAG not in command[:_TAG_BYTES_MAX]:
            return False
        try:
            return isinstance(decode_command(command), SetAlarm)
        except InvalidCommandError:
            return False

    def command_fault(self, command: bytes, principal: Principal) -> str:
        """Return what of a command is beyond a principal's keys; "" = nothing."""
        try:
            decoded = decode_command(command)
        except InvalidCommandError as error:
            return str(error)
        return next(self._command_faults(decoded, principal), "")

    def query_fault(self, query: bytes, principal: Principal) -> str:
        """Return what of a query is beyond a principal's keys; "" = nothing."""
        try:
            decoded = decode_query(query)
        except InvalidCommandError as error:
            return str(error)
        if isinstance(decoded, Scan | Count):
            return _range_fault(principal, decoded.start, decoded.end)
        if isinstance(decoded, ShowLease):
            return self._lease_fault(principal, decoded.lease)
        if isinstance(decoded, ListLeases | ListAlarms):
            return f"{principal} may not list leases or alarms: it has the keys of {principal.prefix!r} only"
        return _key_fault(principal, decoded.key)

    def watch_fault(self, table: str, start: bytes, end: bytes | None, principal: Principal) -> str:
        """Return why a principal may not watch a range of a table; "" = it may."""
        if table != MAP_TABLE:
            return f"{principal} may watch the table {MAP_TABLE!r} only, not {table!r}"
        return _range_fault(principal, start, end)

    def _command_faults(self, command: MapCommand, principal: Principal) -> Iterator[str]:
        if isinstance(command, GrantLease):
            return
        if isinstance(command, KeepLease):
            yield from _said(self._lease_fault(principal, command.lease))
        elif isinstance(command, RevokeLease):
            yield from _said(self._end_fault(principal, command.lease))
        elif isinstance(command, MapTransaction):
            for compare in command.compares:
                yield from _said(_key_fault(principal, compare.key))
            for operation in (*command.then, *command.orelse):
                yield from self._operation_faults(operation, principal)
        elif isinstance(command, Branch):
            yield from self._branch_faults(command, principal)
        elif isinstance(command, WriteRows):
            for row in command.rows:
                yield from _said(_key_fault(principal, row.key))
                if command.conflict_prefix:
                    yield from _said(_key_fault(principal, command.conflict_prefix + row.key))
        elif isinstance(command, SetAlarm):
            yield f"{principal} may not raise or end alarms"
        elif isinstance(command, CompactHistory):
            yield f"{principal} may not compact: it has the keys of {principal.prefix!r} only"
        elif isinstance(command, DeleteRange | Put | PutExpiring):
            yield from self._operation_faults(command, principal)
        else:
            yield from _said(_key_fault(principal, command.key))

    def _branch_faults(self, branch: Branch, principal: Principal) -> Iterator[str]:
        for compare in branch.compares:
            yield from _said(_range_fault(principal, compare.start, compare.end))
        for operation in (*branch.then, *branch.orelse):
            if isinstance(operation, Branch):
                yield from self._branch_faults(operation, principal)
            else:
                yield from self._operation_faults(operation, principal)

    def _operation_faults(self, operation: Operation | WriteKey, principal: Principal) -> Iterator[str]:
        if isinstance(operation, DeleteRange):
            yield from _said(_range_fault(principal, operation.start, operation.end))
            return
        yield from _said(_key_fault(principal, operation.key))
        if isinstance(operation, PutExpiring | WriteKey) and operation.lease:
            yield from _said(self._lease_fault(principal, operation.lease))

    def _lease_fault(self, principal: Principal, lease: int) -> str:
        keys = list(islice(self._keys_of(lease), _LEASE_KEYS_MAX))
        if not keys or any(map(principal.has_key, keys)):
            return ""
        return f"no key of lease {lease} is in the scope of {principal}"

    def _end_fault(self, principal: Principal, lease: int) -> str:
        keys = list(islice(self._keys_of(lease), _LEASE_KEYS_MAX + 1))
        if keys and len(keys) <= _LEASE_KEYS_MAX and all(map(principal.has_key, keys)):
            return ""
        return f"{principal} may end a lease only if all its keys, at most {_LEASE_KEYS_MAX}, are in its scope"


def _said(fault: str) -> Iterator[str]:
    if fault:
        yield fault


def _key_fault(principal: Principal, key: bytes) -> str:
    return "" if principal.has_key(key) else f"{principal} has the keys of {principal.prefix!r} only"


def _range_fault(principal: Principal, start: bytes, end: bytes | None) -> str:
    if principal.has_range(start, end):
        return ""
    return f"{principal} has the keys of {principal.prefix!r} only: the range begins or ends beyond them"
