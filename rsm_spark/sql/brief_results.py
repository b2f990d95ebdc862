"""Numbers of rows and row ids of many statements that return no rows, in a few bytes for all of them. Pure.

A reply has a place of its own in the log, so it is small. Statements that insert one row each differ by one in their
row id: the ids are written as steps from one to the next, and equal steps take next to no room when compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ledger.decoding import msgpack_decoder
from rsm_spark.sql.limits import STATEMENTS_MAX

_BYTES_MAX: Final = 32 * STATEMENTS_MAX
"""Of what a reply unpacks to: a count and a step have at most 9 bytes each, a flag one."""
_HALF: Final = 1 << 63
_ENCODE = msgspec.msgpack.Encoder().encode


class BriefResult(NamedTuple):
    """Outcome of a statement without rows; see `SqlResult`."""

    row_count: int
    last_rowid: int | None


class _Columns(msgspec.Struct, frozen=True, array_like=True):
    have_rows: tuple[bool, ...]  # Of each statement.
    row_counts: tuple[int, ...]  # Of each without rows.
    steps: tuple[int | None, ...]  # Of each without rows: from the last row id to its own, modulo 2^64; None = no id.


def pack(results: Sequence[BriefResult | None]) -> bytes:
    """Return bytes of which `unpack` makes the same; None stands for a statement whose result is kept elsewhere."""
    brief = [one for one in results if one is not None]
    steps: list[int | None] = []
    before = 0
    for one in brief:
        if one.last_rowid is None:
            steps.append(None)
        else:
            steps.append(_wrapped(one.last_rowid - before))
            before = one.last_rowid
    columns = _Columns(tuple(one is None for one in results), tuple(one.row_count for one in brief), tuple(steps))
    return zlib.compress(_ENCODE(columns))


def unpack(packed: bytes) -> list[BriefResult | None]:
    """Return what was packed.

    Raises:
        ValueError: It is damaged, or unpacks to more than a transaction may have.

    """
    inflating = zlib.decompressobj()
    try:
        content = inflating.decompress(packed, _BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"packed results cannot be unpacked: {error}") from None
    if not inflating.eof:
        raise ValueError(f"packed results are cut off, or have more than {_BYTES_MAX} bytes")
    columns = msgpack_decoder(_Columns).decode(content)
    if not len(columns.row_counts) == len(columns.steps) == columns.have_rows.count(False):
        raise ValueError("packed results have columns of different lengths")
    found: list[BriefResult | None] = []
    values = zip(columns.row_counts, columns.steps, strict=True)
    last = 0
    for has_rows in columns.have_rows:
        if has_rows:
            found.append(None)
            continue
        count, step = next(values)
        if step is not None:
            last = _wrapped(last + step)
        found.append(BriefResult(count, None if step is None else last))
    return found


def _wrapped(number: int) -> int:
    """Return a number as one of 64 bits with a sign."""
    return (number + _HALF) % (2 * _HALF) - _HALF
