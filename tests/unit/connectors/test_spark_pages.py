"""What is generated from the code of the Spark side is current, and names all that there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from connectors.sink.option_table import SINK_OPTION_NAMES
from connectors.source.option_table import OPTION_NAMES, STORAGE_OPTION_PREFIX
from connectors.source.schema import KAFKA_COLUMNS, RAW_COLUMNS, RECORD_COLUMNS
from connectors.state.option_table import STATE_OPTION_TABLE
from connectors.state.options import STATE_OPTIONS

_ROOT = Path(__file__).resolve().parents[3]


def test_the_generated_files_are_current() -> None:
    check = [sys.executable, str(_ROOT / "tools" / "write_spark_pages.py"), "--check"]
    checked = subprocess.run(check, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_option_is_a_row_of_the_page() -> None:
    page = (_ROOT / "docs" / "spark-options.md").read_text(encoding="utf-8")
    of_ledger, of_state = page.split("## Options of `ledger_state`")
    rows = re.findall(r"^\| `([\w.]+)(?:<key>)?` \|", of_ledger, re.MULTILINE)
    assert rows == list(OPTION_NAMES)
    of_state, of_sink = of_state.split("## Columns")[0].split("## Options of the sink `ledger`")
    assert re.findall(r"^\| `(\w+)` \|", of_sink, re.MULTILINE) == list(SINK_OPTION_NAMES)
    assert set(re.findall(r"^\| `(\w+)` \|", of_state, re.MULTILINE)) == set(STATE_OPTIONS)
    assert f"`{STORAGE_OPTION_PREFIX}<key>`" in of_state


def test_the_table_of_options_is_what_the_parser_of_states_knows() -> None:
    assert {option.name for option in STATE_OPTION_TABLE} == {*STATE_OPTIONS, STORAGE_OPTION_PREFIX}


def test_every_column_is_in_the_page_with_its_type() -> None:
    page = (_ROOT / "docs" / "spark-options.md").read_text(encoding="utf-8")
    for column in (*RAW_COLUMNS, *RECORD_COLUMNS, *KAFKA_COLUMNS):
        assert re.search(rf"^{column.name} {re.escape(column.type)},?$", page, re.MULTILINE), column
