"""Documents point at what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_paths_named_in_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    packages = re.findall(r"^\| `([\w/]+)`", text, re.MULTILINE)
    assert len(packages) > 8
    assert [package for package in packages if not (ROOT / package).exists()] == []


def test_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    assert sorted(target for target in targets if f"\n{target}:" not in makefile) == []


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    promises = [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| ---"))
    ]
    assert len(promises) > 15
    modules = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for promise in promises:
        shown_by = promise.rsplit("|", 2)[1]
        named = re.findall(r"`(test_\w+\.py)`", shown_by)
        folders = re.findall(r"`(tests/[\w/]+)`", shown_by) + re.findall(
            r"\b(model|simulation|processes|the same)\b", shown_by
        )
        assert named or folders, promise
        assert set(named) <= modules, promise
        assert all((ROOT / folder).exists() for folder in folders if "/" in folder), promise
