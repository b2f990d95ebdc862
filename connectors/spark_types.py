"""Types of Spark for described columns. Import-light: Spark asks for them often."""

from __future__ import annotations

import re
from typing import Final

from rsm_spark.core.machine import Field, FieldType

_SPARK: Final[dict[FieldType, str]] = {
    FieldType.INT: "bigint",
    FieldType.FLOAT: "double",
    FieldType.BOOL: "boolean",
    FieldType.STR: "string",
    FieldType.BYTES: "binary",
    FieldType.TIMESTAMP: "timestamp",
    FieldType.DATE: "date",
    FieldType.UUID: "string",
    FieldType.JSON: "string",
}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_ARRAY: Final = re.compile("array<(.+)>")
TYPES_SHOWN: Final = f"{', '.join(dict.fromkeys(_SPARK.values()))}, decimal(p,s), or an array of one of these"
"""All of them in words."""


def spark_type(field: Field) -> str:
    """Return a column's type in Spark's words."""
    match field.type:
        case FieldType.DECIMAL:
            return f"decimal({field.precision},{field.scale})"
        case FieldType.LIST:
            return f"array<{spark_type(field.item)}>"
    return _SPARK[field.type]


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of Spark's decimal type; None if it is none."""
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else (int(found[1]), int(found[2]))


def element_of(kind: str) -> str | None:
    """Return the element type of Spark's array type; None if it is none."""
    found = _ARRAY.fullmatch(kind)
    return None if found is None else found[1]


def is_column_type(kind: str) -> bool:
    """Return whether a described column can have this type."""
    element = element_of(kind)
    scalar = kind if element is None else element
    return scalar in _SPARK.values() or decimal_of(scalar) is not None
