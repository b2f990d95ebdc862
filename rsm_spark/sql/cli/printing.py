"""Results of SQL as text for a terminal, or as lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rsm_spark.cli.terminal import print_json, printable, shown
from rsm_spark.sql.client.client import SqlOutcome, SqlRows
from rsm_spark.sql.client.row_stream import SqlRowStream


class ResultWriter:
    """Prints results in one form.

    Args:
        as_json: Each as a line of JSON; else as text.

    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def outcome(self, outcome: SqlOutcome) -> None:
        """Print what a transaction did, statement by statement."""
        for result in outcome.results:
            if result.columns:
                self.rows(SqlRows(result.columns, result.rows, outcome.revision))
            elif self.as_json:
                print_json({
                    "row_count": result.row_count, "last_rowid": result.last_rowid, "revision": outcome.revision,
                })  # fmt: skip
            else:
                self.line(f"{result.row_count} rows changed; revision {outcome.revision}")

    def rows(self, rows: SqlRows) -> None:
        """Print rows that are all there."""
        names = [name for name, _ in rows.columns]
        if self.as_json:
            print_json({"columns": names, "rows": shown(rows.rows), "revision": rows.revision})
        else:
            self._table([names, *rows.rows], [])

    async def stream(self, rows: SqlRowStream) -> int:
        """Print rows slice by slice, each slice as JSON on a line of its own; return how many there were.

        The first slice says how wide columns are.
        """
        names = [name for name, _ in rows.columns]
        found = await rows.next_rows()
        count, widths = len(found), self._slice(names, found, rows.revision, None)
        while found := await rows.next_rows():
            count += len(found)
            widths = self._slice(names, found, rows.revision, widths)
        return count

    def _slice(
        self, names: list[str], rows: Sequence[Sequence[Any]], revision: int, widths: list[int] | None
    ) -> list[int]:
        if self.as_json:
            print_json({"columns": names, "rows": shown(rows), "revision": revision})
            return []
        return self._table([names, *rows] if widths is None else rows, widths or [])

    def _table(self, rows: Sequence[Sequence[Any]], widths: list[int]) -> list[int]:
        lines = [[value_text(value) for value in row] for row in rows]
        if not widths:
            widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
        for line in lines:
            self.line("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
        return widths

    def line(self, text: str) -> None:
        """Print a line."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def value_text(value: Any) -> str:
    """Return a value as it is shown in a terminal."""
    if value is None:
        return "NULL"
    return f"x'{value.hex()}'" if isinstance(value, bytes) else printable(value)
