"""The guide to dbt names options that there are; the whole of it is tests/spark/test_dbt.py."""

from __future__ import annotations

import re
from pathlib import Path

from connectors.source.options import Rows, parse_options
from connectors.state.options import parse_state_options

TEXT = (Path(__file__).parents[4] / "docs" / "guides" / "dbt.md").read_text()


def _options(source: str) -> dict[str, str]:
    (given,) = re.findall(rf"USING {source} OPTIONS \((.*?)\)", TEXT)
    return dict(re.findall(r"(\w+) '(.*?)'", given))


def test_the_options_of_the_sources_are_understood() -> None:
    options = parse_options(_options("ledger"), is_stream=False)
    assert (options.log, options.rows) == ("orders", Rows.TABLE)
    assert parse_state_options(_options("ledger_state")).table == "map"


def test_what_an_incremental_model_says_of_its_start_is_understood() -> None:
    (start,) = re.findall(r"set start = '(\{.*?) ~ '\}'", TEXT)
    for text in ("earliest", start.replace("' ~ (last | int + 1)", "52}")):
        options = parse_options({**_options("ledger"), "startingOffsets": text}, is_stream=False)
        assert options.starting
