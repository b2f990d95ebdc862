"""Rows as classes: their description, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

import rsm_spark as rsm
from rsm_spark.core.machine import Field, FieldType
from rsm_spark.core.typed_tables import column, table
from rsm_spark.errors import InvalidDescriptionError
from rsm_spark.testing import MachineHarness


class Loan(msgspec.Struct):
    number: int
    owner: str
    rate: float = 0.5
    note: str | None = None
    limit: Annotated[int, column(was=("overdraft",))] = 7
    stamp: Annotated[bytes | None, column(dropped=True)] = None


class Nested(msgspec.Struct):
    number: int
    loan: Loan


class Either(msgspec.Struct):
    number: int
    word: int | str


class Sale(msgspec.Struct):
    number: UUID
    price: Annotated[Decimal, column(precision=12, scale=2)]
    at: datetime
    day: date | None = None
    tags: list[str] = []
    more: dict[str, Any] | None = None


class Sales(rsm.Service):
    sales = table(Sale)

    @rsm.command
    def sell(self, sale: Sale) -> Sale:
        self.sales.put(sale)
        found = self.sales.get(sale.number)
        assert found is not None
        return found

    @rsm.query
    def sale(self, number: UUID) -> Sale | None:
        return self.sales.get(number)


def test_rows_have_columns_of_all_types() -> None:
    sold = Sale(
        UUID(int=7),
        Decimal("12.5"),
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        date(2026, 1, 2),
        ["new"],
        {"a": [1]},
    )
    harness = MachineHarness(Sales())
    assert harness.call(Sales.sell, sold) == sold
    assert harness.call(Sales.sale, sold.number) == sold
    assert harness.call(Sales.sale, UUID(int=8)) is None
    harness.restart()
    assert harness.call(Sales.sale, sold.number) == sold
    with pytest.raises(InvalidDescriptionError, match="digits behind the point"):
        harness.call(Sales.sell, Sale(UUID(int=9), Decimal("0.005"), sold.at))


def test_a_class_of_rows_is_its_description() -> None:
    described, records = table(Loan, key=("owner", "number")).described("loans", 16)
    assert described.key == (Field("owner", FieldType.STR), Field("number", FieldType.INT))
    assert described.row == (
        Field("rate", FieldType.FLOAT, default=0.5),
        Field("note", FieldType.STR, nullable=True),
        Field("limit", FieldType.INT, default=7, was=("overdraft",)),
        Field("stamp", FieldType.BYTES, nullable=True, dropped=True),
    )
    assert [(one.type, one.name, one.key) for one in records] == [
        (16, "loans_written", ("owner", "number")), (17, "loans_deleted", ("owner", "number")),
    ]  # fmt: skip


def test_the_first_field_is_the_key_unless_another_is_named() -> None:
    assert [one.name for one in table(Loan).described("loans", 16)[0].key] == ["number"]


@pytest.mark.parametrize(
    ("kind", "key", "fault"),
    [
        (Nested, "number", "field 'loan' is .*Loan.*, which is no type of a column: int, float, bool"),
        (Either, "number", "field 'word' is int | str, which is no type"),
        (Loan, ("owner", "name"), r"its key .* names no fields of it: \['name'\]"),
        (Loan, (), "names no fields"),
        (dict, None, "the rows of a table are a class, a msgspec.Struct"),
    ],
)
def test_what_is_no_table_is_refused_in_words(kind: Any, key: Any, fault: str) -> None:
    with pytest.raises(InvalidDescriptionError, match=fault):
        table(kind, key=key)


def test_a_table_without_a_service_has_no_rows() -> None:
    with pytest.raises(RuntimeError, match="rows of Loan are those of a service"):
        table(Loan).get(5)
