"""Rows that a client of PostgreSQL's protocol copies out of a table, as answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg.binary_copying import BINARY_END, BINARY_HEAD, binary_row
from rsm_spark.sql.pg.copying import CopyCommand, copied_row


class CopyAnswers:
    """See the module.

    Args:
        command: The COPY.

    Attributes:
        form: Of its values: 0 = text, 1 = binary.

    """

    def __init__(self, command: CopyCommand) -> None:
        self._command = command
        self.form = int(command.is_binary)
        # In one message with the first row: clients look for it there.
        self._head = BINARY_HEAD if command.is_binary else b""

    def row(self, values: Iterator[bytes | None]) -> bytes:
        """Return the answer that has a row."""
        row = list(values)
        if not self.form:
            return answers.copied(copied_row(self._command, row))
        head, self._head = self._head, b""
        return answers.copied(head + binary_row(row))

    def end(self) -> bytes:
        """Return the answers behind the last row."""
        return (answers.copied(self._head + BINARY_END) if self.form else b"") + answers.COPY_DONE
