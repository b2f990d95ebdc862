"""Questions to PostgreSQL's system catalog, respelled for SQLite: arrays, rows of arrays, who asks.

Arrays are texts of JSON; functions that take them apart are those of `catalog_functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlglot import exp

_PAIR: Final = 2
_VECTORS: Final = ("indkey", "indclass", "indoption")
_FUNCTIONS: Final = {"JSON_GROUP_ARRAY": "gathered_array"}


def for_system(tree: Any) -> Any:
    """Return a statement, of which the rest was respelled already."""
    if isinstance(tree, exp.Select):
        _name_columns(tree)
    for select in list(tree.find_all(exp.Select)):
        _spread_arrays(select)
        _pair_arrays(select)
    return rewritten(tree, _TURNS)


def rewritten(tree: Any, turns: Mapping[type, Callable[[Any], Any]]) -> Any:
    """Return a statement whose parts were turned, those inside of others first."""
    for node in reversed(list(tree.walk())):
        turn = turns.get(type(node))
        found = node if turn is None else turn(node)
        if found is node:
            continue
        if node is tree:
            tree = found
        else:
            node.replace(found)
    return tree


def _name_columns(select: Any) -> None:
    """Have columns that are a call named as PostgreSQL names them: by the function."""
    for column in select.expressions:
        if isinstance(column, exp.Anonymous):
            column.replace(exp.alias_(column.copy(), column.name.lower(), quoted=True))


def _call(name: str, *arguments: Any) -> Any:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _anonymous(node: Any) -> Any:
    name = node.name.upper()
    if name in _FUNCTIONS:
        return _call(_FUNCTIONS[name], *node.expressions)
    if name == "JSON_EACH" and node.expressions:
        inside = node.expressions[0]
        if not (isinstance(inside, exp.Anonymous) and inside.name == "json_items"):
            return _call("JSON_EACH", _call("json_items", inside))
    return node


def _array(node: Any) -> Any:
    """Return ARRAY[…] as a call, and ARRAY(SELECT …) as a question for all of its rows."""
    inside = node.expressions
    if len(inside) == 1 and isinstance(inside[0], exp.Select | exp.Subquery):
        query = inside[0].this if isinstance(inside[0], exp.Subquery) else inside[0]
        query = query.copy()
        query.set("expressions", [exp.alias_(query.expressions[0].unalias(), "_item")])
        found = exp.select(_call("gathered_array", exp.column("_item"))).from_(exp.Subquery(this=query, alias="_of"))
        return exp.Subquery(this=found)
    return _call("made_array", *inside)


def _spread_arrays(select: Any) -> None:
    """Have a row for each item of an array that stands among the columns of a query."""
    found = _of_items(select)
    if not found:
        return
    array = _array_of(found[0])
    for one in found:
        field = one.expression.name.lower() if isinstance(one, exp.Dot) else ""
        if field == "_pg_expandarray":
            turned = _call("JSON_ARRAY", _place(_array_of(one)), exp.column("value", table="_items"))
            field = ""
        elif field == "n" or _is_places(one):
            turned = _place(_array_of(one))
        else:
            turned = exp.column("value", table="_items")
        is_column = one.parent is select
        one.replace(exp.alias_(turned, field) if is_column and field else turned)
    each = exp.Table(this=_call("JSON_EACH", array.copy()), alias=exp.TableAlias(this=exp.to_identifier("_items")))
    select.append("joins", exp.Join(this=each, kind="CROSS"))


def _pair_arrays(select: Any) -> None:
    """Have `unnest(a, b) WITH ORDINALITY u (x, y, place)` behind other tables, of whose columns a and b may be.

    SQLite knows the columns of tables before it in the arguments of a function alone, not in a query. So it is
    a function, and its columns are said where they are used.
    """
    joins = select.args.get("joins") or []
    for join in joins:
        pair = join.this
        alias = pair.args.get("alias") if isinstance(pair, exp.Unnest) else None
        if alias is None or alias.this is None or len(pair.expressions) < _PAIR:
            continue
        if not all(isinstance(one, exp.Column) for one in pair.expressions):
            continue  # Others would grow with each place that names their items.
        name, offset = alias.name, pair.args.get("offset")
        first, *others = pair.expressions
        meant: list[Any] = [exp.column("value", table=name)]
        meant += [_call("array_item", other, exp.column("key", table=name), exp.Literal.number(0)) for other in others]
        meant.append(exp.Paren(this=exp.Add(this=exp.column("key", table=name), expression=exp.Literal.number(1))))
        names = [one.name for one in alias.columns] + ([offset.name] if isinstance(offset, exp.Identifier) else [])
        columns = dict(zip(names, meant, strict=False))
        for column in list(select.find_all(exp.Column)):
            is_here = column.find_ancestor(exp.Select) is select and column.table in ("", name)
            if is_here and column.name in columns and column.find_ancestor(exp.Unnest) is None:
                turned = columns[column.name].copy()
                column.replace(exp.alias_(turned, column.name) if column.parent is select else turned)
        tables = [select.args["from_"].this, *(one.this for one in joins if one is not join)]
        shown: list[Any] = []
        for one in select.expressions:
            if not isinstance(one, exp.Star):
                shown.append(one)
                continue
            shown += [exp.Column(this=exp.Star(), table=exp.to_identifier(of.alias_or_name)) for of in tables]
            shown += [exp.alias_(of.copy(), word) for word, of in columns.items()]
        select.set("expressions", shown)
        items = _call("JSON_EACH", first.copy())
        pair.replace(exp.Table(this=items, alias=exp.TableAlias(this=exp.to_identifier(name))))


def _array_of(one: Any) -> Any:
    if isinstance(one, exp.Dot):
        one = one.expression if isinstance(one.expression, exp.Anonymous) else one.this.this.expression
    return one.expressions[0] if one.expressions else one.this


def _place(array: Any) -> Any:
    """Return the number of an item; those arrays of the catalog that are vectors begin with 0."""
    is_vector = isinstance(array, exp.Column) and array.name.lower() in _VECTORS
    is_counted = is_vector and array.find_ancestor(exp.Dot) is None
    return exp.Add(this=exp.column("key", table="_items"), expression=exp.Literal.number(0 if is_counted else 1))


def _of_items(select: Any) -> list[Any]:
    """Return what stands for the items of an array among the columns of a query."""
    return [
        one
        for column in select.expressions
        for one in column.find_all(exp.Explode, exp.Unnest, exp.Anonymous, exp.Dot)
        if one.find_ancestor(exp.Select) is select and (_is_items(one) or _is_places(one) or _is_expanded(one))
    ]


def _is_items(one: Any) -> bool:
    return isinstance(one, exp.Explode | exp.Unnest)


def _is_places(one: Any) -> bool:
    return isinstance(one, exp.Anonymous) and one.name.upper() == "GENERATE_SUBSCRIPTS"


def _is_expanded(one: Any) -> bool:
    """Return whether it is `information_schema._pg_expandarray(a)`, or `(…).n`, or `(…).x` of that."""
    if not isinstance(one, exp.Dot):
        return False
    if isinstance(one.this, exp.Paren) and isinstance(one.this.this, exp.Dot):
        return bool(one.this.this.expression.name.lower() == "_pg_expandarray")
    is_part = isinstance(one.parent, exp.Paren) and isinstance(one.parent.parent, exp.Dot)
    return not is_part and isinstance(one.expression, exp.Anonymous) and one.expression.name == "_pg_expandarray"


def _part(node: Any) -> Any:
    """Return `(a.keys).x` and `(a.keys).n` of a pair of number and item."""
    inside = node.this.this if isinstance(node.this, exp.Paren) else None
    if not isinstance(inside, exp.Column) or node.expression.name.lower() not in ("n", "x"):
        return node
    path = "$[0]" if node.expression.name.lower() == "n" else "$[1]"
    return _call("JSON_EXTRACT", inside, exp.Literal.string(path))


def _unnested(node: Any) -> Any:
    """Return the items of an array as a table of one column, which has its name."""
    alias = node.args.get("alias")
    name = alias.name if alias is not None else "unnest"
    columns = [one.name for one in alias.columns] if alias is not None else []
    inside = node.expressions[0] if node.expressions else node.this
    offset = node.args.get("offset")
    columns += [offset.name] if isinstance(offset, exp.Identifier) else []
    shown = [exp.alias_(exp.column("value"), columns[0] if columns else name)]
    if len(columns) > 1:
        shown.append(exp.alias_(exp.Add(this=exp.column("key"), expression=exp.Literal.number(1)), columns[1]))
    items = exp.select(*shown).from_(_call("JSON_EACH", _call("json_items", inside)))
    return exp.Subquery(this=items, alias=exp.TableAlias(this=exp.to_identifier(name)))


def _table(node: Any) -> Any:
    """Return `pg_catalog.unnest(a) x` likewise, and other functions that stand for a table."""
    inside = node.this
    if isinstance(inside, exp.Explode | exp.Unnest):
        alias = node.args.get("alias")
        return _unnested(exp.Unnest(expressions=[inside.args.get("this") or inside.expressions[0]], alias=alias))
    if isinstance(inside, exp.Anonymous) and inside.name.lower() == "pg_partition_ancestors":
        return _unnested(exp.Unnest(expressions=[inside], alias=node.args.get("alias")))
    if isinstance(inside, exp.GenerateSeries):
        series = _call("json_series", inside.args["start"], inside.args["end"])
        return _unnested(exp.Unnest(expressions=[series], alias=node.args.get("alias")))
    return node


def _item(node: Any) -> Any:
    """Return an item of an array by its number; vectors of the catalog begin with 0, others with 1."""
    (number,) = node.expressions
    if isinstance(number, exp.Literal):
        number = exp.Literal.number(int(number.name) + 1)  # As it was written.
    of = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
    is_vector = isinstance(of, exp.Column) and any(word in of.name.lower() for word in _VECTORS)
    return _call("array_item", of, number, exp.Literal.number(0 if is_vector else 1))


def _who(name: str) -> Callable[[Any], Any]:
    def turn(node: Any) -> Any:
        found = _call(name)
        return exp.alias_(found, name, quoted=True) if isinstance(node.parent, exp.Select) else found

    return turn


def _gathered(node: Any) -> Any:
    return _call("gathered_array", node.this)


_TURNS: Final[dict[type, Callable[[Any], Any]]] = {
    exp.Anonymous: _anonymous, exp.Array: _array, exp.CurrentUser: _who("current_user"),
    exp.SessionUser: _who("session_user"), exp.ArrayAgg: _gathered, exp.Unnest: _unnested,
    exp.Table: _table, exp.Dot: _part, exp.Bracket: _item,
}  # fmt: skip
