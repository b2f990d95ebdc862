"""Statements spelled as PostgreSQL does, respelled as SQLite does; only this and its two dialects know sqlglot.

What sqlglot cannot read goes to SQLite as it came: its error names the place. Slow for long texts (20 µs a letter):
never on an event loop.
"""

# Longer than 400 lines: each spelling is turned in a few lines, and all of them are one table.

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.sqlite import SQLite

from rsm_spark.sql.limits import PARAMETERS_MAX
from rsm_spark.sql.pg.lexing import LexedStatement
from rsm_spark.sql.pg.long_texts import ARRAY_CALL, LongTexts
from rsm_spark.sql.pg.moment_dialect import MOMENT_TURNS, written_interval
from rsm_spark.sql.pg.repeated_rows import folded
from rsm_spark.sql.pg.system_dialect import for_system, rewritten
from rsm_spark.sql.pg.values import array_json

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # What is not supported SQLite itself says, in an error.

_OPERATOR = re.compile(r"\bOPERATOR\s*\(\s*pg_catalog\s*\.\s*([^\s)]+)\s*\)", re.IGNORECASE)
_COLLATE = re.compile(r"\bCOLLATE\s+(?:pg_catalog\s*\.\s*\"?\w+\"?|\"[^\"]*\")", re.IGNORECASE)
_TYPE_SCHEMA = re.compile(r"::\s*pg_catalog\s*\.\s*", re.IGNORECASE)
_SERIAL: Final = (exp.DataType.Type.SERIAL, exp.DataType.Type.BIGSERIAL, exp.DataType.Type.SMALLSERIAL)
_FUNCTIONS: Final = {
    "TRANSACTION_TIMESTAMP": "CURRENT_TIMESTAMP", "CLOCK_TIMESTAMP": "CURRENT_TIMESTAMP",
    "STATEMENT_TIMESTAMP": "CURRENT_TIMESTAMP", "BTRIM": "TRIM", "CHARACTER_LENGTH": "LENGTH",
}  # fmt: skip
_PLAIN: Final = (
    exp.Literal, exp.Boolean, exp.Null, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Paren, exp.Neg,
)  # fmt: skip
_CONSTANTS: Final = {
    "VERSION": "PostgreSQL 15.0 (its protocol, spoken by rsm-spark: the SQL is SQLite's)", "CURRENT_SCHEMA": "public",
    "PG_ADVISORY_UNLOCK_ALL": None,
}  # fmt: skip
_NUMBERED: Final = ("regclass", "regtype", "regproc", "regnamespace", "regrole")
_TEXTS = ("TEXT", "VARCHAR", "CHAR", "NCHAR", "NVARCHAR", "BPCHAR", "NAME", "UUID", "JSON", "JSONB", "TIME", "TIMETZ")
_MOMENTS = ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "TIMESTAMPLTZ", "DATETIME")
_FOLDED_CHARS_MIN: Final = 500
"""Shorter statements are read as they are, however many rows they have."""
_WHOLE = ("INT", "BIGINT", "SMALLINT", "TINYINT", "BOOLEAN")
_BROKEN = ("FLOAT", "DOUBLE")


_SqliteWords: Any = SQLite.Generator


class _Foreign(Postgres):
    """PostgreSQL's words; NULLs are ordered as SQLite does."""

    NULL_ORDERING = "nulls_are_small"


class _Own(SQLite):
    """SQLite's words; the types of columns keep their names, by which clients are told of their values."""

    class Generator(_SqliteWords):  # type: ignore[misc]  # sqlglot makes it as it is imported
        def placeholder_sql(self, expression: exp.Placeholder) -> str:
            return f"?{expression.name.removeprefix('p')}"

        def datatype_sql(self, expression: exp.DataType) -> str:
            if isinstance(expression.parent, exp.ColumnDef):
                return "INTEGER" if expression.this in (exp.DataType.Type.INT, *_SERIAL) else expression.sql("postgres")
            return str(super().datatype_sql(expression))


