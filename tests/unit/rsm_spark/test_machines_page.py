"""docs/machines.md: its code runs, its versions follow each other, its error is the one that is told."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.records import pack
from rsm_spark.errors import InvalidDescriptionError
from rsm_spark.testing import MachineHarness

_PAGE = (Path(__file__).resolve().parents[3] / "docs" / "machines.md").read_text(encoding="utf-8")


@pytest.fixture
def page() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL):  # Each goes on from the one before.
        exec(compile(code, "docs/machines.md", "exec"), names)  # noqa: S102 - the page's own code
    return names


def test_its_versions_follow_each_other_and_rows_of_the_first_are_read_by_the_last(page: dict[str, Any]) -> None:
    bank = page["Bank"]()
    versions = [page[f"V{number}"] for number in (1, 2, 3)]
    records = [("ann", 5), ("bob", 6, "b@x", 100), ("cid", 7, None, 8)]
    for revision, (description, fields) in enumerate(zip(versions, records, strict=True), 1):
        bank.follow(description)
        bank.apply(16, fields, revision)
    assert dict(bank.items("accounts")) == {("ann",): (5, None, 0), ("bob",): (6, None, 100), ("cid",): (7, None, 8)}
    assert [row.row for row in bank.rows()] == [pack(fields[1:]) for fields in records]
    (record,) = bank.decide(b"ann", 4, 0).records
    assert bank.loggable([record]) == [(16, ("ann", 6, None, 0))]
    with pytest.raises(InvalidDescriptionError):
        check_evolution(versions[2], versions[0])


def test_until_the_version_is_raised_a_command_that_needs_it_is_refused_as_the_page_says(page: dict[str, Any]) -> None:
    bank = type("Second", (page["Bank"],), {"description": page["V2"]})()
    bank.follow(page["V1"])
    assert bank.loggable([(16, ("ann", 6, None, 0))]) == [(16, ("ann", 6))]
    (said,) = re.findall(r"refused: `(field.*?)`", " ".join(_PAGE.split()))
    with pytest.raises(InvalidDescriptionError, match=re.escape(said)):
        bank.loggable([(16, ("ann", 6, "a@x", 0))])


def test_its_shop_logs_what_fits_and_refuses_the_rest_as_the_page_says(page: dict[str, Any]) -> None:
    shop = page["Shop"]()
    harness = MachineHarness(shop)
    harness.execute(b"12.5")
    (row,) = dict(shop.items("orders")).values()
    assert row == (Decimal("12.50"), datetime.fromtimestamp(harness.now_ms / 1000, UTC), ["new"])
    with pytest.raises(InvalidDescriptionError, match="more than 2 digits behind the point"):
        shop.loggable(shop.decide(b"0.005", 9, 0).records)


def test_its_typed_services_do_what_it_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)[:5]
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks), "docs/machines.md", "exec"), names)  # noqa: S102 - the page's own code
    bank, shop = MachineHarness(names["Bank"]()), MachineHarness(names["Shop"]())
    assert bank.execute(b'["deposit", {"name": "ann", "amount": 5}]').reply == b"[5]"
    assert bank.execute(b'["withdraw", {"name": "ann", "amount": 7}]').reply == b'["InsufficientFunds",{"missing":2}]'
    assert shop.call(names["Shop"].bank.deposit, "ann", 5) == 5
    assert shop.call(names["Shop"].pay, "ann", 5) == 1
    assert shop.rows("bank.accounts") == {("ann",): (0,)}
    seats = MachineHarness(names["Seats"]())
    seats.execute(b'["hold", {"seat": "1a", "buyer": "ann"}]')
    assert seats.advance(59_999) == ()
    assert seats.advance(1) == (("holds_deleted", {"seat": "1a"}),)


def test_its_migration_splits_the_names_of_before(page: dict[str, Any]) -> None:
    harness = MachineHarness(page["People"]())
    harness.execute(b"Ann Bee")
    (key,) = dict(harness.machine.items("people"))  # type: ignore[attr-defined]
    people = page["NamedPeople"]()
    harness.restart(people)
    harness.raise_version()
    assert people.get("people", *key) == (None, "Ann", "Bee")
