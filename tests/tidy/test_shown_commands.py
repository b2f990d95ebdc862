"""Every `rsm …` that a page shows is a command that there is, with options that it has.

What such commands do is tried page by page, with real processes; this holds for all pages, however new.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rsm_spark.cli.main import _app as app

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = sorted(
    str(path.relative_to(_ROOT))
    for path in (*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md"))
    if path.name != "CHANGELOG.md"
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _typed(page: str) -> Iterator[list[str]]:
    """Yield the words of each `rsm` that a page's blocks for a shell have."""
    for kind, block in _BLOCK.findall((_ROOT / page).read_text()):
        if kind not in {"sh", "bash", ""}:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True) if re.search(r"\brsm ", line) and "│" not in line else []
            starts = [at for at, word in enumerate(words) if word == "rsm" or word.endswith("/bin/rsm")]
            for at in starts:
                if at == 0 or words[at - 1] in {"&&", "|", "--", "sudo", "exec"} or "=" in words[at - 1]:
                    yield words[at + 1 :]


def command_faults(words: list[str]) -> list[str]:
    """Return why the words behind `rsm` are no command of it with options that it has, in words."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("rsm", [], resilient_parsing=True)
    at = 0
    while (below := getattr(context.command, "commands", None)) and at < len(words) and words[at][:1] != "-":
        if words[at] not in below:
            return [f"rsm {' '.join(words[: at + 1])}: no such command"]
        found = context.command.get_command(context, words[at])
        context = found.make_context(words[at], [], parent=context, resilient_parsing=True)
        at += 1
    known = {name for option in context.command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    end = next((i for i, word in enumerate(words) if word in {"|", "&&", "&", ";", ">", "2>", "--"}), len(words))
    given = {word.partition("=")[0] for word in words[at:end] if re.match(r"--[a-z]", word)}
    return [f"rsm {' '.join(words[:at])}: no option {name}" for name in sorted(given - known)]


@pytest.mark.parametrize("page", _PAGES)
def test_commands_that_are_shown_exist_with_their_options(page: str) -> None:
    assert [fault for words in _typed(page) for fault in command_faults(words)] == []


def test_many_commands_are_shown_and_a_wrong_one_would_be_seen() -> None:
    assert sum(1 for page in _PAGES for _ in _typed(page)) > 150
    assert command_faults(["map", "put", "a", "b", "--lgo", "orders"]) == ["rsm map put: no option --lgo"]
    assert command_faults(["mpa", "put"]) == ["rsm mpa: no such command"]
    assert command_faults(["log", "show"]) == ["rsm log show: no such command"]
