"""docs/broker-history.md names what there is, and its job reads the arguments that it shows."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from connectors.history.columns import HISTORY_TABLES

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs" / "broker-history.md").read_text()
SECTIONS = {
    match[1]: match[0] for match in re.finditer(r"^\*\*`(\w+)`\*\*.*?(?=^\*\*`|^## )", TEXT, re.DOTALL | re.MULTILINE)
}


@pytest.mark.parametrize("name", HISTORY_TABLES)
def test_every_column_of_a_table_is_explained(name: str) -> None:
    told = set(re.findall(r"`(\w+)`", SECTIONS[name]))
    assert set(HISTORY_TABLES[name].schema.names) - told <= {"day", "_revision"}


def test_the_commands_that_are_shown_are_understood() -> None:
    job = runpy.run_path(str(ROOT / "jobs" / "broker_history.py"))
    shown = re.findall(r"spark-submit (jobs/\S+) (.*)", TEXT + (ROOT / "jobs" / "broker_history.py").read_text())
    assert len(shown) == 2
    for path, arguments in shown:
        assert (ROOT / path).exists()
        job["_settings"](job["_parser"]().parse_args(shlex.split(arguments)))


def test_the_options_that_are_named_exist() -> None:
    job = runpy.run_path(str(ROOT / "jobs" / "broker_history.py"))
    known = set(job["_parser"]()._option_string_actions)
    assert set(re.findall(r"--[a-z][a-z-]+", TEXT)) <= known
