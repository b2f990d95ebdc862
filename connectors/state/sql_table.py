"""SQL tables with their own columns, made of the two tables by which a log of SQL tells them: its catalog and its rows.

Types of columns are those of the lake's typed tables: the declared one where all values are of it; see
`rsm_spark.sql.engine.column_kinds`. So rows are read twice, first for the kinds of their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.errors import OptionError
from connectors.spark_types import spark_type
from rsm_spark.core.machine import Field
from rsm_spark.errors import CorruptLogError
from rsm_spark.snapshots.column_arrays import arrow_array, arrow_type, converted
from rsm_spark.sql.engine.column_kinds import CONVERTS, ValueKind, kind_of, type_of
from rsm_spark.sql.engine.past_tables import PastTable, past_table

_REVISION = "_revision"
_KINDS_DDL = "place int, kind string"
_KIND_FIELDS: list[pa.Field[Any]] = [pa.field("place", pa.int32()), pa.field("kind", pa.string())]
_KINDS_ARROW = pa.schema(_KIND_FIELDS)


class _LoggedTable(msgspec.Struct, frozen=True):
    """A table as its catalog tells it; pickled to tasks."""

    name: str
    number: int
    sql: str

    def known(self) -> PastTable:
        return past_table(self.name, self.number, self.sql)


def sql_table(catalog: DataFrame, rows: DataFrame, name: str) -> DataFrame:
    """Return an SQL table with its own columns, without generated ones; then `_revision`, if no column has that name.

    Both frames are of one revision. Else the table may lack a column, or rows.

    Args:
        catalog: Table `catalog` of a log of SQL tables: of a follower in mode `merge`, or of `ledger_state`.
        rows: Its table `rows`, from there too.
        name: Of the table at that revision, in any case, as SQLite takes names.

    Raises:
        OptionError: There is no such table, or a frame is none of these.
        CorruptLogError: No leader has logged such a table.

    """
    _expect(catalog, ("name", "kind", "sql", "number"), "catalog")
    _expect(rows, ("number", "key", "image", _REVISION), "rows")
    table = _logged(catalog, name)
    known = table.known()
    packed = rows.where(F.col("number") == table.number).select("key", "image", _REVISION)
    seen: list[set[ValueKind]] = [set() for _ in known.columns]
    for one in packed.mapInArrow(partial(_kinds, table=table), _KINDS_DDL).distinct().collect():
        seen[one.place].add(ValueKind(one.kind))
    fields = tuple(
        Field(column, type_of(declared, kinds), nullable=True)
        for column, declared, kinds in zip(known.columns, known.declared, seen, strict=True)
    )
    columns = [f"`{field.name.replace('`', '``')}` {spark_type(field)}" for field in fields]
    has_revisions = _REVISION not in {column.lower() for column in known.columns}
    ddl = ", ".join([*columns, f"{_REVISION} bigint"] if has_revisions else columns)
    return packed.mapInArrow(partial(_typed, table=table, fields=fields, has_revisions=has_revisions), ddl)


def _expect(frame: DataFrame, columns: Sequence[str], table: str) -> None:
    if missing := [column for column in columns if column not in frame.columns]:
        raise OptionError(
            f"this is not the table {table} of a log of SQL tables, or not one row a key: it has no column "
            f"{', '.join(missing)}, only {', '.join(frame.columns):.500}; read it by format('ledger_state') with "
            f"table={table}, or from the table {table} of a follower in mode merge"
        )


def _logged(catalog: DataFrame, name: str) -> _LoggedTable:
    tables = catalog.where(F.col("kind") == "table").select("name", "number", "sql").collect()
    for one in tables:
        if one.name.lower() == name.lower():
            return _LoggedTable(one.name, one.number, one.sql)
    known = ", ".join(sorted(one.name for one in tables)) or "none"
    raise OptionError(f"there is no SQL table {name!r} in this catalog; its tables are {known:.500}")


def _values(known: PastTable, batch: pa.RecordBatch) -> list[list[Any]]:
    """Return the values of rows by column."""
    keys: list[Any] = batch.column("key").to_pylist()
    images: list[Any] = batch.column("image").to_pylist()
    rows = [tuple(known.row_of(key, known.values_of(image)).values()) for key, image in zip(keys, images, strict=True)]
    return [list(column) for column in zip(*rows, strict=True)]


def _kinds(batches: Iterable[pa.RecordBatch], table: _LoggedTable) -> Iterator[pa.RecordBatch]:
    known = table.known()
    found: set[tuple[int, str]] = set()
    for batch in batches:
        for place, values in enumerate(_values(known, batch)):
            found.update((place, kind.value) for kind in {kind_of(value) for value in values if value is not None})
    places, kinds = [place for place, _ in sorted(found)], [kind for _, kind in sorted(found)]
    arrays: list[Any] = [pa.array(places, pa.int32()), pa.array(kinds, pa.string())]
    yield pa.RecordBatch.from_arrays(arrays, schema=_KINDS_ARROW)


def _typed(
    batches: Iterable[pa.RecordBatch], table: _LoggedTable, fields: Sequence[Field], *, has_revisions: bool
) -> Iterator[pa.RecordBatch]:
    known = table.known()
    schema = pa.schema([pa.field(field.name, arrow_type(field)) for field in fields])
    if has_revisions:
        schema = schema.append(pa.field(_REVISION, pa.int64()))
    for batch in batches:
        if not batch.num_rows:
            continue
        arrays: list[Any] = []
        for field, values in zip(fields, _values(known, batch), strict=True):
            try:
                arrays.append(arrow_array(field, converted(values, CONVERTS.get(field.type))))
            except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
                raise CorruptLogError(
                    f"SQL table {table.name}: a value of column {field.name} is not {field.type.value}, as all were at "
                    f"the first look: {error}; read both tables at one revision"
                ) from error
        if has_revisions:
            arrays.append(batch.column(_REVISION))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
