"""ALTER TABLE as PostgreSQL's clients write it, where SQLite has no such statement. Pure.

SQLite keeps a table's constraints, types and defaults in the text that made it. So the table is made anew, as SQLite's
documents tell it: a new one with another text, its rows copied, the old one dropped, the new one renamed, its indexes
and triggers made again; in one transaction. What is unique becomes an index, and no row is moved.

    alteration = alteration_of(sql)                    # None: SQLite understands it, or nobody does
    rows of SCHEMA_SQL, with the table's name twice
    statements_for(alteration, rows)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from rsm_spark.sql.messages import SqlStatement
from rsm_spark.sql.pg.faults import NO_OBJECT, NOT_SUPPORTED, PgFault
from rsm_spark.sql.pg.table_text import SqlTokens, TableText, has_name, quoted, said_of, split, text_of, tokens_of

SCHEMA_SQL: Final = """
SELECT type, name, sql FROM sqlite_schema WHERE lower(tbl_name) = lower(?1) AND sql IS NOT NULL
UNION ALL
SELECT 'child', m.name, f."from" FROM sqlite_schema m, pragma_foreign_key_list(m.name) f
WHERE m.type = 'table' AND lower(f."table") = lower(?1)
"""
_NO_TABLE: Final = "42P01"
_NEW: Final = "{}__altered"


class AlterOrder(NamedTuple):
    """One thing that is done to a table.

    Attributes:
        kind: "add", "unique", "drop constraint", "type", "default", "null", "drop column".
        name: Of the constraint, or of the column.
        text: SQL of it; "" = there is none.
        is_lenient: What is not there is no fault.

    """

    kind: str
    name: str
    text: str = ""
    is_lenient: bool = False


class AlterStatement(NamedTuple):
    """A table, and what is done to it."""

    table: str
    actions: tuple[AlterOrder, ...]


# ---- reading the statement


def alteration_of(sql: str) -> AlterStatement | None:
    """Return what a statement does to a table; None = SQLite is to see it as it is.

    Raises:
        PgFault: It is of a kind that is not served.

    """
    tokens = tokens_of(sql)
    said = said_of(tokens)
    if [one.word for one in said[:2]] != ["ALTER", "TABLE"] or len(said) < 5:
        return None
    if said[2].word == "ONLY":
        tokens = _without(tokens, 2, 1)
        said = said_of(tokens)
    tokens = _without(tokens, 0, 4 if said[3].text == "." else 2)
    said = said_of(tokens)
    if len(said) < 3:
        return None
    parts = split(_without(tokens, 0, 1))
    actions = [_action(said[0].name, part, is_alone=len(parts) == 1) for part in parts]
    found = tuple(one for one in actions if one is not None)
    if not found:
        return None
    if len(found) < len(actions):
        raise PgFault(NOT_SUPPORTED, f"ALTER TABLE {said[0].name}: send what is done to it as statements of their own")
    return AlterStatement(said[0].name, found)


def is_altered_anew(sql: str) -> bool:
    """Return whether a statement is one of those that `alteration_of` understands, or refuses."""
    try:
        return alteration_of(sql) is not None
    except PgFault:
        return True


def _without(tokens: SqlTokens, first: int, count: int) -> SqlTokens:
    """Return tokens without some of those that are no space."""
    places = [place for place, one in enumerate(tokens) if one.kind != "space"][first : first + count]
    return [one for place, one in enumerate(tokens) if place not in places]


def _action(table: str, part: SqlTokens, *, is_alone: bool) -> AlterOrder | None:
    """Return one action; None = SQLite knows it."""
    said = said_of(part)
    words = [one.word for one in said] + [""] * 4
    if words[0] == "ADD":
        return _added(table, said, part)
    if words[0] == "DROP" and words[1] == "CONSTRAINT":
        is_lenient = words[2:4] == ["IF", "EXISTS"]
        place = 4 if is_lenient else 2
        return None if len(said) <= place else AlterOrder("drop constraint", said[place].name, is_lenient=is_lenient)
    place = 2 if words[1] == "COLUMN" else 1
    if len(said) <= place:
        return None
    if words[0] == "DROP" and words[-5] == "CASCADE":
        return AlterOrder("drop column", said[place].name)
    if words[0] != "ALTER":
        return None
    name, rest = said[place].name, words[place + 1 : -4]
    behind = _without(part, 0, place + 1)
    match rest[:3]:
        case ["SET" | "DROP", "NOT", "NULL"]:
            return None if is_alone else AlterOrder("null", name, "NOT NULL" if rest[0] == "SET" else "")
        case ["SET", "DEFAULT", _]:
            return AlterOrder("default", name, text_of(_without(behind, 0, 2)))
        case ["DROP", "DEFAULT"]:
            return AlterOrder("default", name)
        case ["TYPE", *_] | ["SET", "DATA", "TYPE"]:
            kind = _without(behind, 0, rest.index("TYPE") + 1)
            return AlterOrder("type", name, _type_of(table, name, kind))
    return None


def _type_of(table: str, column: str, tokens: SqlTokens) -> str:
    said = said_of(tokens)
    words = [one.word for one in said]
    for word in ("USING", "COLLATE"):
        if word in words:
            place = words.index(word)
            inside = said[place + 1 :]
            is_plain = len(inside) > 1 and inside[0].name.lower() == column.lower() and inside[1].text == "::"
            if word == "USING" and not is_plain:
                raise PgFault(
                    NOT_SUPPORTED,
                    f"ALTER TABLE {table}: USING takes no expression: UPDATE the column {column} afterwards",
                )
            kept = [place for place, one in enumerate(tokens) if one.kind != "space"][place]
            return text_of(tokens[:kept])
    return text_of(tokens)


def _added(table: str, said: SqlTokens, part: SqlTokens) -> AlterOrder | None:
    words = [one.word for one in said] + [""] * 4
    is_named = words[1] == "CONSTRAINT"
    kind = words[3] if is_named else words[1]
    if is_named and len(said) < 4:
        return None
    name = said[2].name if is_named else ""
    text = text_of(_without(part, 0, 1))
    if kind == "UNIQUE":
        inside = _without(part, 0, 4 if is_named else 2)
        columns = said_of(inside)
        if not columns or columns[0].text != "(" or columns[-1].text != ")":
            raise PgFault(NOT_SUPPORTED, f"ALTER TABLE {table}: UNIQUE takes columns alone")
        made = "_".join((table, *(one.name for one in columns if one.kind in ("word", "name")), "key"))
        return AlterOrder("unique", name or made, text_of(inside))
    if kind in ("FOREIGN", "PRIMARY"):
        return AlterOrder("add", name, text.removesuffix("NOT VALID").strip())
    return None


# ---- what is to be done


def children_of(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, str]]:
    """Return tables and columns that refer to the table, of the rows of `SCHEMA_SQL`."""
    return [(name, column) for kind, name, column in rows if kind == "child"]


def statements_for(alteration: AlterStatement, rows: Sequence[tuple[Any, ...]]) -> tuple[SqlStatement, ...]:
    """Return the statements that do it, as one transaction; it fails if the table is not the one of `rows` any more.

    Args:
        alteration: What is to be done.
        rows: Of `SCHEMA_SQL`.

    Raises:
        PgFault: There is no such table, column or constraint.

    """
    tables = [(name, sql) for kind, name, sql in rows if kind == "table"]
    if len(tables) != 1:
        raise PgFault(_NO_TABLE, f"no such table: {alteration.table}")
    ((table, sql),) = tables
    others = {name: (kind, text) for kind, name, text in rows if kind in ("index", "trigger")}
    text = TableText(sql)
    before = text.sql(table)
    statements: list[SqlStatement] = []
    for action in alteration.actions:
        match action.kind:
            case "unique":
                statements.append(
                    SqlStatement(f"CREATE UNIQUE INDEX {quoted(action.name)} ON {quoted(table)} {action.text}")
                )
            case "add":
                text.items.append(tokens_of(action.text))
            case "null":
                text.change(action.name, ("NOT",), action.text)
            case "default":
                text.change(action.name, ("DEFAULT",), _default(action.text))
            case "type":
                text.retype(action.name, action.text)
            case "drop column":
                text.drop_column(action.name)
                others = {name: one for name, one in others.items() if not has_name(tokens_of(one[1]), action.name)}
            case _ if text.drop_constraint(action.name):
                pass
            case _:
                index = next((name for name in others if name.lower() == action.name.lower()), None)
                if index is not None:
                    statements.append(SqlStatement(f"DROP INDEX {quoted(index)}"))
                    del others[index]
                elif not action.is_lenient:
                    raise PgFault(NO_OBJECT, f"the table {table} has no constraint {action.name}")
    if text.sql(table) == before:
        return tuple(statements)
    return (*_made_anew(table, sql, text, rows, [one for _, one in others.values()]), *statements)


def _default(text: str) -> str:
    if not text:
        return ""
    if "::" in text:
        text = text.partition("::")[0]
    is_plain = len(said_of(tokens_of(text))) == 1
    return f"DEFAULT {text}" if is_plain else f"DEFAULT ({text})"


def _made_anew(
    table: str, sql: str, text: TableText, rows: Sequence[tuple[Any, ...]], others: Sequence[str]
) -> Iterable[SqlStatement]:
    yield SqlStatement("SELECT 1 FROM sqlite_schema WHERE name = ? AND sql = ?", (table, sql), 1)
    for child, column in children_of(rows):
        # SQLite takes a DROP TABLE for a DELETE of all of its rows, which those that refer to them would hear of.
        yield SqlStatement(no_rows_refer(child, column), (), 1)
    new = _NEW.format(table)
    names = ", ".join(map(quoted, text.columns()))
    yield SqlStatement(text.sql(new))
    yield SqlStatement(f"INSERT INTO {quoted(new)} ({names}) SELECT {names} FROM {quoted(table)}")  # noqa: S608 - quoted
    yield SqlStatement(f"DROP TABLE {quoted(table)}")
    yield SqlStatement(f"ALTER TABLE {quoted(new)} RENAME TO {quoted(table)}")
    yield from map(SqlStatement, others)


def referred(alteration: AlterStatement) -> str:
    """Return what a client is told whose table has rows that others refer to."""
    return (
        f"ALTER TABLE {alteration.table} makes the table anew, and rows of other tables refer to its rows: set them to "
        "NULL or delete them first"
    )


def no_rows_refer(child: str, column: str) -> str:
    """Return a query that has a row if no row of a table refers to another one by a column."""
    return f"SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM {quoted(child)} WHERE {quoted(column)} IS NOT NULL)"  # noqa: S608
