"""Bounds of what the map holds and answers, and what is wrong with what breaks them."""

from __future__ import annotations

KEY_BYTES_MAX = 4096
VALUE_BYTES_MAX = 1024 * 1024
"""Bytes of a value: twice that and its key is well below an entry's 4 MiB; a snapshot row and a reply hold it too."""

SCAN_LIMIT_MAX = 10_000
SCAN_BYTES_MAX = 2 * 1024 * 1024
"""A page ends at whichever comes first: it is made in one go on the leader's loop, and travels in one message."""

COMPARES_MAX = 256
OPERATIONS_MAX = 256
"""Operations in each of a transaction's two lists: their results fit the 4 KiB of a reply unless they read values."""

BRANCH_PARTS_MAX = 1_000
"""Comparisons and operations of a nested transaction in all: its reply, a byte for each it holds, fits 4 KiB."""
COMPARED_KEYS_MAX = 10_000

RECORD_COUNT_MAX = 10_000
RECORD_BYTES_MAX = 3 * 1024 * 1024
"""Bytes of a command's records: they are in one entry of at most 4 MiB, and are made in one go on the leader's loop."""

ROW_WRITES_MAX = 10_000
"""Rows of one `WriteRows`; each makes two records at most."""

TTL_MS_MAX = 10 * 366 * 24 * 3_600_000
"""Ten years."""

INTEGER_MIN = -(1 << 63)
INTEGER_MAX = (1 << 63) - 1
_DIGITS_MAX = 19


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


def ttl_fault(ttl_ms: int) -> str | None:
    """Return what is wrong with a time to live, or None."""
    if 0 < ttl_ms <= TTL_MS_MAX:
        return None
    return f"a time to live is 1 to {TTL_MS_MAX} ms, this one is {ttl_ms}"


def integer_of(value: bytes) -> int | None:
    """Return the integer that a value holds, as increments write it: decimal digits, 64 bits; None if it holds none."""
    digits = value.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _DIGITS_MAX or (len(digits) > 1 and digits[:1] == b"0"):
        return None
    number = int(value)
    return number if INTEGER_MIN <= number <= INTEGER_MAX else None


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that begin with `prefix`; None if there is no such bound."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
