"""Many rows in one command: what a table, or a stream of tables, is written to the map by.

The rows are written in their order, each on what those before it have made. A row that is not as it expects is in
conflict: it is left as it is, and the reply tells.
"""

from __future__ import annotations

from rsm_spark.map.commands import RowWrite, WriteRows, WroteRows
from rsm_spark.map.draft import Draft
from rsm_spark.map.limits import (
    KEY_BYTES_MAX,
    RECORD_COUNT_MAX,
    ROW_WRITES_MAX,
    VALUE_BYTES_MAX,
    key_fault,
    ttl_fault,
    value_fault,
)

RECORDS_MAX = 2 * RECORD_COUNT_MAX


def row_writes_fault(command: WriteRows) -> str | None:
    """Return what is wrong with a command, or None."""
    if len(command.rows) > ROW_WRITES_MAX:
        return f"{len(command.rows)} rows: one command writes {ROW_WRITES_MAX} at most"
    prefix_bytes = len(command.conflict_prefix)
    for number, row in enumerate(command.rows):
        fault = row_fault(row, prefix_bytes)
        if fault is not None:
            return f"row {number}: {fault}"
    return None


def row_fault(row: RowWrite, prefix_bytes: int = 0) -> str | None:
    """Return what is wrong with a row, or None.

    Args:
        row: It.
        prefix_bytes: Of the prefix of conflicts: the key must have room for it.

    """
    key, value = row.key, row.value
    if 0 < len(key) <= KEY_BYTES_MAX - prefix_bytes and (value is None or len(value) <= VALUE_BYTES_MAX):
        if not row.ttl_ms:
            return "there is at most one expected value" if len(row.expected) > 1 else None
        return "a key that is to go has no time to live" if value is None else ttl_fault(row.ttl_ms)
    if 0 < len(key) <= KEY_BYTES_MAX < len(key) + prefix_bytes:
        return f"a key with the prefix of conflicts has up to {KEY_BYTES_MAX} bytes, it has {len(key) + prefix_bytes}"
    return key_fault(key) or (None if value is None else value_fault(value))


def write_rows(command: WriteRows, draft: Draft) -> WroteRows:
    """Add the records of a command to its draft; return its reply.

    Raises:
        InvalidCommandError: They are more than a command may have.

    """
    prefix = command.conflict_prefix
    written = removed = 0
    conflicts = 0
    for number, row in enumerate(command.rows):
        key, value = row.key, row.value
        if row.expected and not _is_expected(row, draft):
            conflicts |= 1 << number
            if prefix:
                draft.put(prefix + key, b"" if value is None else value)
        elif value is None:
            if draft.look(key) is not None:
                draft.delete(key)
                removed += 1
        elif row.ttl_ms:
            draft.put_expiring(key, value, row.ttl_ms)
            written += 1
        else:
            draft.put(key, value)
            written += 1
    return WroteRows(written, removed, conflicts.to_bytes((conflicts.bit_length() + 7) // 8, "little"))


def _is_expected(row: RowWrite, draft: Draft) -> bool:
    (expected,) = row.expected
    found = draft.look(row.key)
    if found is None:
        return expected is None
    return found.revision == expected if isinstance(expected, int) else found.value == expected
