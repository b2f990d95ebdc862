"""Lint, types and layers: what the tools of the project say about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_BIN = Path(sys.executable).parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "--quiet", "--output-format", "concise", "."),
        ("mypy", "--no-error-summary"),
        ("lint-imports", "--no-logo"),
    ],
    ids=lambda command: command[0],
)
def test_tool_has_nothing_to_say(command: tuple[str, ...]) -> None:
    result = subprocess.run([_BIN / command[0], *command[1:]], cwd=_ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.fail(f"{result.stdout}{result.stderr}", pytrace=False)
