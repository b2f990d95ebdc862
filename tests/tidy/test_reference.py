"""The reference of commands, HTTP and metrics is what the code tells now, and leaves nothing out."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.unit.rsm_spark.monitoring.exported_metrics import exported_pages

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = _ROOT / "docs" / "reference"


def test_the_pages_are_current() -> None:
    check = [sys.executable, str(_ROOT / "tools" / "write_reference_pages.py"), "--check"]
    done = subprocess.run(check, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_has_a_place_and_an_example() -> None:
    text = (_PAGES / "commands.md").read_text()
    sections = dict(re.findall(r"^##+ (rsm [^\n]+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    named = {entry_point.name for entry_point in entry_points(group="rsm_spark.commands")}
    assert {words.split()[1] for words in sections} == named
    leaves = [words for words in sections if not any(other.startswith(f"{words} ") for other in sections)]
    assert len(leaves) > 100
    typed = {words: "".join(re.findall(r"```sh\n(.*?)```", sections[words], re.DOTALL)) for words in leaves}
    assert [words for words in leaves if words not in typed[words]] == []


def test_every_metric_of_every_process_has_its_row() -> None:
    text = (_PAGES / "metrics.md").read_text()
    for kind, page in exported_pages().items():
        (section,) = re.findall(rf"^## {kind[0].upper()}{kind[1:]}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        for name in re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE):
            assert re.search(rf"^\| `{name}(?:_total)?` ", section, re.MULTILINE), name


def test_the_requests_of_broker_and_gateway_are_there_with_what_they_take() -> None:
    text = (_PAGES / "http.md").read_text()
    assert "| `POST /api/v1/tasks` |" in text
    assert "| `GET /api/v1/tasks/{task_id}` |" in text
    (row,) = re.findall(r"^\| TaskBody \|.*$", text, re.MULTILINE)
    assert "`type`," in row
    assert "`payload_json`?" in row
