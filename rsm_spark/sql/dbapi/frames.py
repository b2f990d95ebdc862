"""Rows as a table of Arrow, from which pandas and polars make theirs. pyarrow is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from rsm_spark.sql.dbapi.errors import DataError, NotSupportedError

_TYPES: Final = (
    ("INT", "int64"), ("BOOL", "int64"), ("CHAR", "string"), ("CLOB", "string"), ("TEXT", "string"), ("BLOB", "binary"),
    ("REAL", "float64"), ("FLOA", "float64"), ("DOUB", "float64"), ("DATE", "string"), ("TIME", "string"),
)  # fmt: skip
"""Words of a declared type -> type of Arrow; the first that is in it."""


def arrow_table(columns: Sequence[tuple[str, str]], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return rows as a table of Arrow.

    A column has the type that its table declares: 64-bit integers, doubles, texts (dates and times too), bytes. A
    column that is computed, or declared otherwise, has the type of its values.

    Args:
        columns: Name and declared type of each.
        rows: Of them.

    Raises:
        DataError: A column has values that are of no common type, or not of the one that is declared.
        NotSupportedError: There is no pyarrow.

    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
    except ImportError as error:
        raise NotSupportedError("pyarrow is missing: pip install pyarrow") from error
    arrays: list[Any] = []
    for place, (name, declared) in enumerate(columns):
        words = declared.upper()
        found = next((kind for word, kind in _TYPES if word in words), None)
        try:
            kind = None if found is None else pa.type_for_alias(cast("Any", found))
            arrays.append(pa.array([row[place] for row in rows], type=kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            kind_said = declared or "no type declared"
            raise DataError(
                f"column {name} ({kind_said}) has values of several types: CAST it in the query: {error}"
            ) from error
    return pa.Table.from_arrays(arrays, names=[name for name, _ in columns])


def polars_frame(table: Any) -> Any:
    """Return a table of Arrow as a data frame of polars.

    Raises:
        NotSupportedError: There is no polars.

    """
    try:
        import polars as pl  # noqa: PLC0415 - optional
    except ImportError as error:
        raise NotSupportedError("polars is missing: pip install polars") from error
    return pl.DataFrame(table)
