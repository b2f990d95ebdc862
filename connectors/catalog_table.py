"""Tables of Spark's catalog that are made of a format of ours: their options travel in their schema.

Spark tells a Python source the options of a table once, when `CREATE TABLE` asks for its columns. A query of the table
hands over the stored schema and the query's own options, and nothing else. So the options are stored in the schema, in
the metadata of its first column, where no statement shows them and none changes them.

An `INSERT` gives the columns of its rows the metadata of the table's where it has to change their names or types. So a
table to write to has a column of a type that no frame has, a `varchar` (`LONGEST_TEXT`), if it has texts at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from connectors.errors import OptionError
from connectors.spark_types import decimal_of, element_of
from ledger.errors import UsageError
from rsm_spark.object_stores.storage_options import checked_uri, is_secret

OPTIONS_KEY = "ledger.options"
"""Key of a table's options in the metadata of its first column."""

LONGEST_TEXT = "varchar(2147483647)"
"""Type of a column of texts that is no `string`: rows that are inserted are always cast to it."""

_PREFIX = "option."
_SUBJECTS = frozenset({"log", "logpattern", "ledgers"})
# What Spark tells of a table besides its options.
_OF_TABLES = frozenset({"provider", "owner"})
_ATOMIC: dict[str, DataType] = {
    one.simpleString(): one
    for one in (
        BinaryType(), BooleanType(), DateType(), DoubleType(), IntegerType(), LongType(), StringType(), TimestampType(),
    )
}  # fmt: skip


class DefinedColumn(NamedTuple):
    """A column of a table.

    Attributes:
        name: Of it.
        type: In Spark's words.
        comment: Of it; "" = none.

    """

    name: str
    type: str
    comment: str = ""


def defined_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of the table that Spark is making; None if it asks for a query.

    Args:
        options: As Spark hands them over.

    Raises:
        OptionError: One holds a secret: whoever may read the catalog would read it.

    """
    own = {key[len(_PREFIX) :].lower(): value for key, value in options.items() if key.lower().startswith(_PREFIX)}
    if not own and not _OF_TABLES.issubset(key.lower() for key in options):
        return None
    for key, value in own.items():
        if is_secret(key) or _holds_secret(value):
            raise OptionError(
                f"CREATE TABLE: option {key} holds a secret, and options of a table are read by all who may read the "
                "catalog: have it in the environment of the driver, or give it to each query"
            )
    return own


def _holds_secret(value: str) -> bool:
    try:
        checked_uri(value)
    except UsageError:
        return True
    return False


def table_schema(columns: Iterable[DefinedColumn], options: Mapping[str, str]) -> StructType:
    """Return the schema of a table, with its options in it."""
    schema = StructType()
    for number, (name, kind, comment) in enumerate(columns):
        metadata: dict[str, Any] = {"comment": comment} if comment else {}
        if not number:
            metadata[OPTIONS_KEY] = dict(sorted(options.items()))
        schema.add(name, _data_type(kind), metadata=metadata)
    return schema


def query_options(given: Mapping[str, str], schema: StructType) -> tuple[dict[str, str], dict[str, str]]:
    """Return what a query is told: the options of its table, and its own, both by names in lower case.

    A query that names what it reads or writes is none of a table: metadata of columns go where frames go.

    Args:
        given: Options of the query, as Spark hands them over.
        schema: Of the query.

    """
    own = {key.lower(): value for key, value in given.items()}
    if _SUBJECTS & own.keys():
        return {}, own
    found: Mapping[str, Any] = next(
        (field.metadata[OPTIONS_KEY] for field in schema if OPTIONS_KEY in (field.metadata or {})), {}
    )
    return {str(key): str(value) for key, value in found.items()}, own


def _data_type(text: str) -> DataType:
    """Return a type of our columns by Spark's words for it: nobody parses them where there is no session."""
    decimal = decimal_of(text)
    if decimal is not None:
        return DecimalType(*decimal)
    element = element_of(text)
    if element is not None:
        return ArrayType(_data_type(element))
    outer, _, inner = text.removesuffix(">").partition("<")
    if outer == "map":
        key, _, value = inner.partition(",")
        return MapType(_data_type(key), _data_type(value))
    if outer == "struct":
        parts = [part.partition(":") for part in inner.split(",")]
        return StructType([StructField(name, _data_type(kind)) for name, _, kind in parts])
    if outer.startswith("varchar("):
        return VarcharType(int(outer[len("varchar(") : -1]))
    return _ATOMIC[text]
