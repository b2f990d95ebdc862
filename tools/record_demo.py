"""Records `rsm demo` as it runs on a terminal, for the README: `python tools/record_demo.py` writes docs/demo.svg.

The film is an SVG that moves by CSS alone, so that a page shows it without a script. Time passes faster in it than in
the run, by a factor that its caption says. Who wants no motion, or has no CSS, sees the last picture. Arguments are a
command to record in place of the demo, whose last line, JSON, is left out.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyte
from pyte.screens import Char

_ROOT: Final = Path(__file__).resolve().parents[1]
_FILM: Final = _ROOT / "docs" / "demo.svg"
_COLUMNS: Final = 102
_ROWS: Final = 31
_REST_S: Final = 0.04
_PICTURE_S_MIN: Final = 0.25
_FILM_S: Final = 45.0
_LAST_S: Final = 8.0
_COLUMN_PX: Final = 8.0
_ROW_PX: Final = 18
_EDGE_PX: Final = 14
_INK: Final = "#d8dee9"
_COLOURS: Final = {
    "red": "#ff6b6b", "green": "#7bd88f", "brown": "#e5c07b", "blue": "#6cb6ff", "magenta": "#d19aff",
    "cyan": "#56d4dd", "black": "#7f8794", "white": "#ffffff", "brightblack": "#8b93a1",
}  # fmt: skip


class Run(NamedTuple):
    """Characters of one line that look alike, from a column on."""

    column: int
    text: str
    colour: str
    is_bold: bool


class Picture(NamedTuple):
    """Lines of a terminal at a moment, in seconds since the start."""

    at_s: float
    lines: tuple[tuple[Run, ...], ...]


def record(command: Sequence[str], *, columns: int = _COLUMNS, rows: int = _ROWS) -> list[Picture]:
    """Run a command on a terminal of its own and return what that showed, whenever it came to rest.

    Raises:
        subprocess.CalledProcessError: It failed.

    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=_ROOT)
    os.close(theirs)
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    pictures: list[Picture] = []
    began = time.monotonic()
    try:
        for said in _chunks(ours):
            stream.feed(said)
            if not said:
                _keep(pictures, Picture(time.monotonic() - began, _lines(screen)))
        _keep(pictures, Picture(time.monotonic() - began, _lines(screen)))
    finally:
        os.close(ours)
        code = child.wait()
    if code:
        raise subprocess.CalledProcessError(code, list(command))
    return pictures


def _chunks(terminal: int) -> Iterator[bytes]:
    """Yield what is written to a terminal until its last writer ends; empty once whenever no more comes for now."""
    is_told = False
    while True:
        if not is_told and not select.select([terminal], [], [], _REST_S)[0]:
            is_told = True
            yield b""
            continue
        is_told = False
        try:
            said = os.read(terminal, 65536)
        except OSError:  # EIO: nobody has it open any more
            return
        if not said:
            return
        yield said


def _keep(pictures: list[Picture], picture: Picture) -> None:
    if any(picture.lines) and (not pictures or pictures[-1].lines != picture.lines):
        pictures.append(picture)


def _lines(screen: pyte.Screen) -> tuple[tuple[Run, ...], ...]:
    return tuple(tuple(_runs(screen, row)) for row in range(screen.lines))


def _runs(screen: pyte.Screen, row: int) -> Iterator[Run]:
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    for (colour, is_bold), group in groupby(enumerate(cells), key=lambda cell: _look(cell[1])):
        part = list(group)
        text = "".join(cell.data for _, cell in part)
        if text.strip():
            yield Run(part[0][0] + len(text) - len(text.lstrip()), text.strip(), colour, is_bold)


def _look(cell: Char) -> tuple[str, bool]:
    named = _COLOURS.get(cell.fg.replace("bright", "") if cell.fg != "brightblack" else cell.fg)
    return named or (_INK if cell.fg == "default" else f"#{cell.fg}"), cell.bold


def speed(pictures: Sequence[Picture], film_s: float = _FILM_S) -> float:
    """Return how many times as fast as the run its film is; 1 for a run that is shorter than that."""
    return max(1.0, pictures[-1].at_s / film_s)


def draw(pictures: Sequence[Picture], title: str, *, columns: int = _COLUMNS) -> str:
    """Return the film as an SVG."""
    factor = speed(pictures)
    shown = _thinned(pictures, factor)
    rows = len(shown[0].lines)
    width, height = round(columns * _COLUMN_PX + 2 * _EDGE_PX), (rows + 2) * _ROW_PX + 2 * _EDGE_PX
    lasting = [(after.at_s - before.at_s) / factor for before, after in pairwise(shown)] + [_LAST_S]
    total = sum(lasting)
    steps, at = [], 0.0
    for number, seconds in enumerate(lasting):
        steps.append(f"{100 * at / total:.3f}%{{transform:translateX({-number * width}px)}}")
        at += seconds
    numbers: dict[tuple[Run, ...], int] = {}
    frames = []
    for number, picture in enumerate(shown):
        uses = "".join(
            f'<use href="#l{numbers.setdefault(line, len(numbers))}" y="{(row + 3) * _ROW_PX}"/>'
            for row, line in enumerate(picture.lines)
            if line
        )
        frames.append(f'<g transform="translate({number * width} 0)">{uses}</g>')
    defined = "\n".join(f'<g id="l{number}">{"".join(map(_text, line))}</g>' for line, number in numbers.items())
    still = f".film{{transform:translateX({-(len(shown) - 1) * width}px)}}"
    caption = f"$ make demo   {pictures[-1].at_s:,.0f} s, shown {factor:.1f} times as fast"
    style = (
        f"text{{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}"
        f"{still}@keyframes film{{{''.join(steps)}}}"
        "@media (prefers-reduced-motion:no-preference)"
        f"{{.film{{animation:film {total:.1f}s steps(1,end) infinite}}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">\n<title>{escape(title)}</title>\n<style>{style}</style>\n<defs>\n{defined}\n</defs>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#16181d"/>\n'
        f'<text x="{_EDGE_PX}" y="{_EDGE_PX + 8}" fill="#8b93a1">{escape(caption)}</text>\n'
        f'<svg x="{_EDGE_PX}" width="{width - _EDGE_PX}" height="{height}"><g class="film">\n'
        + "\n".join(frames)
        + "\n</g></svg>\n</svg>\n"
    )


def _thinned(pictures: Sequence[Picture], factor: float) -> list[Picture]:
    """Return the pictures that last for a quarter of a second of the film at least, and the last one."""
    kept = [pictures[0]]
    for picture in pictures[1:]:
        if picture.at_s - kept[-1].at_s >= _PICTURE_S_MIN * factor:
            kept.append(picture)
    return kept if kept[-1] is pictures[-1] else [*kept, pictures[-1]]


def _text(run: Run) -> str:
    weight = ' font-weight="bold"' if run.is_bold else ""
    return (
        f'<text x="{run.column * _COLUMN_PX:g}" textLength="{len(run.text) * _COLUMN_PX:g}" '
        f'fill="{run.colour}"{weight}>{escape(run.text, quote=False)}</text>'
    )


def main() -> None:
    """Record the command of the arguments, or the demo, into docs/demo.svg."""
    demo = f"exec {Path(sys.executable).with_name('rsm')} demo > {os.devnull}"
    command = sys.argv[1:] or ["sh", "-c", demo]
    _FILM.write_text(draw(record(command), "A recording of make demo"))
    print(f"recorded {' '.join(command)} into {_FILM}")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
