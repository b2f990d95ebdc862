"""Answers of a session of PostgreSQL's protocol, and rows as they are read and said. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

from rsm_spark.sql.messages import SqlSlice
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg.portals import KeptStatement, encoded
from rsm_spark.sql.pg.tasks import PgTask, ReadSlice, RowsLeft, RowsRead, SendAnswers, TaskAnswer
from rsm_spark.sql.pg.values import PgColumn

_SENT_BYTES: Final = 32 * 1024
"""Rows of so many bytes are encoded before others have their turn."""

RowAnswer = Callable[[Iterator[bytes | None]], bytes]
Steps = Generator[PgTask, TaskAnswer, None]


class PgRowAnswers:
    """Part of a session; see the module."""

    def __init__(self) -> None:
        self._out: list[bytes | KeptStatement] = []
        self._out_bytes = 0
        self._dropped: list[RowsLeft] = []

    @property
    def has_dropped(self) -> bool:
        """True if results are to be closed."""
        return bool(self._dropped)

    def take_dropped(self) -> list[RowsLeft]:
        """Return the results that are not read on: they are to be closed."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _say(self, part: bytes) -> None:
        self._out.append(part)
        self._out_bytes += len(part)

    def _send_all(
        self, found: RowsRead, columns: Sequence[PgColumn], said: RowAnswer = answers.row, *, form: int = 0
    ) -> Generator[PgTask, TaskAnswer, int]:
        """Send the rows of a query, slice by slice, as its client takes them; return how many."""
        rows, left, count = found.result.rows, found.left, 0
        try:
            while True:
                yield from self._send_rows(rows, columns, (form,) * len(columns), said)
                count += len(rows)
                if left is None:
                    return count
                more: SqlSlice = yield ReadSlice(left)
                rows = more.rows
                if more.is_last:
                    self._dropped.append(left)
                    left = None
        finally:
            if left is not None:
                self._dropped.append(left)

    def _send_rows(
        self,
        rows: Sequence[tuple[Any, ...]],
        columns: Sequence[PgColumn],
        formats: Sequence[int],
        said: RowAnswer = answers.row,
    ) -> Steps:
        shapes = [(column.type, form) for column, form in zip(columns, formats, strict=True)]
        for row in rows:
            self._say(said(encoded(row, shapes)))
            if self._out_bytes >= _SENT_BYTES:
                yield SendAnswers()
