"""Limits of SQL: what one statement, one transaction, one read may take."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.options import SECONDS, Option

STATEMENTS_MAX = 10_000
"""Statements of one transaction."""
ROWS_CHANGED_MAX = 20_000
"""Rows that one transaction may change: about what an entry of the log holds."""
ROWS_REWRITTEN_MAX = 2_000
"""Rows of a table that DROP TABLE and DROP COLUMN write into the log."""
ENTRY_S = 0.1
"""An entry takes no further transaction when those before have taken so long: the leader pauses no longer."""
VALUE_BYTES_MAX = 1024 * 1024
"""Bytes of one value, and of one row."""
STATEMENT_BYTES_MAX = 256 * 1024
"""Bytes of one statement."""
COLUMNS_MAX = 500
"""Columns of a table, a result, an index."""
EXPRESSION_DEPTH_MAX = 200
COMPOUND_SELECTS_MAX = 100
OPCODES_MAX = 250_000
ARGUMENTS_MAX = 100
PARAMETERS_MAX = 32_766
PATTERN_BYTES_MAX = 10_000
TRIGGER_DEPTH_MAX = 30
SAVEPOINTS_MAX = 100
"""Open savepoints of one transaction."""
OWN_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of changed pages that an open transaction may put aside on the disk, beyond those in memory."""
WAL_PAGES_MAX = 16 * 1024
"""At so many pages of SQLite's WAL open transactions end: what they see keeps it from being used again."""
RESULT_WAL_PAGES_MAX = 4 * WAL_PAGES_MAX
"""The same for results that are read in slices."""
SLICE_BYTES = 256 * 1024
"""Rows of so many bytes are one slice of a result."""
SLICE_S = 0.25
"""A slice that has rows ends after so long, full or not: others wait for the thread."""


class SqlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the SQL tables of one replica."""

    command_ms_max: Annotated[
        int,
        Option(
            "Time of a transaction that writes; the leader does nothing else meanwhile.",
            name="command_s_max",
            unit=SECONDS,
            ge=1,
        ),
    ] = 1_000
    read_ms_max: Annotated[int, Option("Time of a read.", name="read_s_max", unit=SECONDS, ge=1)] = 5_000
    result_bytes_max: Annotated[
        int, Option("Most bytes of the rows that a read returns at once; and of one row.", ge=1_024)
    ] = 2 * 1024 * 1024
    results_max: Annotated[
        int, Option("Results that are read in slices and have not ended; one client has a quarter of them.", ge=4)
    ] = 64
    result_idle_ms: Annotated[
        int,
        Option(
            "Time that a result which is read in slices may wait for its client.",
            name="result_idle_s",
            unit=SECONDS,
            ge=1,
        ),
    ] = 60_000
    result_ms_max: Annotated[
        int, Option("Time of a result that is read in slices, in all.", name="result_s_max", unit=SECONDS, ge=1)
    ] = 600_000
    readers: Annotated[int, Option("Reads that run at the same time; one client has half of them.", ge=2, le=64)] = 4
    waiting_reads_max: Annotated[int, Option("Reads that wait for their turn; more are refused.", ge=1)] = 256
    file_mib_max: Annotated[
        int, Option("Size of the tables' file from which on nothing may grow; 0 = no limit.", ge=0)
    ] = 0
    transaction_idle_ms: Annotated[
        int,
        Option("Time that an open transaction may wait for its client.", name="transaction_idle_s", unit=SECONDS, ge=1),
    ] = 5_000
    transaction_ms_max: Annotated[
        int, Option("Time of an open transaction in all.", name="transaction_s_max", unit=SECONDS, ge=1)
    ] = 30_000
    transactions_max: Annotated[int, Option("Open transactions; one client has a quarter of them.", ge=4)] = 64
    transactions_running: Annotated[
        int, Option("Open transactions that run statements at the same time; one client has half of them.", ge=2, le=64)
    ] = 4
    feeds_max: Annotated[int, Option("Feeds of changes that are open; one client has a quarter of them.", ge=4)] = 256
    cache_mib: Annotated[int, Option("Memory for pages of the file, of each connection.", ge=1)] = 16
