"""Columns of `rows=table`: the machine's own description, read from the end of its log when a query starts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from connectors.errors import OptionError
from connectors.source.access import DriverAccess
from connectors.source.look import LogLook
from connectors.source.options import SourceOptions
from connectors.source.schema import RowColumn, table_columns
from connectors.source.table_rows import table_of
from rsm_spark.core.machine import MachineDescription
from rsm_spark.core.partition_layout import partition_log


def described_columns(options: SourceOptions) -> tuple[RowColumn, ...]:
    """Return the columns of the table, by the newest description; of the first log where a pattern matches several.

    Raises:
        NoSuchLogError: There is no such log.
        OptionError: Its machine has no such table, or is not described (any more).

    """
    access = DriverAccess(options)
    try:
        layout = access.layout(options.log) if options.log else None
        if layout is None:
            description = _newest([options.log or _first_log(options, access)], access)
        else:
            parts = [partition_log(options.log, number) for number in range(layout.partition_count)]
            description = _newest(parts, access)
    finally:
        access.close()
    return table_columns(table_of(description, options.table), is_partitioned=layout is not None)


def _first_log(options: SourceOptions, access: DriverAccess) -> str:
    names = access.logs()
    pattern = re.compile(options.log_pattern)
    for name in names:
        if pattern.fullmatch(name):
            return name
    known = ", ".join(names) or "none"
    raise OptionError(
        f"option rows=table: no log matches logPattern {options.log_pattern!r} yet (known: {known}), so the "
        "columns are not known: start its service first, or give them by .schema(…)"
    )


def _newest(logs: Sequence[str], access: DriverAccess) -> MachineDescription:
    """Return the newest description of the first log that has one: partitions are described alike."""
    for log in logs:
        look = LogLook(log, access)
        view = look.look()
        for span in reversed(view.spans):
            # The last ledger may have nothing in it yet.
            if span.last_entry_id >= 0:
                found = look.description_at(view, span.ledger_id)
                if found is not None:
                    return found
                break
    raise OptionError(
        f"option rows=table: log {logs[0]} holds no description of its machine: its service has not written yet, or "
        "the ledgers that describe it have been trimmed; use rows=records"
    )
