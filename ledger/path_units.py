"""Units of options that are paths, of fields that hold text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ledger.options import OptionUnit

PATH: Final = OptionUnit(Path, str, Path)
"""A path, of text."""
PATHS: Final = OptionUnit(
    list[Path] | None, lambda paths: tuple(map(str, paths or ())), lambda texts: list(map(Path, texts)) or None
)
"""An option that may be given several times, of a tuple of text."""
