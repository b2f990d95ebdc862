"""SQL statements in a shared session's context: each in a session of its own, with an equal share of the cores."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType

from connectors.error_text import spoken_error
from connectors.pool.shares import StatementSlots

_LOGGER = logging.getLogger(__name__)
_LABEL_LENGTH_MAX = 120
# Arrow has no type for them, or one that nobody can read.
_AS_TEXT = frozenset({"VariantType", "YearMonthIntervalType", "CalendarIntervalType", "GeometryType", "GeographyType"})
_ENVELOPE_BYTES = 256
_BOUND_LATE = "spark.sql.legacy.parameterSubstitution.constantsOnly"


class Statement(Protocol):
    """Statement to run: see `SharedSession.run`."""

    @property
    def sql(self) -> str: ...

    @property
    def args(self) -> dict[str, Any] | list[Any] | None:
        """Values of its parameters."""
        ...

    @property
    def limit(self) -> int:
        """Rows of the result at most."""
        ...

    @property
    def table(self) -> str:
        """Table to write to; "" = none."""
        ...

    @property
    def path(self) -> str:
        """Place to write to; "" = none."""
        ...

    @property
    def format(self) -> str:
        """Format of the written rows; "" = as Spark is set."""
        ...

    @property
    def mode(self) -> str:
        """Mode of the write if the table exists already."""
        ...


class SharedSession:
    """Runs statements, on any thread.

    Args:
        spark: Whose context is shared: catalog, cached tables and credentials are everybody's. Temporary views,
            settings and functions are each statement's own, and end with it.

    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._slots = StatementSlots()

    def run(self, statement: Statement, *, group: str, tenant: str, effect: str, result_bytes_max: int) -> bytes:
        """Run a statement and return its result as JSON: columns and rows, or where they were written to.

        Args:
            statement: What.
            group: Of its jobs: what `cancel` takes.
            tenant: Named on Spark's pages.
            effect: Names what it does: an append to a Delta table that was done under this name is not done again.
            result_bytes_max: Of the result: rows beyond it are left out.

        Raises:
            PySparkException: It failed.

        """
        context = self._spark.sparkContext
        label = f"{tenant}: {statement.sql}"[:_LABEL_LENGTH_MAX]
        with self._slots.taken() as pool:
            context.setJobGroup(group, label, interruptOnCancel=False)
            context.setLocalProperty("spark.scheduler.pool", pool)
            rows = _opened(self._spark.newSession(), statement)
            if statement.table or statement.path:
                return msgspec.json.encode(_write(rows, statement, effect))
            return _result(rows, statement.limit, result_bytes_max)

    def cancel(self, group: str) -> None:
        """Break off the jobs of a group that run now."""
        try:
            self._spark.sparkContext.cancelJobGroup(group)
        except Exception as error:  # noqa: BLE001 - the context is gone, and the jobs with it
            _LOGGER.debug("cannot cancel %s: %s", group, error)

    @staticmethod
    def words(error: Exception) -> str:
        """Return what an error says, without traces."""
        return f"{type(error).__name__}: {spoken_error(error)}"


def _opened(session: SparkSession, statement: Statement) -> DataFrame:
    if statement.args is None:
        return session.sql(statement.sql)
    if session.conf.get("spark.sql.extensions", ""):
        # Delta's parser hands no parameters on (github.com/delta-io/delta/issues/7640): bound after parsing they work.
        session.conf.set(_BOUND_LATE, "true")
    return session.sql(statement.sql, args=statement.args)


def _write(rows: DataFrame, statement: Statement, effect: str) -> Mapping[str, str]:
    writer = rows.write.mode(statement.mode)
    if statement.format:
        writer = writer.format(statement.format)
    if statement.format == "delta" and statement.mode == "append":
        writer = writer.option("txnAppId", effect).option("txnVersion", "1")
    if statement.table:
        writer.saveAsTable(statement.table)
        return {"table": statement.table}
    writer.save(statement.path)
    return {"path": statement.path}


def _result(rows: DataFrame, limit: int, bytes_max: int) -> bytes:
    names, types = rows.columns, [field.dataType for field in rows.schema.fields]
    if not names:
        return encode_rows([], (), limit=0, bytes_max=bytes_max)
    # By place: two columns may have one name.
    placed = rows.limit(limit + 1).toDF(*(f"c{place}" for place in range(len(names))))
    table = placed.select(*(_readable(f"c{place}", kind) for place, kind in enumerate(types))).toArrow()
    columns = [{"name": name, "type": kind.simpleString()} for name, kind in zip(names, types, strict=True)]
    return encode_rows(columns, _rows_of(table), limit=limit, bytes_max=bytes_max)


def _readable(name: str, kind: DataType) -> Any:
    column = sql.col(name)
    return column.cast("string").alias(name) if type(kind).__name__ in _AS_TEXT else column


def _rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def encode_rows(
    columns: Sequence[Mapping[str, str]], rows: Iterator[tuple[Any, ...]] | tuple[()], *, limit: int, bytes_max: int
) -> bytes:
    """Return a result as JSON: {"columns": […], "rows": [[…], …], "row_count": n, "is_cut": false}.

    Times are texts as in RFC 3339, decimals texts, bytes Base64, what is no number null.

    Args:
        columns: Their names and types.
        rows: One more than `limit` if there are more.
        limit: Rows at most.
        bytes_max: Of the JSON: rows beyond it are left out.

    """
    head = b'{"columns":%s,"rows":[' % msgspec.json.encode(columns)
    size = len(head) + _ENVELOPE_BYTES
    kept: list[bytes] = []
    is_cut = False
    for row in rows:
        text = msgspec.json.encode(row, enc_hook=str)
        size += len(text) + 1
        if len(kept) == limit or size > bytes_max:
            is_cut = True
            break
        kept.append(text)
    tail = b'],"row_count":%d,"is_cut":%s}' % (len(kept), b"true" if is_cut else b"false")
    return head + b",".join(kept) + tail
