"""Documents point at what exists."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")])
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


@cache
def _anchors(document: Path) -> frozenset[str]:
    """Return the anchors of a document's headings as GitHub and the site make them; the second of a name ends in -1."""
    seen: Counter[str] = Counter()
    anchors = set()
    for title in re.findall(r"^#{1,6} +(.+?) *$", _FENCED.sub("", document.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return frozenset(anchors)


def _dead_links(document: Path) -> list[str]:
    dead = []
    for path, anchor in _LINK.findall(_FENCED.sub("", document.read_text())):
        target = document.parent / path if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            dead.append(f"{path}#{anchor}" if anchor else path)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_and_their_anchors_resolve(document: Path) -> None:
    assert _dead_links(document) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A title, `with` marks\n## Twice\n## Twice\n```\n# no title\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Own\n[a](there.md#a-title-with-marks) [b](there.md#twice-1) [c](#own) [d](there.md)\n"
        "[e](there.md#no-title) [f](gone.md) [g](#nothing)\n"
    )
    assert _dead_links(page) == ["there.md#no-title", "gone.md", "#nothing"]


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


def test_commands_of_the_workflows_exist() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")))
    commands = re.findall(r"\bmake ((?:[a-z-]+ ?)+)", text)
    targets = {target for command in commands for target in command.split()}
    makefile = (ROOT / "Makefile").read_text()
    assert {"setup", "check", "test", "test-real", "test-slow"} <= targets
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
