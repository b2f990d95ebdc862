"""Rows of a data frame as commands of any machine: one command a row, made once; its reply is the row's outcome.

command     binary or string: the bytes of the command, as the machine has them

or, for services with typed commands:

method      string: name of the command, such as `transfer`
arguments   string, optional: its arguments as a JSON object; null = none
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from connectors.errors import OptionError
from connectors.sink.chunks import RowLimits
from connectors.sink.columns import SinkColumn, bad_row, check_columns, values_of
from connectors.sink.options import RowKind, SinkOptions
from rsm_spark.core.writer_marks import MAGIC

COMMAND_BYTES_MAX = 2 * 1024 * 1024
_ROW_BYTES = 200
"""Bytes of a command in the log, beside what it carries: its mark."""
_COMMAND = {"command": SinkColumn.of_bytes(is_needed=True)}
_CALL = {"method": SinkColumn.of_text(is_needed=True), "arguments": SinkColumn.of_text()}
COMMAND_COLUMNS = _COMMAND | _CALL
"""All of them: a frame has the first, or the others."""


class CallCommands:
    """The rows' own commands; see `RowCommands`.

    Args:
        options: Of the query.
        schema: Columns of the frame.

    Raises:
        OptionError: They are neither `command` nor `method` and `arguments`.

    """

    limits = RowLimits(whole_rows=0, whole_bytes=0, chunk_rows=2_000)
    conflict_words = "were refused by the service"
    is_repeatable = False
    are_calls = True
    is_ordered = False

    def __init__(self, options: SinkOptions, schema: StructType) -> None:  # noqa: ARG002 - all kinds are made alike
        self._is_typed = "method" in schema.names
        if not self._is_typed and "command" not in schema.names:
            raise OptionError(
                "sink ledger, as=commands: there is neither a column command, with the bytes of one, nor a column "
                "method, with the name of one of a typed service (and arguments, its arguments as JSON)"
            )
        check_columns(RowKind.COMMANDS, schema, _CALL if self._is_typed else _COMMAND)
        self._row_counts: dict[int, int] = {}

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[bytes, int]]:
        """Yield the rows of a batch; a bad one is named before any is yielded."""
        first = self._row_counts.get(part, 0)
        made = list(self._calls(batch, part, first) if self._is_typed else self._bytes(batch, part, first))
        for number, command in enumerate(made, first):
            column = "arguments" if self._is_typed else "command"
            if len(command) > COMMAND_BYTES_MAX:
                fault = f"a command of {len(command):,} bytes: {COMMAND_BYTES_MAX:,} are the most"
                raise bad_row(part, number, column, fault)
            if command.startswith(MAGIC) or not command:
                raise bad_row(part, number, column, "it is empty, or begins as a writer's mark does: it is no command")
        self._row_counts[part] = first + batch.num_rows
        for command in made:
            yield command, len(command) + _ROW_BYTES

    def _bytes(self, batch: pa.RecordBatch, part: int, first: int) -> Iterator[bytes]:
        for number, command in enumerate(values_of(batch.column("command"), as_bytes=True), first):
            if command is None:
                raise bad_row(part, number, "command", "it is null")
            yield command

    def _calls(self, batch: pa.RecordBatch, part: int, first: int) -> Iterator[bytes]:
        methods = values_of(batch.column("method"))
        given = "arguments" in batch.schema.names
        arguments = values_of(batch.column("arguments")) if given else [None] * len(methods)
        for number, (method, said) in enumerate(zip(methods, arguments, strict=True), first):
            if method is None:
                raise bad_row(part, number, "method", "it is null")
            try:
                decoded = msgspec.json.decode(said or "{}")
            except (msgspec.MsgspecError, RecursionError) as error:
                raise bad_row(part, number, "arguments", f"{said[:60]!r} is no JSON: {error}", method) from error
            if not isinstance(decoded, dict):
                raise bad_row(part, number, "arguments", f"{said[:60]!r} is no JSON object", method)
            yield msgspec.json.encode((method, msgspec.Raw((said or "{}").encode())))

    def command(self, items: Sequence[bytes]) -> bytes:
        """Return a row's command: it is a chunk of its own."""
        (command,) = items
        return command

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Raise: commands of several rows are none."""
        raise NotImplementedError(f"{len(commands)} commands are sent one by one")

    def conflict_count(self, reply: bytes, row_count: int) -> int:  # noqa: ARG002 - as `RowCommands` has it
        """Return 0: a call that was refused is counted by its status."""
        return 0

    def is_busy(self, reply: bytes) -> bool:  # noqa: ARG002 - as `RowCommands` has it
        """Return False: a refusal is an outcome."""
        return False
