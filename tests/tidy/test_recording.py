"""The recording in the README is of a whole run, whose answers are those that the README shows, and it is a film."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import pytest

from tools.record_demo import Picture, Run, draw, record, speed

_ROOT = Path(__file__).resolve().parents[2]
_SVG = "{http://www.w3.org/2000/svg}"
_TALK = """
import sys
import time
sys.stdout.write("one\\r\\n\\x1b[1;32mtwo\\x1b[0m <&>\\r\\n")
sys.stdout.flush()
time.sleep(3)
sys.stdout.write("\\x1b[2A\\x1b[2Kthree\\r\\n")
"""


def test_the_recording_shows_the_answers_of_the_readme() -> None:
    readme = (_ROOT / "README.md").read_text()
    film = (_ROOT / "docs" / "demo.svg").read_text()
    (title,) = re.findall("<title>(.*)</title>", film)
    assert f"![{unescape(title)}](docs/demo.svg)" in readme
    rows = re.findall(r"^│ (\w+) +│((?: +[\d,]+ │)+)$", readme, re.MULTILINE)
    assert [name for name, _ in rows] == ["leader", "follower", "Delta", "SQL", "CSV"]
    said = [unescape(text) for text in re.findall(r"<text [^>]*>([^<]*)</text>", film)]
    for name, figures in rows:
        assert any(
            text.startswith(f"│ {name} ") and re.findall(r"[\d,]+", text) == re.findall(r"[\d,]+", figures)
            for text in said
        ), name
    assert "Equal row by row." in said


def test_a_terminal_is_recorded_as_it_looks_when_it_rests() -> None:
    pictures = record([sys.executable, "-c", _TALK], columns=20, rows=4)
    first, last = pictures[0], pictures[-1]
    assert first.lines[:2] == (
        (Run(0, "one", "#d8dee9", is_bold=False),),
        (Run(0, "two", "#7bd88f", is_bold=True), Run(4, "<&>", "#d8dee9", is_bold=False)),
    )
    assert last.lines[0] == (Run(0, "three", "#d8dee9", is_bold=False),)
    assert last.lines[1] == first.lines[1]
    assert last.at_s > first.at_s


def test_a_command_that_fails_is_no_recording() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        record([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_film_has_a_picture_for_each_moment_and_stands_still_at_the_last() -> None:
    pictures = [Picture(at_s, ((Run(0, f"<{at_s}>", "#fff", is_bold=False),), ())) for at_s in (0.0, 0.1, 60.0, 90.0)]
    film = ET.fromstring(draw(pictures, "a < b", columns=10))  # noqa: S314 - our own
    assert speed(pictures) == pytest.approx(2.0)
    assert [one.text for one in film.iter(f"{_SVG}title")] == ["a < b"]
    shown = [text.text for text in film.iter(f"{_SVG}text")]
    assert shown[:3] == ["<0.0>", "<60.0>", "<90.0>"], "a tenth of a second is too short for a picture of its own"
    assert "90 s, shown 2.0 times as fast" in (shown[3] or "")
    (style,) = [one.text or "" for one in film.iter(f"{_SVG}style")]
    (still,) = re.findall(r"\.film\{transform:translateX\((-?\d+)px\)\}@", style)
    moves = re.findall(r"([\d.]+)%\{transform:translateX\((-?\d+)px\)\}", style)
    assert [float(at) for at, _ in moves] == pytest.approx([0, 100 * 30 / 53, 100 * 45 / 53], abs=0.01)
    assert moves[-1][1] == still