class SpelledStatement:
    """A statement that is to be spelled as SQLite does.

    Args:
        lexed: As it came.

    Attributes:
        chars: Letters that sqlglot reads for it.

    """

    def __init__(self, lexed: LexedStatement) -> None:
        self._lexed = lexed
        self._folded = None
        self._texts: LongTexts | None = None
        self._sql = lexed.foreign_sql
        if (lexed.is_foreign and not lexed.is_of_system) and len(self._sql) > _FOLDED_CHARS_MIN:
            self._folded = folded(self._sql)
            if self._folded is None:
                self._texts = LongTexts(self._sql)
                self._sql = self._texts.sql
            else:
                self._sql = self._folded.sql
        self.chars = len(self._sql) if lexed.is_foreign or lexed.is_of_system else 0

    def sql(self) -> str:
        """Return it as SQLite spells it."""
        lexed = self._lexed
        if not self.chars:
            return lexed.sql
        found = _spelled(lexed, self._sql)
        # What is not whole again goes as it came: `chars` says what sqlglot may read.
        if self._folded is not None:
            return self._folded.unfolded(found) or lexed.sql
        return found if self._texts is None else self._texts.put_back(found) or lexed.sql


def respelled(lexed: LexedStatement) -> str:
    """Return a statement as SQLite spells it."""
    return SpelledStatement(lexed).sql()


def _spelled(lexed: LexedStatement, text: str) -> str:
    if lexed.is_of_system:
        text = _TYPE_SCHEMA.sub("::", _COLLATE.sub(" ", _OPERATOR.sub(r"\1", text)))
    try:
        trees = sqlglot.parse(text, read=_Foreign)
        if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Command):
            return lexed.sql
        tree = rewritten(trees[0], _SYSTEM_TURNS if lexed.is_of_system else _TURNS)
        if lexed.is_of_system:
            tree = for_system(tree)
        return str(tree.sql(dialect=_Own, unsupported_level=sqlglot.ErrorLevel.IGNORE))
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError, KeyError, AttributeError, TypeError):
        # sqlglot fails on some texts in ways of its own; SQLite then says what it makes of it.
        return lexed.sql


def _turned(node: Any) -> Any:
    turn = _TURNS.get(type(node))
    return node if turn is None else turn(node)


def _table(node: Any) -> Any:
    if node.args.get("db") is not None and node.args["db"].name.lower() == "public":
        node.set("db", None)
        node.set("catalog", None)
    return node


def _column(node: Any) -> Any:
    if node.args.get("db") is not None and node.args["db"].name.lower() == "public":
        node.set("db", None)
    return node


def _dot(node: Any) -> Any:
    """Return a function without the schema that PostgreSQL's own are in."""
    of = node.this
    if isinstance(of, exp.Identifier) and of.name.lower() in ("pg_catalog", "public"):
        return _turned(node.expression)
    return node


def _call(name: str, *arguments: Any) -> Any:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _cast(node: Any) -> Any:
    kind, value = node.to, node.this
    name = kind.this.name if isinstance(kind.this, exp.DataType.Type) else ""
    if name == "USERDEFINED":
        word = kind.args["kind"].sql().split(".")[-1].strip('"').lower()
        return _call(word, value) if word in _NUMBERED else value
    if name == "INTERVAL":
        return written_interval(value) or value
    if name == "ARRAY" and isinstance(value, exp.Literal | exp.Placeholder | exp.Paren):
        return _array_text(value)
    if name in ("ARRAY", "LIST", "OID", "REGCLASS", "OBJECT_IDENTIFIER", "UNKNOWN"):
        return value
    if name == "DATE":
        return _call("DATE", value)
    if name == "BOOLEAN" and isinstance(value, exp.Literal) and value.is_string:
        return exp.Literal.number(1 if value.name.lower() in ("t", "true", "1", "yes", "on", "y") else 0)
    own = (
        "TEXT" if name in _TEXTS or name in _MOMENTS
        else "INTEGER" if name in _WHOLE
        else "REAL" if name in _BROKEN
        else "BLOB" if name in ("VARBINARY", "BINARY")
        else "NUMERIC"
    )  # fmt: skip
    return exp.Cast(this=value, to=exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=exp.to_identifier(own)))


