from __future__ import annotations

from pathlib import Path

from connectors.spark.options import OPTION_NAMES
from connectors.spark.schema import RAW_DDL, RECORDS_DDL

_PAGE = (Path(__file__).resolve().parents[4] / "docs" / "spark.md").read_text(encoding="utf-8")


def test_every_option_is_in_the_page() -> None:
    assert [name for name in OPTION_NAMES if f"`{name}`" not in _PAGE] == []


def test_the_columns_in_the_page_are_those_of_the_source() -> None:
    text = " ".join(_PAGE.split())
    for ddl in (RAW_DDL, RECORDS_DDL):
        assert f"`{', '.join(column.split()[0] for column in ddl.split(', '))}`" in text
