from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.column_types import column_type
from rsm_spark.core.description_rules import check_description
from rsm_spark.core.evolution import check_evolution, level_needed
from rsm_spark.core.machine import (
    Decision,
    Field,
    FieldType,
    MachineDescription,
    TableDescription,
    decode_description,
    encode_description,
)
from rsm_spark.core.records import TYPES_LEVEL, pack
from rsm_spark.core.table_machine import TableMachine, upsert
from rsm_spark.errors import InvalidDescriptionError
from rsm_spark.testing import MachineHarness

PRICE = Field("price", FieldType.DECIMAL, precision=12, scale=2)
TYPED = {
    PRICE: st.decimals(min_value=-9_999_999_999, max_value=9_999_999_999, places=2, allow_nan=False),
    Field("at", FieldType.TIMESTAMP): st.datetimes(timezones=st.just(UTC)),
    Field("day", FieldType.DATE): st.dates(),
    Field("id", FieldType.UUID): st.uuids(),
    Field("more", FieldType.JSON): st.dictionaries(
        st.text(), st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    )
    | st.lists(st.text()),
    Field("tags", FieldType.LIST, items=FieldType.STR): st.lists(st.text(max_size=5)),
    Field("days", FieldType.LIST, items=FieldType.DATE): st.lists(st.dates()),
    Field("prices", FieldType.LIST, items=FieldType.DECIMAL, precision=5, scale=1): st.lists(
        st.decimals(min_value=-9_999, max_value=9_999, places=1, allow_nan=False)
    ),
}
ORDERS = TableDescription(
    "orders",
    (Field("id", FieldType.UUID), Field("line", FieldType.INT)),
    (
        PRICE,
        Field("at", FieldType.TIMESTAMP),
        Field("day", FieldType.DATE, nullable=True),
        Field("more", FieldType.JSON, nullable=True),
        Field("tags", FieldType.LIST, items=FieldType.STR),
    ),
)


def described(version: int, *tables: TableDescription) -> MachineDescription:
    return MachineDescription("shop", version, tables, tuple(upsert(16 + n, t.name, t) for n, t in enumerate(tables)))


class Shop(TableMachine):
    description = described(1, ORDERS)
    given: tuple[Any, ...] = ()

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        return Decision([(16, self.given)], command)


ID = UUID(int=7)
ROW = (Decimal("12.5"), datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), date(2026, 1, 2), {"b": 1}, ["x"])


@pytest.mark.parametrize("field", TYPED, ids=lambda field: field.name)
@given(data=st.data())
def test_what_the_log_holds_comes_back_as_it_was_given_and_in_one_form(field: Field, data: st.DataObject) -> None:
    kind = column_type(field)
    assert kind.to_log is not None
    value = data.draw(TYPED[field])
    kept = kind.to_log(value)
    assert type(kept) is kind.kept
    back = kept if kind.from_log is None else kind.from_log(kept)
    assert back == value
    assert pack([kind.to_log(back)]) == pack([kept])


def test_a_machine_sees_python_and_the_log_holds_plain_values() -> None:
    shop = Shop()
    harness = MachineHarness(shop)
    shop.given = (ID, 1, *ROW)
    harness.execute(b"")
    at = datetime(2026, 1, 2, 1, tzinfo=UTC)
    assert shop.get("orders", ID, 1) == (Decimal("12.50"), at, date(2026, 1, 2), {"b": 1}, ["x"])
    assert [key for key, _ in shop.items("orders")] == [(ID, 1)]
    assert shop.revision_of("orders", ID, 1) == harness.revision
    (row,) = shop.rows()
    assert row.key == pack((ID.bytes, 1))
    assert row.row == pack(("12.50", 1_767_315_600_000_000, 20_455, '{"b":1}', ["x"]))
    assert harness.replay(Shop()).digest == harness.digest


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, "7", r"field 'id' of record 'orders' is described as uuid, this one is '7': it is no UUID"),
        (2, Decimal("1.005"), r"described as decimal\(12,2\), this one is .*more than 2 digits behind the point"),
        (2, Decimal(10**10), "more than 10 digits before the point"),
        (2, Decimal("NaN"), "no finite Decimal"),
        (2, 5, "no finite Decimal"),
        (3, datetime(2026, 1, 1), "it has no time zone"),  # noqa: DTZ001 - this is what is refused
        (3, None, "'at' of record 'orders' is described as timestamp, this one is of type NoneType"),
        (4, datetime(2026, 1, 1, tzinfo=UTC), "it is no date"),
        (5, {1: 2}, "keys are strings"),
        (5, (1, 2), "sequences are lists"),
        (5, float("nan"), "it is no JSON"),
        (5, {"a": {1}}, "it is no JSON"),
        (6, ("x",), "it is no list"),
        (6, [1], r"described as list\(str\), this one is \[1\]: it holds a value of type int"),
    ],
)
def test_what_does_not_fit_its_column_is_refused_before_it_is_logged(place: int, value: object, said: str) -> None:
    shop = Shop()
    fields: list[Any] = [ID, 1, *ROW]
    fields[place] = value
    with pytest.raises(InvalidDescriptionError, match=said):
        shop.loggable([(16, tuple(fields))])
    with pytest.raises(InvalidDescriptionError, match="there is no key"):
        shop.get("orders", "7", 1)


def test_a_description_is_read_back_with_its_defaults_and_types() -> None:
    extra = (
        Field("price", FieldType.DECIMAL, default=Decimal("0.50"), precision=5, scale=2),
        Field("at", FieldType.TIMESTAMP, default=datetime(1970, 1, 1, tzinfo=UTC)),
        Field("day", FieldType.DATE, default=date(2000, 2, 29)),
        Field("id", FieldType.UUID, default=UUID(int=1)),
        Field("tags", FieldType.LIST, nullable=True, items=FieldType.UUID),
    )
    plain = TableDescription("t", (Field("k", FieldType.STR),), ())
    wide = described(2, TableDescription("t", plain.key, extra))
    check_description(wide)
    check_evolution(described(1, plain), wide)
    assert decode_description(encode_description(wide)) == wide

    class Old(TableMachine):
        description = described(1, plain)

        def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
            return Decision([(16, (command.decode(),))], b"")

    class New(TableMachine):
        description = wide

    harness = MachineHarness(Old())
    harness.execute(b"a")
    new = New()
    harness.restart(new)
    assert new.get("t", "a") == tuple(field.default for field in extra)


def test_a_description_of_the_first_types_is_the_same_text_as_before_and_needs_no_level() -> None:
    plain = described(1, TableDescription("t", (Field("k", FieldType.STR),), (Field("n", FieldType.INT, default=1),)))
    field = json.loads(encode_description(plain))["tables"][0]["row"][0]
    assert field == {"name": "n", "type": "int", "default": 1}
    assert level_needed(plain) == 1
    assert level_needed(Shop.description) == TYPES_LEVEL


def test_another_scale_is_another_type() -> None:
    def version(number: int, scale: int) -> MachineDescription:
        price = Field("price", FieldType.DECIMAL, precision=9, scale=scale)
        return described(number, TableDescription("t", (Field("k", FieldType.STR),), (price,)))

    with pytest.raises(InvalidDescriptionError, match=r"was decimal\(9,2\) and is now decimal\(9,3\)"):
        check_evolution(version(1, 2), version(2, 3))