def _array_text(value: Any) -> Any:
    """Return an array that was written as a text, `'{1,2}'`, as JSON."""
    inside = value.unnest() if isinstance(value, exp.Paren) else value
    if isinstance(inside, exp.Literal) and inside.name.startswith("{"):
        return exp.Literal.string(array_json(inside.name))
    is_mark = isinstance(inside, exp.Placeholder) and int(inside.name[1:] or 0) > PARAMETERS_MAX
    return _call(ARRAY_CALL, inside) if is_mark else inside


def _array(node: Any) -> Any:
    """Return `ARRAY[…]` as JSON, but that of `= ANY(…)`."""
    of = node.parent
    while isinstance(of, exp.Paren | exp.Cast):
        of = of.parent
    is_list = not any(isinstance(one, exp.Query) for one in node.expressions)
    return _call("JSON_ARRAY", *node.expressions) if is_list and not isinstance(of, exp.Any | exp.All) else node


def _unnested(node: Any) -> Any:
    """Return the items of arrays, side by side, as a table; there are as many rows as the first one has items."""
    alias = node.args.get("alias")
    named = [one.name for one in alias.columns] if alias is not None else []
    columns = named or (
        ["unnest"] if len(node.expressions) == 1 else [f"column{n}" for n in range(1, len(node.expressions) + 1)]
    )
    path = exp.DPipe(
        this=exp.DPipe(this=exp.Literal.string("$["), expression=exp.column("key")), expression=exp.Literal.string("]")
    )
    shown = [exp.alias_(exp.column("value"), columns[0], quoted=True)]
    for array, name in zip(node.expressions[1:], columns[1:], strict=False):
        shown.append(exp.alias_(_call("JSON_EXTRACT", array, path.copy()), name, quoted=True))
    items = exp.select(*shown).from_(_call("JSON_EACH", node.expressions[0]))
    table = exp.TableAlias(this=alias.this) if alias is not None and alias.this is not None else None
    return exp.Subquery(this=items, alias=table)


def _system_cast(node: Any) -> Any:
    """Return a cast to the name or the number of a table or a type as a call of that name."""
    word = node.to.sql("postgres").split(".")[-1].strip('"').lower()
    return _call(word, node.this) if word in _NUMBERED else _cast(node)


def _equal(node: Any) -> Any:
    """Return `a = ANY(b)` as `a IN …`."""
    found = node.expression
    if not isinstance(found, exp.Any):
        return node
    return _among(node.this, found.this)


def _unequal(node: Any) -> Any:
    found = node.expression
    return exp.Not(this=_among(node.this, found.this)) if isinstance(found, exp.All) else node


def _among(value: Any, of: Any) -> Any:
    of = of.unnest() if isinstance(of, exp.Paren) else of
    if isinstance(of, exp.Cast):
        of = of.this
    if isinstance(of, exp.Array):
        return exp.In(this=value, expressions=of.expressions)
    if isinstance(of, exp.Subquery | exp.Select):
        return exp.In(this=value, query=of if isinstance(of, exp.Subquery) else exp.Subquery(this=of))
    values = exp.select("value").from_(_call("JSON_EACH", of))
    return exp.In(this=value, query=exp.Subquery(this=values))


def _left(node: Any) -> Any:
    return _call("SUBSTR", node.this, exp.Literal.number(1), node.expression)


def _right(node: Any) -> Any:
    return _call("SUBSTR", node.this, exp.Neg(this=node.expression))


def _anonymous(node: Any) -> Any:
    if node.name.upper() in _CONSTANTS and not node.expressions:
        return _told(node.name.upper())(node)
    own = _FUNCTIONS.get(node.name.upper())
    if own is None:
        return node
    return exp.CurrentTimestamp() if own == "CURRENT_TIMESTAMP" else _call(own, *node.expressions)


def _definition(node: Any) -> Any:
    """Return a column whose numbers are given as SQLite gives them: `SERIAL`, `GENERATED … AS IDENTITY`."""
    kind = node.args.get("kind")
    constraints = [one.kind for one in node.constraints]
    is_identity = any(isinstance(one, exp.GeneratedAsIdentityColumnConstraint) for one in constraints)
    is_primary = any(isinstance(one, exp.PrimaryKeyColumnConstraint) for one in constraints)
    if kind is None or not (is_identity or kind.this in _SERIAL):
        return node
    dropped = (exp.GeneratedAsIdentityColumnConstraint, exp.PrimaryKeyColumnConstraint)
    kept = [one for one in node.constraints if not isinstance(one.kind, dropped)]
    if is_primary:
        given = (exp.PrimaryKeyColumnConstraint(), exp.AutoIncrementColumnConstraint())
        kept = [*(exp.ColumnConstraint(kind=one) for one in given), *kept]
    node.set("kind", exp.DataType(this=exp.DataType.Type.INT))
    node.set("constraints", kept)
    return node


