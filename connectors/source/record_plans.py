"""Plans that make key, row and fields of a record: joined from the msgpack bytes of its fields as the log has them.

Nothing is decoded twice, and no Python values are made of what a record holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from rsm_spark.core.machine import Fold, MachineDescription
from rsm_spark.core.records import CommandHead, KernelRecord


class RawRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record whose fields stay bytes.

    They are a tuple: the garbage collector forgets one after a look, and follows a list for ever. Where a block holds
    thousands of records, that was half of what decoding them took.
    """

    type: int
    command: CommandHead | None
    fields: tuple[msgspec.Raw, ...]


class RecordPlan(NamedTuple):
    """Plan of a record type's key, row and fields; positions are those of its fields.

    Attributes:
        name: Of the type; None if nobody describes it.
        table: Whose row it decides; None for none, and for the kernel's own.
        fold: How; None for the kernel's own.
        key: Fields of the key; None if it has none.
        row: Fields of the row; None if it has none.
        keeps_fields: Whether key and row do not say everything.

    """

    name: str | None
    table: str | None
    fold: str | None
    key: tuple[int, ...] | None
    row: tuple[int, ...] | None
    keeps_fields: bool


UNKNOWN_PLAN = RecordPlan(None, None, None, None, None, keeps_fields=True)


def record_plans(description: MachineDescription | None) -> dict[int, RecordPlan]:
    """Return the plan of each record type: the kernel's, and the machine's as far as it is described."""
    plans = {
        int(kind): RecordPlan(kind.name.lower(), None, None, None, None, keeps_fields=True) for kind in KernelRecord
    }
    for record in description.records if description else ():
        at = {field.name: index for index, field in enumerate(record.fields)}
        has_key = record.fold != Fold.NONE
        key = tuple(at[name] for name in record.key) if has_key else None
        row = tuple(at[name] for name in record.row) if record.fold == Fold.UPSERT else None
        keeps = len(set((key or ()) + (row or ()))) < len(record.fields)
        plans[record.type] = RecordPlan(
            record.name, record.table or None, str(record.fold), key, row, keeps_fields=keeps
        )
    return plans


def join_all(records: Sequence[RawRecord], places: tuple[int, ...]) -> list[bytes]:
    """Return the msgpack arrays of these fields of records of one type.

    Raises:
        IndexError: A record has fewer fields.

    """
    if len(places) == 1:
        (place,) = places
        return [b"\x91" + record.fields[place] for record in records]
    if not places:
        return [_array_head(0)] * len(records)
    head, pick = _array_head(len(places)), itemgetter(*places)
    return [b"".join((head, *pick(record.fields))) for record in records]


def join_fields(fields: Sequence[msgspec.Raw]) -> bytes:
    """Return the msgpack array of all fields of a record."""
    return b"".join((_array_head(len(fields)), *fields))


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big")
