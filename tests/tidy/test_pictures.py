"""The pictures of the documents are what the script draws, and each is shown by a page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from tools.draw_pictures import pictures

_EXPLAINED = Path(__file__).resolve().parents[2] / "docs" / "explained"


def test_pictures_are_as_drawn_and_shown() -> None:
    drawn = pictures()
    assert {path.name: path.read_text() for path in _EXPLAINED.glob("*.svg")} == drawn, "make pictures"
    pages = "".join(path.read_text() for path in _EXPLAINED.glob("*.md"))
    for name, text in drawn.items():
        (title,) = re.findall("<title>(.*)</title>", text)
        assert f"![{unescape(title)}]({name})" in pages