def _default(node: Any) -> Any:
    """Return a default that is computed in parentheses, as SQLite wants it."""
    return node if isinstance(node.this, _PLAIN) else exp.DefaultColumnConstraint(this=exp.Paren(this=node.this))


def _told(name: str) -> Callable[[Any], Any]:
    """Return a function of PostgreSQL that always says the same here as what it says."""
    value = _CONSTANTS[name]

    def turn(node: Any) -> Any:
        found = exp.Null() if value is None else exp.Literal.string(value)
        of = node.parent.parent if isinstance(node.parent, exp.Dot) else node.parent
        return exp.alias_(found, name.lower(), quoted=True) if isinstance(of, exp.Select) else found

    return turn


def _emptied(node: Any) -> Any:
    return exp.Delete(this=node.expressions[0]) if len(node.expressions) == 1 else node


def _dropped(node: Any) -> Any:
    """Return a DROP that says nothing of what depends on it: SQLite has one way."""
    for word in ("cascade", "restrict", "concurrently"):
        node.set(word, None)
    return node


def _made(node: Any) -> Any:
    """Return a CREATE INDEX that waits for no locks: there are none."""
    node.set("concurrently", None)
    return node


def _inserted(node: Any) -> Any:
    """Return an INSERT of a query's rows so that SQLite takes ON CONFLICT for the INSERT's, not for a join's."""
    query = node.expression
    if node.args.get("conflict") is not None and isinstance(query, exp.Select) and query.args.get("where") is None:
        query.set("where", exp.Where(this=exp.Boolean(this=True)))
    return node


def _in_zone(node: Any) -> Any:
    """Return a time in UTC as it is: so all are kept. SQLite knows no other zone by its name."""
    zone = node.args["zone"]
    is_utc = isinstance(zone, exp.Literal) and zone.name.upper() in ("UTC", "GMT", "ETC/UTC", "Z")
    return node.this if is_utc else node


def _opclass(node: Any) -> Any:
    return node.this


def _values(node: Any) -> Any:
    """Return `(VALUES …) AS a (b, c)` as a query whose columns have these names."""
    alias = node.args.get("alias")
    if alias is None or not alias.columns:
        return node
    columns = [exp.alias_(exp.column(f"column{place}"), one) for place, one in enumerate(alias.columns, 1)]
    bare = node.copy()
    bare.set("alias", None)
    inside = exp.Subquery(this=exp.select(*columns).from_(exp.Subquery(this=bare)))
    inside.set("alias", exp.TableAlias(this=alias.this))
    return inside


def _gathered(node: Any) -> Any:
    return _call("JSON_GROUP_ARRAY", node.this)


_TURNS: Final[dict[type, Callable[[Any], Any]]] = {
    exp.Table: _table, exp.Column: _column, exp.Dot: _dot, exp.Cast: _cast, exp.EQ: _equal, exp.NEQ: _unequal,
    **MOMENT_TURNS,
    exp.Left: _left, exp.Right: _right, exp.Anonymous: _anonymous, exp.ColumnDef: _definition,
    exp.TruncateTable: _emptied, exp.Values: _values, exp.ArrayAgg: _gathered, exp.DefaultColumnConstraint: _default,
    exp.Drop: _dropped, exp.Create: _made, exp.Opclass: _opclass, exp.AtTimeZone: _in_zone, exp.Insert: _inserted,
    exp.CurrentSchema: _told("CURRENT_SCHEMA"), exp.CurrentVersion: _told("VERSION"),
}  # fmt: skip
_SYSTEM_TURNS: Final = {**_TURNS, exp.Cast: _system_cast}
"""For questions to the catalog, whose arrays are its own."""
_TURNS.update({exp.Array: _array, exp.Unnest: _unnested})
