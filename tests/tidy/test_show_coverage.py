"""The coverage figure adds lines up by package and by folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_TOOL = Path(__file__).resolve().parents[2] / "tools" / "show_coverage.py"
_spec = importlib.util.spec_from_file_location("show_coverage", _TOOL)
assert _spec is not None
assert _spec.loader is not None
show_coverage = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(show_coverage)


def _file(seen: int, lines: int) -> dict[str, dict[str, int]]:
    return {"summary": {"covered_lines": seen, "num_statements": lines}}


def test_lines_are_added_up_by_package_and_folder() -> None:
    files = {
        "ledger/errors.py": _file(5, 10),
        "ledger/core/writer.py": _file(8, 8),
        "ledger/core/deep/x.py": _file(0, 2),
        "broker/__init__.py": _file(0, 0),
    }
    sums = show_coverage.by_package(files)
    assert sums == {"broker": (0, 0), "ledger": (13, 20), "ledger/core": (8, 10)}
    assert [" ".join(line.split()) for line in show_coverage.lines_of(sums)] == [
        "broker 0 lines 100.0 %",
        "ledger 20 lines 65.0 %",
        "ledger/core 10 lines 80.0 %",
    ]
