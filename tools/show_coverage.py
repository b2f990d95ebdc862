"""Print what share of each package's lines a run of `coverage` has seen.

    python tools/show_coverage.py DATA_FILE

One line a package, and below it one a folder.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from coverage import Coverage


def by_package(files: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return lines seen and lines that could be, by package and by folder of a package.

    Args:
        files: The part `files` of coverage.py's JSON report, by path below the root of the tree.

    """
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, measured in files.items():
        parts = PurePath(name).parts
        rooms = {parts[0], "/".join(parts[:2]) if len(parts) > 2 else parts[0]}
        for room in rooms:
            sums[room][0] += measured["summary"]["covered_lines"]
            sums[room][1] += measured["summary"]["num_statements"]
    return {room: (seen, lines) for room, (seen, lines) in sorted(sums.items())}


def lines_of(sums: Mapping[str, tuple[int, int]]) -> Iterable[str]:
    """Return the lines to print: folders are indented below their package."""
    for room, (seen, lines) in sums.items():
        name = f"  {room}" if "/" in room else room
        percent = 100 * seen / lines if lines else 100.0
        yield f"{name:<28} {lines:>6} lines {percent:6.1f} %"


def main() -> None:
    """Combine what the processes of the run have written, and print."""
    measured = Coverage(data_file=sys.argv[1])
    measured.combine()
    measured.save()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(report), ignore_errors=True)
        files = json.loads(report.read_bytes())["files"]
    for line in lines_of(by_package(files)):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
