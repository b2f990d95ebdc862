"""Draws the pictures of docs/explained: `python tools/draw_pictures.py` writes them anew.

Each is an SVG without colours of its own but ink and paper, so that it is read on light and dark pages and on paper.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "explained"
_LANE_PX: Final = 170
_ROW_PX: Final = 38
_TOP_PX: Final = 64
_STYLE: Final = (
    "text{font:14px sans-serif;fill:#222;paint-order:stroke;stroke:#fff;stroke-width:4px}"
    ".name{font-weight:bold;text-anchor:middle}"
    ".said{text-anchor:middle}.note{text-anchor:start;fill:#555}.box{fill:#fff;stroke:#222}"
    ".lane{stroke:#bbb}.gone{stroke:#bbb;stroke-dasharray:2 6}.arrow{stroke:#222;fill:none;marker-end:url(#head)}"
    ".lost{stroke:#b00;fill:none;stroke-dasharray:5 4;marker-end:url(#head)}"
)
_HEAD: Final = (
    '<defs><marker id="head" markerWidth="9" markerHeight="7" refX="8" refY="3.5" orient="auto">'
    '<path d="M0 0 L9 3.5 L0 7 z" fill="#222"/></marker></defs>'
)


class Message(NamedTuple):
    """An arrow from one lane to another; to its own lane, it is a note beside it.

    Attributes:
        source: Number of the lane.
        target: Number of the lane.
        words: What is said.
        is_lost: It is refused or never arrives.

    """

    source: int
    target: int
    words: str
    is_lost: bool = False


class Lane(NamedTuple):
    """Somebody who takes part.

    Attributes:
        name: Who.
        dies: Row before which it dies; None = it does not.

    """

    name: str
    dies: int | None = None


def sequence(title: str, lanes: list[Lane], messages: list[Message]) -> str:
    """Return a picture of who says what to whom, from the top down."""
    height = _TOP_PX + _ROW_PX * (len(messages) + 1)
    parts = []
    for number, lane in enumerate(lanes):
        x = _x(number)
        dead = None if lane.dies is None else _y(lane.dies) - _ROW_PX // 2
        parts.append(f'<line class="lane" x1="{x}" y1="44" x2="{x}" y2="{dead or height - 10}"/>')
        if dead is not None:
            parts.append(f'<line class="gone" x1="{x}" y1="{dead}" x2="{x}" y2="{height - 10}"/>')
            parts.append(f'<text class="name" x="{x}" y="{dead + 5}">✝</text>')
        parts.append(f'<rect class="box" x="{x - 70}" y="12" width="140" height="32" rx="4"/>')
        parts.append(f'<text class="name" x="{x}" y="33">{escape(lane.name)}</text>')
    for row, message in enumerate(messages):
        start, end, y = _x(message.source), _x(message.target), _y(row)
        if start == end:
            parts.append(f'<text class="note" x="{start + 10}" y="{y + 5}">{escape(message.words)}</text>')
            continue
        kind = "lost" if message.is_lost else "arrow"
        parts.append(f'<line class="{kind}" x1="{start}" y1="{y}" x2="{end}" y2="{y}"/>')
        parts.append(f'<text class="said" x="{(start + end) // 2}" y="{y - 6}">{escape(message.words)}</text>')
    return _svg(title, _x(len(lanes)) - 40, height, parts)


class Box(NamedTuple):
    """A process in the picture of the architecture: its corner, its size, its lines of words."""

    x: int
    y: int
    width: int
    height: int
    words: tuple[str, ...]


def boxes(title: str, width: int, height: int, shown: list[Box], arrows: list[tuple[int, int, int, int, str]]) -> str:
    """Return a picture of boxes, and of arrows with words between points."""
    parts = []
    for box in shown:
        parts.append(f'<rect class="box" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="4"/>')
        first = box.y + box.height // 2 - 9 * (len(box.words) - 1) + 5
        for number, words in enumerate(box.words):
            kind = "name" if number == 0 else "said"
            parts.append(
                f'<text class="{kind}" x="{box.x + box.width // 2}" y="{first + 18 * number}">{escape(words)}</text>'
            )
    for x1, y1, x2, y2, words in arrows:
        parts.append(f'<line class="arrow" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
        beside = 8 if x1 == x2 else 0
        kind = "note" if beside else "said"
        x, y = (x1 + x2) // 2 + beside, (y1 + y2) // 2 - (0 if beside else 7)
        parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>')
    return _svg(title, width, height, parts)


def _x(lane: int) -> int:
    return 90 + _LANE_PX * lane


def _y(row: int) -> int:
    return _TOP_PX + 24 + _ROW_PX * row


def _svg(title: str, width: int, height: int, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n{_HEAD}\n"
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def pictures() -> dict[str, str]:
    """Return all pictures by the names of their files."""
    return {"architecture.svg": _architecture(), "fencing.svg": _fencing(), "leader-dies.svg": _leader_dies()}


def _architecture() -> str:
    return boxes(
        "Clients talk to the leader; the leader writes to bookies; followers, Spark and backups read",
        760,
        400,
        [
            Box(20, 30, 150, 60, ("clients", "in any language")),
            Box(300, 30, 160, 60, ("leader", "decides, applies")),
            Box(300, 310, 160, 60, ("followers", "apply the same")),
            Box(580, 20, 160, 80, ("ZooKeeper", "who leads, which", "ledgers make the log")),
            Box(180, 170, 120, 60, ("bookie", "journal, fsync")),
            Box(320, 170, 120, 60, ("bookie", "journal, fsync")),
            Box(460, 170, 120, 60, ("bookie", "journal, fsync")),
            Box(620, 310, 120, 60, ("Spark", "Delta tables")),
            Box(20, 310, 150, 60, ("snapshots", "disk, lake, S3")),
        ],
        [
            (170, 60, 300, 60, "commands"),
            (460, 60, 580, 60, "claims the log"),
            (340, 90, 250, 170, ""),
            (380, 90, 380, 170, "entries"),
            (420, 90, 510, 170, ""),
            (380, 230, 380, 310, "confirmed entries"),
            (550, 230, 660, 310, ""),
            (300, 340, 170, 340, "state"),
        ],
    )


def _fencing() -> str:
    return sequence(
        "A leader that was paused wakes up, and can confirm nothing",
        [Lane("old leader"), Lane("bookies"), Lane("new leader"), Lane("ZooKeeper")],
        [
            Message(0, 1, "add entry 7"),
            Message(1, 0, "stored (2 of 3)"),
            Message(0, 0, "stands still"),
            Message(3, 2, "the leader is silent"),
            Message(2, 3, "claims epoch 2"),
            Message(2, 1, "fence: no more adds"),
            Message(1, 2, "fenced; last is 7"),
            Message(2, 3, "closed at 7, next ledger"),
            Message(0, 0, "wakes up, knows nothing"),
            Message(0, 1, "add entry 8", is_lost=True),
            Message(1, 0, "refused: fenced"),
            Message(0, 0, "gives up, and follows"),
        ],
    )


def _leader_dies() -> str:
    return sequence(
        "The leader is killed; a follower takes over; the client's command is applied once",
        [Lane("client"), Lane("leader", dies=4), Lane("follower"), Lane("bookies")],
        [
            Message(0, 1, "book A1, number 5"),
            Message(1, 3, "entry with the record"),
            Message(3, 1, "stored (2 of 3)"),
            Message(1, 0, "done", is_lost=True),
            Message(2, 2, "its host says: nobody listens"),
            Message(2, 3, "fence, read the end"),
            Message(3, 2, "the entry was stored"),
            Message(2, 2, "applies it; begins a new ledger"),
            Message(0, 2, "book A1, number 5, again"),
            Message(2, 2, "number 5 is in the log"),
            Message(2, 0, "done"),
        ],
    )


def main() -> None:
    """Write the pictures."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (_FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{_FOLDER / name}\n")


if __name__ == "__main__":
    main()
