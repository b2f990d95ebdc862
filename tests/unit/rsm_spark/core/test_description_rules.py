from __future__ import annotations

from decimal import Decimal

import pytest

from rsm_spark.core.description_rules import check_description
from rsm_spark.core.machine import Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.table_machine import upsert
from rsm_spark.errors import InvalidDescriptionError


def described(table: TableDescription) -> MachineDescription:
    return MachineDescription("shop", 1, (table,), (upsert(16, "written", table),))


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (Field("x", FieldType.DECIMAL), "precision=1…38"),
        (Field("x", FieldType.DECIMAL, precision=39), "precision=1…38"),
        (Field("x", FieldType.DECIMAL, precision=2, scale=3), "precision=1…38"),
        (Field("x", FieldType.INT, precision=2), "only decimals"),
        (Field("x", FieldType.LIST), "items"),
        (Field("x", FieldType.STR, items=FieldType.STR), "items"),
        (Field("x", FieldType.LIST, items=FieldType.JSON), "items"),
        (Field("x", FieldType.JSON, default={}), "can have no default"),
        (Field("x", FieldType.DATE, default=7), "its default 7 is not: it is of type int"),
        (Field("x", FieldType.DECIMAL, precision=2, default=Decimal("1.5")), "more than 0 digits behind"),
    ],
)
def test_a_type_that_makes_no_sense_is_refused(field: Field, said: str) -> None:
    table = TableDescription("t", (Field("k", FieldType.STR),), (field,))
    with pytest.raises(InvalidDescriptionError, match=said):
        check_description(described(table))


@pytest.mark.parametrize("kind", [FieldType.JSON, FieldType.LIST])
def test_what_has_many_forms_is_no_key(kind: FieldType) -> None:
    items = FieldType.STR if kind is FieldType.LIST else None
    with pytest.raises(InvalidDescriptionError, match="cannot be a key"):
        check_description(described(TableDescription("t", (Field("k", kind, items=items),), ())))
