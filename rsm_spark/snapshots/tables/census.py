"""A first look at all rows of a state: which tables there are, and how each differs from what the lake has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import msgspec

from rsm_spark.core.digest import DIGEST_MODULUS, row_term, table_prefix
from rsm_spark.core.machine import Row
from rsm_spark.core.row_tables import RowTables


class TableStep(Enum):
    """Step that makes a table the present one: nothing, rows added behind the others, or all rows written."""

    NOTHING = "nothing"
    APPEND = "append"
    REPLACE = "replace"


class TableCount(msgspec.Struct):
    """Sums of a table.

    Attributes:
        rows: How many.
        digest: Sum of what they add to the state digest.
        old_rows: Those of them that were written at `since` or before.
        old_digest: Sum of those.
        since: See `old_rows`.

    """

    rows: int = 0
    digest: int = 0
    old_rows: int = 0
    old_digest: int = 0
    since: int = -1

    def work(self, rows: int, digest: str, *, has_revisions: bool) -> TableStep:
        """Return what makes the table of before this one.

        Args:
            rows: That it had at `since`.
            digest: Of those.
            has_revisions: See `RowTable`.

        """
        if not has_revisions:
            is_same = (self.rows, shown_digest(self.digest)) == (rows, digest)
            return TableStep.NOTHING if is_same else TableStep.REPLACE
        # A row that was changed or deleted since is missing among the old ones.
        if (self.old_rows, shown_digest(self.old_digest)) != (rows, digest):
            return TableStep.REPLACE
        return TableStep.NOTHING if self.rows == self.old_rows else TableStep.APPEND


def shown_digest(value: int) -> str:
    """Return a sum as 32 hex digits."""
    return f"{value % DIGEST_MODULUS:032x}"


def count_tables(
    rows: Iterable[Row], tables: RowTables, since: Mapping[str, int], pace: Callable[[], None]
) -> dict[str, TableCount]:
    """Look at all rows, the first time.

    Args:
        rows: All of the state.
        tables: Takes note of them.
        since: By table, the revision up to which the lake has it.
        pace: Called now and then.

    Returns:
        The sums by table; of those without rows too.

    Raises:
        CorruptSnapshotError: A row is none of this machine.

    """
    counts: dict[str, TableCount] = {}
    prefixes: dict[str, bytes] = {}
    for number, row in enumerate(rows):
        if number % 64 == 0:
            pace()
        name = tables.look(row)
        if name is None:
            continue
        count = counts.get(name)
        if count is None:
            count = counts[name] = TableCount(since=since.get(name, -1))
        prefix = prefixes.get(row.table)
        if prefix is None:
            prefix = prefixes[row.table] = table_prefix(row.table)
        term = row_term(prefix, row.key, row.row)
        count.rows += 1
        count.digest += term
        if row.revision <= count.since:
            count.old_rows += 1
            count.old_digest += term
    return {name: counts.get(name, TableCount()) for name in tables.tables()}
