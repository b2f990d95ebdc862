"""Records to facts, in Spark's tasks: of a record only what the history needs leaves the executor, never a payload.

A fact is (revision, kind, logged time, msgpack array of values). Before the facts of each batch stands one of kind
RANGE, which says which records they were taken from: so the driver knows that none is
missing, though most are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.history.layout import Fact, HistoryLayout
from connectors.history.words import FactKind
from rsm_spark.core.machine import MachineDescription, decode_description

__all__ = [
    "FACTS_DDL",
    "RECORD_COLUMNS",
    "FactBatch",
    "RangeEnd",
    "descriptions_in",
    "fact_reader",
    "facts_before",
    "read_facts",
]

RECORD_COLUMNS = ("revision", "ledger_id", "entry_id", "logged_at", "name", "key", "row", "fields", "entry_hash")
"""Columns of `rows=records` that facts are made of."""

FACTS_DDL = "revision bigint, kind int, logged_ms bigint, values binary"
"""Spark's schema of facts."""

_FIELDS: list[pa.Field[Any]] = [
    pa.field("revision", pa.int64()),
    pa.field("kind", pa.int32()),
    pa.field("logged_ms", pa.int64()),
    pa.field("values", pa.binary()),
]
_FACTS_ARROW = pa.schema(_FIELDS)
_DESCRIBED = FactKind.MACHINE_DESCRIBED.name.lower()
_DECODER = msgspec.msgpack.Decoder(list[Any])


class RangeEnd(NamedTuple):
    """The last record of a range of the log and where it is; the hash is None if it does not end its entry."""

    revision: int
    ledger_id: int
    entry_id: int
    prefix_hash: bytes | None


class FactBatch(NamedTuple):
    """The facts of a range of records without a gap.

    Attributes:
        first: Revision of the first record.
        end: Of the last one.
        facts: In the order of the log.

    """

    first: int
    end: RangeEnd
    facts: list[Fact]


def fact_reader(layout: HistoryLayout) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `DataFrame.mapInArrow` that makes facts of `RECORD_COLUMNS`."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        picks = layout.by_name()
        wanted = pa.array([*picks, _DESCRIBED], pa.string())
        for batch in batches:
            if batch.num_rows:
                yield _facts(batch, picks, wanted)

    return read


def _facts(batch: pa.RecordBatch, picks: dict[str, Any], wanted: pa.Array[Any]) -> pa.RecordBatch:
    last = batch.num_rows - 1
    end = {name: batch.column(name)[last].as_py() for name in ("revision", "ledger_id", "entry_id", "entry_hash")}
    first = batch.column("revision")[0].as_py()
    span = msgspec.msgpack.encode([first, batch.num_rows, end["ledger_id"], end["entry_id"], end["entry_hash"]])
    kept = batch.filter(pc.is_in(batch.column("name"), value_set=wanted))
    kinds: list[int] = [FactKind.RANGE]
    values: list[bytes] = [span]
    columns = [kept.column(name).to_pylist() for name in ("name", "key", "row", "fields")]
    for name, key, row, fields in zip(*columns, strict=True):
        pick = picks.get(name)
        if pick is None:
            kinds.append(FactKind.MACHINE_DESCRIBED)
            values.append(fields)
        else:
            kinds.append(pick.kind)
            values.append(pick.values(key, row, fields))
    logged = pc.divide(kept.column("logged_at").cast(pa.int64()), 1000)
    return pa.RecordBatch.from_arrays(
        [
            pa.concat_arrays([pa.array([end["revision"]], pa.int64()), kept.column("revision")]),
            pa.array(kinds, pa.int32()),
            pa.concat_arrays([pa.array([0], pa.int64()), logged]),
            pa.array(values, pa.binary()),
        ],
        schema=_FACTS_ARROW,
    )


def read_facts(table: pa.Table, after: int) -> FactBatch | None:
    """Read what the tasks made of a micro-batch; None if it holds nothing after a revision.

    Args:
        table: Facts, in any order.
        after: Facts up to this revision are left out: they have been applied.

    Raises:
        ValueError: Records are missing inside the micro-batch; says which follow which.

    """
    ranges: list[tuple[int, RangeEnd]] = []
    facts: list[Fact] = []
    rows = zip(*(table.column(name).to_pylist() for name in _FACTS_ARROW.names), strict=True)
    for revision, kind, logged_ms, packed in rows:
        values = _DECODER.decode(packed)
        if kind == FactKind.RANGE:
            first, count, ledger_id, entry_id, prefix_hash = values
            if revision - first + 1 != count:
                raise ValueError(f"{count} records from {first} to {revision}")
            ranges.append((first, RangeEnd(revision, ledger_id, entry_id, prefix_hash)))
        elif revision > after:
            facts.append(Fact(revision, kind, logged_ms, values))
    ranges.sort()
    for (_, end), (first, _) in itertools.pairwise(ranges):
        if first != end.revision + 1:
            raise ValueError(f"record {first} follows record {end.revision}")
    if not ranges or ranges[-1][1].revision <= after:
        return None
    facts.sort(key=lambda fact: fact.revision)
    return FactBatch(ranges[0][0], ranges[-1][1], facts)


def descriptions_in(table: pa.Table) -> list[tuple[int, MachineDescription]]:
    """Return the descriptions of the machine among facts, with the revisions of their records, ascending."""
    found = table.filter(
        pc.equal(table.column("kind"), pa.scalar(int(FactKind.MACHINE_DESCRIBED), pa.int32()))
    ).to_pylist()
    packed = sorted((row["revision"], row["values"]) for row in found)
    return [(revision, decode_description(_DECODER.decode(values)[0])) for revision, values in packed]


def facts_before(table: pa.Table, revision: int) -> pa.Table:
    """Return the facts of the records before this one: as if the micro-batch had ended there."""
    kept: list[dict[str, Any]] = []
    for row in table.to_pylist():
        if row["kind"] == FactKind.RANGE:
            first, *_ = _DECODER.decode(row["values"])
            if first >= revision:
                continue
            if row["revision"] >= revision:
                row["revision"] = revision - 1
                row["values"] = msgspec.msgpack.encode([first, revision - first, -1, -1, None])
        elif row["revision"] >= revision:
            continue
        kept.append(row)
    return pa.Table.from_pylist(kept, schema=_FACTS_ARROW)
