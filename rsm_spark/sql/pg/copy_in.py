"""Rows that a client of PostgreSQL's protocol copies into a table: as they come they become statements. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from rsm_spark.sql.limits import PARAMETERS_MAX
from rsm_spark.sql.messages import SqlStatement, SqlValue
from rsm_spark.sql.pg.binary_copying import BinaryCopyRows
from rsm_spark.sql.pg.copying import CopyCommand, CopyRows, checked_utf8
from rsm_spark.sql.pg.faults import CANCELLED, TOO_LARGE, PgFault, PgSlowFault
from rsm_spark.sql.pg.portals import size_of
from rsm_spark.sql.pg.session_settings import COPY_AS
from rsm_spark.sql.pg.tasks import PgTask, TaskAnswer
from rsm_spark.sql.pg.values import BYTEA, parameter_value
from rsm_spark.sql.pg.wire import PgCopyRequest

BATCH_ROWS: Final = 10_000
"""Rows of one transaction, where a copy may be several."""
BATCH_BYTES: Final = 2 * 1024 * 1024
_STATEMENT_ROWS: Final = 100
_STATEMENT_BYTES: Final = 64 * 1024
"""A statement takes no further row from here on: it is the least that a transaction is divided into."""
_SLOW_TRIES: Final = 3
"""Of a transaction that takes too long and is the smallest: a disk may stand still for a second."""


class CopyWriter:
    """See the module.

    Args:
        command: The COPY.
        types: Of its columns.

    Attributes:
        size: Bytes that wait to be written.
        rows: Rows that wait.

    """

    def __init__(self, command: CopyCommand, types: Sequence[int]) -> None:
        self._types = tuple(types)
        self._form = int(command.is_binary)
        width = len(types)
        self._rows = BinaryCopyRows(width) if command.is_binary else CopyRows(command, width)
        columns = f" ({command.columns})" if command.columns else ""
        self._head = f"INSERT INTO {command.table}{columns} VALUES "  # noqa: S608 - the client's own words
        self._a_statement = max(1, min(_STATEMENT_ROWS, PARAMETERS_MAX // max(1, len(types))))
        self._values: list[SqlValue] = []
        self._values_bytes = 0
        self._batch_bytes = BATCH_BYTES
        self._statements: list[SqlStatement] = []
        self.size = 0
        self.rows = 0

    @property
    def count(self) -> int:
        """Rows that have come."""
        return self._rows.count

    def take_part(self, request: PgCopyRequest, *, in_parts: bool) -> bool:
        """Take a part of the copy; return whether what waits is to be written now.

        Args:
            request: The part.
            in_parts: What came may be written before all of it has come.

        Raises:
            PgFault: It is given up, is no row of the table, or is too much.

        """
        if request.failure:
            raise PgFault(CANCELLED, f"the client gives the COPY up: {request.failure}")
        self.feed(request.content, is_last=request.is_end)
        is_full = self.rows >= BATCH_ROWS or self.size >= self._batch_bytes
        if is_full and not in_parts:
            raise PgFault(
                TOO_LARGE,
                f"a COPY is one transaction, of less than {BATCH_ROWS} rows and {BATCH_BYTES} bytes: nothing was "
                f"written. SET {COPY_AS} = 'batches' keeps what comes in transactions of that size",
            )
        return is_full or request.is_end

    def feed(self, content: bytes, *, is_last: bool) -> None:
        """Take what came.

        Raises:
            PgFault: It is no row of the table.

        """
        width = len(self._types)
        for row in self._rows.feed(content, is_last=is_last):
            line = self._rows.count
            for kind, value in zip(self._types, row, strict=True):
                if value is not None and kind != BYTEA and not self._form:
                    checked_utf8(value, line)
                taken = parameter_value(kind, self._form, value)
                self._values.append(taken)
                size = size_of(taken)
                self._values_bytes += size
                self.size += size
            self.rows += 1
            if len(self._values) >= self._a_statement * width or self._values_bytes >= _STATEMENT_BYTES:
                self._close()

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept."""
        return self.size + self._rows.held_bytes

    def _close(self) -> None:
        width = len(self._types)
        if not self._values:
            return
        one = f"({', '.join('?' * width)})"
        sql = self._head + ", ".join([one] * (len(self._values) // width))
        self._statements.append(SqlStatement(sql, tuple(self._values)))
        self._values = []
        self._values_bytes = 0

    def written(
        self,
        statements: tuple[SqlStatement, ...],
        write: Callable[[tuple[SqlStatement, ...]], Generator[PgTask, TaskAnswer, object]],
        *,
        may_divide: bool,
    ) -> Generator[PgTask, TaskAnswer, None]:
        """Have statements done, in their order.

        Args:
            statements: That `take` has returned.
            write: Has some done as one transaction.
            may_divide: They may be several: one that takes too long becomes two, and those to come are smaller.

        Raises:
            PgFault: They are refused; those before them stay, where they may be several.

        """
        waiting, tries = [statements], 1
        while waiting:
            part = waiting.pop()
            try:
                yield from write(part)
                tries = 1
            except PgSlowFault:
                if not may_divide or tries == _SLOW_TRIES:
                    raise
                halves = self._divided(part)
                tries += not halves
                waiting += reversed(halves or (part,))

    def _divided(self, statements: tuple[SqlStatement, ...]) -> tuple[tuple[SqlStatement, ...], ...]:
        """Return halves; nothing if it is one statement: one of fewer rows would hardly be quicker."""
        if len(statements) < 2:
            return ()
        self._batch_bytes = max(_STATEMENT_BYTES, self._batch_bytes // 2)
        middle = len(statements) // 2
        return statements[:middle], statements[middle:]

    def take(self) -> tuple[SqlStatement, ...]:
        """Return the statements that write what has come since the last time."""
        self._close()
        taken, self._statements = tuple(self._statements), []
        self.size = self.rows = 0
        return taken
