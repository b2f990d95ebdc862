"""The rules and dashboards as files: current, whole, and told where they lie."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from rsm_spark.cli.main import _app
from rsm_spark.monitoring.command import FOLDER, monitoring_files

_ROOT = Path(__file__).resolve().parents[4]
_RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "prometheus" / "rsm-rules.yml").read_text())["groups"]
    for rule in group["rules"]
]


def test_dashboards_are_what_their_panels_say() -> None:
    check = [sys.executable, str(_ROOT / "tools" / "write_dashboards.py"), "--check"]
    assert subprocess.run(check, capture_output=True, text=True, check=False, cwd=_ROOT).stdout == ""


@pytest.mark.parametrize("rule", _RULES, ids=[rule["alert"] for rule in _RULES])
def test_a_rule_says_how_bad_it_is_what_to_do_and_where_more_stands(rule: dict) -> None:
    headings = re.findall(r"^#+ (.+)$", (_ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["runbook"] in anchors
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["action"].endswith(".")


def test_the_command_copies_all_files(tmp_path: Path) -> None:
    told = CliRunner().invoke(_app, ["monitoring", "-o", str(tmp_path), "--json"])
    assert told.exit_code == 0, told.output
    said = json.loads(told.output)
    assert said == {"folder": str(tmp_path), "files": monitoring_files()}
    assert len(said["files"]) == 6
    for name in said["files"]:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
