from __future__ import annotations

from pathlib import Path

from connectors.spark.option_table import OPTIONS
from connectors.spark.schema import RAW_DDL, RECORDS_DDL

_PAGE = (Path(__file__).resolve().parents[4] / "docs" / "spark.md").read_text(encoding="utf-8")


def test_every_option_says_what_it_is() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    for option in OPTIONS:
        assert option.applies in {"both", "batch", "stream"}
        assert all((option.values, option.default, option.meaning)), option.name
        assert option.meaning.endswith("."), option.name


def test_the_columns_in_the_page_are_those_of_the_source() -> None:
    text = " ".join(_PAGE.split())
    for ddl in (RAW_DDL, RECORDS_DDL):
        assert f"`{', '.join(column.split()[0] for column in ddl.split(', '))}`" in text
