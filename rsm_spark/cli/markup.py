"""Text of others within rich's markup: it is shown as it is, and neither colours nor moves anything."""

from __future__ import annotations

from rich.markup import escape

from rsm_spark.cli.terminal import printable


def plain(value: object) -> str:
    """Return a value as markup that shows its text; brackets are brackets, control characters are written out."""
    return escape(printable(value))
