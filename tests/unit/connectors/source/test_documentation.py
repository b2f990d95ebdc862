"""That the documentation says the same as this table is tests/unit/connectors/test_spark_pages.py."""

from __future__ import annotations

from connectors.source.option_table import OPTIONS


def test_every_option_says_what_it_is() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    for option in OPTIONS:
        assert option.applies in {"both", "batch", "stream"}
        assert all((option.values, option.default, option.meaning)), option.name
        assert option.meaning.endswith("."), option.name
