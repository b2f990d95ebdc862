"""Whole tables as of one commit, however many: their schema and their rows, in one result that is read in slices.

One query holds them all, a part for each table, in the order in which rows can be inserted again: tables before those
that refer to them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from ledger.errors import UsageError
from rsm_spark.sql.cli.column_values import quoted_word
from rsm_spark.sql.client.client import SqlClient
from rsm_spark.sql.client.row_stream import SqlRowStream
from rsm_spark.sql.limits import COLUMNS_MAX

_OBJECTS: Final = (
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL "
    "AND name NOT LIKE '\\_rsm\\_%' ESCAPE '\\' AND tbl_name NOT LIKE '\\_rsm\\_%' ESCAPE '\\' "
    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_GROUP: Final = 90
"""Parts of one compound SELECT: SQLite has a limit, and they may be nested."""
_ATTEMPTS: Final = 5


class SchemaObject(NamedTuple):
    """A table, index, view or trigger.

    Attributes:
        kind: "table", "index", "view", "trigger".
        name: Of it.
        owner: Table or view that it belongs to.
        sql: That makes it.

    """

    kind: str
    name: str
    owner: str
    sql: str


class TableCopy(NamedTuple):
    """A table whose rows are read.

    Attributes:
        name: Of it.
        sql: That makes it.
        columns: Name and declared type of those that are written, not generated.

    """

    name: str
    sql: str
    columns: tuple[tuple[str, str], ...]


class WholeTables:
    """See the module; made by `open_tables`.

    Args:
        tables: In the order of their rows.
        others: Indexes, views and triggers, in the order in which they can be made.
        stream: Of the rows.
        sequences: Highest id that AUTOINCREMENT gave, by table.

    """

    def __init__(
        self,
        tables: Sequence[TableCopy],
        others: Sequence[SchemaObject],
        stream: SqlRowStream,
        sequences: dict[str, int],
        ahead: Sequence[tuple[Any, ...]],
    ) -> None:
        self.tables = tables
        self.others = others
        self.sequences = sequences
        self._stream = stream
        self._ahead = ahead

    @property
    def revision(self) -> int:
        """Of the commit that all of it shows."""
        return self._stream.revision

    async def rows(self) -> AsyncIterator[tuple[int, list[tuple[Any, ...]]]]:
        """Iterate over rows: the place of their table in `tables`, and some of its rows; tables in order."""
        found: Sequence[tuple[Any, ...]] = self._ahead
        while found:
            at = 0
            while at < len(found):
                part = found[at][0]
                end = at
                while end < len(found) and found[end][0] == part:
                    end += 1
                width = len(self.tables[part].columns) + 1
                yield part, [row[1:width] for row in found[at:end]]
                at = end
            found = await self._stream.next_rows()

    async def close(self) -> None:
        """Read no more of it."""
        await self._stream.close()


async def open_tables(client: SqlClient, only: str | None = None) -> WholeTables:
    """Begin to read all tables, or one, as of one commit.

    Raises:
        UsageError: There is no such table, or the schema changes all the time.
        SqlError: They cannot be read.

    """
    for _ in range(_ATTEMPTS):
        objects = [SchemaObject(*row) for row in (await client.query(_OBJECTS)).rows]  # type: ignore[arg-type]
        tables = [await _table(client, one) for one in await _in_order(client, objects, only)]
        has_sequences = any("AUTOINCREMENT" in one.sql.upper() for one in objects if one.kind == "table")
        stream = await client.rows(_query(tables, has_sequences=has_sequences))
        seen: list[SchemaObject] = []
        sequences: dict[str, int] = {}
        ahead: Sequence[tuple[Any, ...]] = await stream.next_rows()
        while ahead and ahead[-1][0] < 0:
            seen, sequences, _ = _heads(ahead, seen, sequences)
            ahead = await stream.next_rows()
        seen, sequences, ahead = _heads(ahead, seen, sequences)
        if sorted(seen) == sorted(objects):
            others = [one for one in objects if one.kind != "table" and only in (None, one.owner)]
            others.sort(key=lambda one: ("index", "view", "trigger").index(one.kind))
            return WholeTables(tables, others, stream, sequences, ahead)
        await stream.close()
    raise UsageError(f"the schema changed {_ATTEMPTS} times while it was read: begin again when it stands still")


def _heads(
    rows: Sequence[tuple[Any, ...]], seen: list[SchemaObject], sequences: dict[str, int]
) -> tuple[list[SchemaObject], dict[str, int], Sequence[tuple[Any, ...]]]:
    """Take what stands before the rows of tables: the schema, and sequences."""
    seen = seen + [SchemaObject(*row[1:5]) for row in rows if row[0] == _SCHEMA_PART]
    sequences = sequences | {row[1]: row[2] for row in rows if row[0] == _SEQUENCE_PART}
    return seen, sequences, [row for row in rows if row[0] >= 0]


_SCHEMA_PART: Final = -2
_SEQUENCE_PART: Final = -1


async def _table(client: SqlClient, one: SchemaObject) -> TableCopy:
    found = await client.query("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden = 0", (one.name,))
    return TableCopy(one.name, one.sql, tuple((str(name), str(kind)) for name, kind in found.rows))


async def _in_order(client: SqlClient, objects: Sequence[SchemaObject], only: str | None) -> list[SchemaObject]:
    """Return the tables, each behind those that it refers to, as far as that can be."""
    tables = {one.name: one for one in objects if one.kind == "table"}
    if only is not None:
        if only not in tables:
            raise UsageError(f"there is no table {only}: {', '.join(sorted(tables)) or 'there are none'}")
        return [tables[only]]
    by_lower = {name.lower(): name for name in tables}
    needs: dict[str, list[str]] = {}
    for name in sorted(tables):
        found = await client.query('SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)', (name,))
        needs[name] = sorted(by_lower[str(one).lower()] for (one,) in found.rows if str(one).lower() in by_lower)
    placed: dict[str, SchemaObject] = {}
    entered: set[str] = set()
    for first in sorted(tables):
        stack = [first]
        while stack:
            name = stack[-1]
            entered.add(name)
            waiting = [one for one in needs[name] if one not in entered]
            if waiting:
                stack.append(waiting[0])
                continue
            placed.setdefault(stack.pop(), tables[name])
    return list(placed.values())


def _query(tables: Sequence[TableCopy], *, has_sequences: bool) -> str:
    width = max([4, *(len(one.columns) for one in tables)])
    if width >= COLUMNS_MAX:
        raise UsageError(f"a table has {width} columns, and tables are read with {COLUMNS_MAX - 1} at most")

    def _part(number: int, columns: Sequence[str], source: str) -> str:
        return f"SELECT {', '.join([str(number), *columns, *['NULL'] * (width - len(columns))])} FROM {source}"

    parts = [_part(_SCHEMA_PART, ["type", "name", "tbl_name", "sql"], f"({_OBJECTS})")]
    if has_sequences:
        parts.append(_part(_SEQUENCE_PART, ["name", "seq"], "sqlite_sequence"))
    for number, one in enumerate(tables):
        parts.append(_part(number, [quoted_word(name) for name, _ in one.columns], quoted_word(one.name)))
    groups = [" UNION ALL ".join(parts[at : at + _GROUP]) for at in range(0, len(parts), _GROUP)]
    return groups[0] if len(groups) == 1 else " UNION ALL ".join(f"SELECT * FROM ({one})" for one in groups)
