"""Writes the fixed files of `tests/integration/logic_files`: statements and queries in the format of sqllogictest.

They are this project's own, drawn with fixed seeds; the answers are those of the SQLite in Python's standard library,
another build than the one that the replicas use. The public files of sqllogictest are not among them: their driver
states a licence with which they cannot stand here. Names of tables begin with the file's, so that all files can be run
at once on one log.

    python -m tests.integration.write_logic_files
"""

# ruff: noqa: S608 - statements made of drawn pieces are what this module is for

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.rsm_spark.sql.logic_records import shown

FOLDER = Path(__file__).parent / "logic_files"
_SHOWN_MAX = 8
"""Longer answers are written as their number and their MD5."""


class LogicWriter:
    """Writes one file, and asks SQLite on the way.

    Args:
        name: Of the file; names of tables begin with it.

    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = random.Random(name)
        self._blocks = [f"# Written by tests/integration/write_logic_files.py\n\nhash-threshold {_SHOWN_MAX}"]
        self._sqlite = sqlite3.connect(":memory:", isolation_level=None)
        self._sqlite.execute("PRAGMA foreign_keys = ON")

    def do(self, sql: str) -> None:
        """Write a statement; whether it fails, SQLite says."""
        sql = sql.replace("@", f"{self.name}_")
        try:
            self._sqlite.execute(sql)
        except sqlite3.IntegrityError:
            self._blocks.append(f"statement error\n{sql}")
        else:
            self._blocks.append(f"statement ok\n{sql}")

    def ask(self, sql: str, *, sort: str = "rowsort", label: str = "") -> None:
        """Write a query with its answer."""
        sql = sql.replace("@", f"{self.name}_")
        rows = self._sqlite.execute(sql).fetchall()
        columns = len(rows[0]) if rows else len(self._sqlite.execute(sql).description)
        types = "".join(_type([row[at] for row in rows]) for at in range(columns))
        values = shown(rows, types, sort)
        if len(values) > _SHOWN_MAX:
            digest = hashlib.md5("".join(f"{one}\n" for one in values).encode(), usedforsecurity=False).hexdigest()
            values = [f"{len(values)} values hashing to {digest}"]
        head = " ".join(word for word in ("query", types, sort, label) if word)
        self._blocks.append("\n".join((head, sql, "----", *values)))

    def numbers(self, table: str, rows: int, columns: str = "abcde") -> None:
        """Make a table of integers, one value of eight NULL."""
        self.do(f"CREATE TABLE @{table} ({', '.join(f'{one} INTEGER' for one in columns)})")
        for _ in range(rows // 5):
            five = (", ".join(self.value() for _ in columns) for _ in range(5))
            self.do(f"INSERT INTO @{table} VALUES {', '.join(f'({one})' for one in five)}")

    def value(self) -> str:
        return "NULL" if self.rng.random() < 1 / 8 else str(self.rng.randrange(100))

    def number(self, depth: int = 2, prefix: str = "") -> str:
        """Draw an expression of a number."""
        rng = self.rng
        if depth == 0:
            return rng.choice((*(f"{prefix}{one}" for one in "abcde"), str(rng.randrange(100))))
        one, two = self.number(depth - 1, prefix), self.number(depth - 1, prefix)
        kinds = (
            f"{one} + {two}", f"{one} - ({two})", f"({one}) * 2", f"abs({one} - 50)", f"coalesce({one}, {two})",
            f"nullif({one}, {two})", f"({one}) % 7", f"max({one}, {two})", f"-({one})",
            f"CASE WHEN {self.condition(0, prefix)} THEN {one} ELSE {two} END",
        )  # fmt: skip
        return rng.choice(kinds)

    def condition(self, depth: int = 1, prefix: str = "") -> str:
        """Draw a condition: true, false or NULL."""
        rng = self.rng
        if depth == 0:
            one, two = f"{prefix}{rng.choice('abcde')}", f"{prefix}{rng.choice('abcde')}"
            low = rng.randrange(80)
            return rng.choice((
                f"{one} > {two}", f"{one} <= {low}", f"{one} BETWEEN {low} AND {low + 30}", f"{one} IS NULL",
                f"{one} NOT IN ({low}, {low + 1}, {low + 2})", f"{one} <> {two}", f"{one} IS NOT {two}",
                f"{one} = {low}", f"{one} IN ({low}, NULL, {two})",
            ))  # fmt: skip
        one, two = self.condition(depth - 1, prefix), self.condition(depth - 1, prefix)
        return rng.choice((f"({one} AND {two})", f"({one} OR {two})", f"NOT ({one})"))

    def change(self, table: str) -> None:
        """Write a statement that changes some rows of numbers."""
        rng, low = self.rng, self.rng.randrange(100)
        self.do(
            rng.choice(
                (
                    f"UPDATE @{table} SET {rng.choice('bcd')} = {self.number(1)} WHERE {self.condition()}",
                    f"DELETE FROM @{table} WHERE a = {low}",
                    f"INSERT INTO @{table} VALUES ({', '.join(self.value() for _ in 'abcde')})",
                )
            )
        )

    def text(self) -> str:
        """Return the file."""
        return "\n\n".join(self._blocks) + "\n"


def _type(values: list[Any]) -> str:
    kinds = {type(one) for one in values} - {type(None)}
    if kinds <= {int}:
        return "I"
    return "R" if kinds <= {int, float} else "T"


def _expressions(file: LogicWriter) -> None:
    file.numbers("t", 30)
    for _ in range(60):
        file.ask(f"SELECT {file.number()}, {file.number(1)} FROM @t WHERE {file.condition()}")
        file.ask(f"SELECT a, {file.number()} AS n FROM @t ORDER BY n, a, b, c, d, e", sort="nosort")
        file.change("t")


def _joins(file: LogicWriter) -> None:
    for table in ("x", "y", "z"):
        file.numbers(table, 20)
    kinds = ("JOIN", "LEFT JOIN", "CROSS JOIN")
    for number in range(60):
        on = f"x.{file.rng.choice('abc')} % 9 = y.{file.rng.choice('abc')} % 9"
        join = f"@x AS x {file.rng.choice(kinds)} @y AS y ON {on} AND {file.condition(0, 'y.')}"
        file.ask(f"SELECT x.a, {file.number(1, 'y.')} FROM {join} WHERE {file.condition(1, 'x.')}")
        third = f"{join} {file.rng.choice(kinds)} @z AS z ON z.d % 5 = x.d % 5"
        file.ask(f"SELECT count(*), sum(z.a), min(y.b) FROM {third} WHERE x.a < {file.rng.randrange(100)}")
        if number % 3 == 0:
            file.change(file.rng.choice("xyz"))


def _aggregates(file: LogicWriter) -> None:
    file.numbers("t", 40)
    totals = ("count(*)", "count(b)", "count(DISTINCT b % 5)", "sum(c)", "total(d)", "min(e)", "max(e - c)",
              "avg(d)", "sum(b) FILTER (WHERE c > 40)", "group_concat(DISTINCT 7)")  # fmt: skip
    for number in range(60):
        chosen = ", ".join(file.rng.sample(totals, 3))
        file.ask(f"SELECT {chosen} FROM @t WHERE {file.condition()}")
        having = file.rng.choice(("count(*) > 1", "min(b) < 50", "sum(c) IS NOT NULL"))
        file.ask(f"SELECT {file.rng.choice('abc')} % 6 AS k, {chosen} FROM @t GROUP BY k HAVING {having}")
        if number % 3 == 0:
            file.change("t")


def _nulls(file: LogicWriter) -> None:
    file.do("CREATE TABLE @t (a INTEGER, b INTEGER UNIQUE, c TEXT NOT NULL DEFAULT 'none', d, e)")
    for one in ("NULL", "0", "1", "2", "NULL"):
        for two in ("NULL", "0", "1", "'x'", "2.5"):
            file.do(f"INSERT INTO @t (a, b, d, e) VALUES ({one}, {file.value()}, {two}, {file.value()})")
    file.do("INSERT INTO @t (c) VALUES (NULL)")
    for _ in range(80):
        first, second = file.condition(), file.condition()
        file.ask(f"SELECT {first}, {second}, ({first}) AND ({second}), ({first}) OR ({second}) FROM @t")
        low = file.rng.randrange(3)
        file.ask(f"SELECT a, typeof(d) FROM @t WHERE d {file.rng.choice(('IS', 'IS NOT', '=', '<>', '<'))} {low}")
        file.do(f"UPDATE @t SET a = nullif(a, {low}), b = b + {file.rng.randrange(9)} WHERE {file.condition()}")


def _subqueries(file: LogicWriter) -> None:
    file.numbers("t", 30)
    file.numbers("u", 20)
    for number in range(60):
        total = file.rng.choice(("count(*)", "max(u.b)", "sum(u.c)"))
        one = f"(SELECT {total} FROM @u AS u WHERE u.a < t.a)"
        file.ask(f"SELECT t.a, {one} FROM @t AS t WHERE {file.condition(1, 't.')}")
        there = f"{file.rng.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM @u AS u WHERE u.b % 9 = t.b % 9)"
        inside = f"t.c {file.rng.choice(('', 'NOT '))}IN (SELECT u.{file.rng.choice('abc')} FROM @u AS u)"
        file.ask(f"SELECT t.a, t.b FROM @t AS t WHERE {there} {file.rng.choice(('AND', 'OR'))} {inside}")
        if number % 4 == 0:
            file.do(f"UPDATE @t SET e = (SELECT max(u.d) FROM @u AS u WHERE u.a > @t.a) WHERE {file.condition()}")
            file.do(f"DELETE FROM @u WHERE a = (SELECT min(a) FROM @t WHERE a > {file.rng.randrange(100)})")


def _sets(file: LogicWriter) -> None:
    file.numbers("t", 30)
    file.numbers("u", 30)
    kinds = ("UNION", "UNION ALL", "INTERSECT", "EXCEPT")
    for number in range(80):
        one = f"SELECT a % 20, b % 3 FROM @t WHERE {file.condition()}"
        two = f"SELECT c % 20, d % 3 FROM @u WHERE {file.condition()}"
        both = f"{one} {file.rng.choice(kinds)} {two}"
        file.ask(both)
        part = f"LIMIT {file.rng.randrange(9)} OFFSET {file.rng.randrange(5)}"
        file.ask(f"{both} {file.rng.choice(kinds)} SELECT 1, 2 ORDER BY 1, 2 {part}", sort="nosort")
        if number % 3 == 0:
            file.do(f"INSERT INTO @t SELECT * FROM @u WHERE {file.condition(0)} ORDER BY a, b, c, d, e LIMIT 2")
            file.change("u")


def _indexes(file: LogicWriter) -> None:
    tables = ("plain", "single", "double", "partial", "formula", "keyed")
    for table in tables:
        end = ", id INTEGER PRIMARY KEY) WITHOUT ROWID" if table == "keyed" else ", id INTEGER)"
        file.do(f"CREATE TABLE @{table} (a INTEGER, b INTEGER, c INTEGER, d REAL, e TEXT{end}")
    for made in ("single ON @single (a)", "double ON @double (b DESC, c)", "partial ON @partial (a) WHERE c IS NULL",
                 "formula ON @formula (abs(b - c))", "text ON @single (e COLLATE NOCASE)"):  # fmt: skip
        file.do(f"CREATE INDEX @i_{made}")
    file.do("CREATE UNIQUE INDEX @i_id ON @double (id)")

    def everywhere(sql: str) -> None:
        for table in tables:
            file.do(sql.replace("?", table))

    for number in range(20):
        values = ", ".join(file.value() for _ in "abcd")
        everywhere(f"INSERT INTO @? VALUES ({values}, '{file.rng.choice('aAbB')}{number % 7}', {number})")
    for number in range(25):
        low = file.rng.randrange(70)
        where = file.rng.choice((
            f"a = {low}", f"b BETWEEN {low} AND {low + 30}", f"a > {low} AND c IS NULL", f"abs(b - c) < {low}",
            f"b > {low} AND c < {low}", f"id IN ({low % 20}, 3, 9)", "e LIKE 'a%'", f"d < {low} OR a > {low}",
        ))  # fmt: skip
        for table in tables:
            file.ask(f"SELECT id, b, e FROM @{table} WHERE {where} ORDER BY a, id", sort="nosort", label=f"q{number}")
        everywhere(f"UPDATE @? SET a = b, c = nullif(c, {low}) WHERE {where}")
    file.do("INSERT INTO @double (id) VALUES (7)")
    file.do("DROP INDEX @i_double")
    file.do("CREATE INDEX @i_late ON @plain (c, a)")
    file.ask("SELECT count(*), min(c) FROM @plain WHERE c < 50")


def _changes(file: LogicWriter) -> None:
    file.do("CREATE TABLE @t (id INTEGER PRIMARY KEY AUTOINCREMENT, k TEXT UNIQUE, n INT CHECK (n < 90), g AS (n * 2))")
    for _ in range(120):
        rng = file.rng
        key, n = f"'k{rng.randrange(25)}'", rng.randrange(100)
        file.do(
            rng.choice(
                (
                    f"INSERT INTO @t (k, n) VALUES ({key}, {n})",
                    f"INSERT OR REPLACE INTO @t (k, n) VALUES ({key}, {n})",
                    f"INSERT OR IGNORE INTO @t (k, n) VALUES ({key}, {n})",
                    f"INSERT INTO @t (k, n) VALUES ({key}, 1) ON CONFLICT (k) DO UPDATE SET n = n + {n}",
                    f"UPDATE @t SET n = n + {rng.randrange(30)} WHERE id % 5 = {n % 5}",
                    f"UPDATE OR REPLACE @t SET k = {key} WHERE id = {n // 3}",
                    f"DELETE FROM @t WHERE n > {n} AND id % 7 = 0",
                    f"INSERT INTO @t (id, k) VALUES ({n}, 'x{n}')",
                )
            )
        )
        file.ask("SELECT count(*), max(id), sum(n), sum(g) FROM @t")
    file.do("ALTER TABLE @t ADD COLUMN more TEXT DEFAULT 'some'")
    file.do("ALTER TABLE @t RENAME COLUMN n TO amount")
    file.do("INSERT INTO @t (k, amount) VALUES ('end', 5)")
    file.ask("SELECT id, k, amount, g, more FROM @t ORDER BY id", sort="nosort")


def _triggers(file: LogicWriter) -> None:
    file.do("CREATE TABLE @p (id INTEGER PRIMARY KEY, n INTEGER)")
    file.do("CREATE TABLE @c (id INTEGER PRIMARY KEY, p INTEGER REFERENCES @p (id) ON DELETE CASCADE, n INTEGER)")
    file.do("CREATE TABLE @told (what TEXT, id INTEGER, n INTEGER)")
    for what, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")):
        body = f"INSERT INTO @told VALUES ('{what}', {row}.id, {row}.n);"
        file.do(f"CREATE TRIGGER @on_{what.lower()} AFTER {what} ON @c BEGIN {body} END")
    file.do("CREATE TRIGGER @sum AFTER INSERT ON @c BEGIN UPDATE @p SET n = n + new.n WHERE id = new.p; END")
    file.do("CREATE VIEW @v AS SELECT p.id AS p, p.n AS n, count(c.id) AS many FROM @p AS p LEFT JOIN @c AS c "
            "ON c.p = p.id GROUP BY p.id")  # fmt: skip
    file.do("CREATE TRIGGER @into INSTEAD OF INSERT ON @v BEGIN INSERT INTO @p VALUES (new.p, new.n); END")
    for number in range(100):
        one, n = file.rng.randrange(20), file.rng.randrange(50)
        file.do(
            file.rng.choice(
                (
                    f"INSERT INTO @v (p, n) VALUES ({one}, {n})",
                    f"INSERT INTO @c VALUES ({number}, {one}, {n})",
                    f"INSERT INTO @c VALUES ({number}, {one}, {n})",
                    f"UPDATE @c SET n = n + 1 WHERE p = {one}",
                    f"DELETE FROM @p WHERE id = {one}",
                    f"REPLACE INTO @c VALUES ({n}, {one}, {number})",
                )
            )
        )
        file.ask(file.rng.choice(("SELECT * FROM @v", "SELECT what, count(*), sum(n) FROM @told GROUP BY what")))
    file.ask("SELECT what, id, n FROM @told ORDER BY rowid", sort="nosort")


def _windows(file: LogicWriter) -> None:
    file.numbers("t", 30)
    order = "a, b, c, d, e"
    frames = ("", " ROWS 2 PRECEDING", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", " GROUPS CURRENT ROW")
    for number in range(40):
        over = f"(PARTITION BY {file.rng.choice('bcd')} % 4 ORDER BY {order}{file.rng.choice(frames)})"
        what = file.rng.choice(("sum(e)", "rank()", "row_number()", "count(*)", "lag(c, 2)", "first_value(d)"))
        file.ask(f"SELECT a, b, {what} OVER {over} FROM @t WHERE {file.condition()}")
        end = file.rng.randrange(4, 12)
        steps = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {end})"
        file.ask(
            f"{steps} SELECT i, count(t.a) FROM n LEFT JOIN @t AS t ON t.{file.rng.choice('abc')} % 12 = i GROUP BY i"
        )
        file.ask(f"SELECT json_extract(json_array({order}), '$[{number % 5}]') FROM @t WHERE {file.condition()}")
        file.change("t")


KINDS: dict[str, Callable[[LogicWriter], None]] = {
    "expressions": _expressions,
    "joins": _joins,
    "aggregates": _aggregates,
    "nulls": _nulls,
    "subqueries": _subqueries,
    "sets": _sets,
    "indexes": _indexes,
    "changes": _changes,
    "triggers": _triggers,
    "windows": _windows,
}


def written(name: str) -> str:
    """Return the text of the file of this name."""
    file = LogicWriter(name)
    KINDS[name](file)
    return file.text()


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for name in KINDS:
        (FOLDER / f"{name}.test").write_text(written(name))


if __name__ == "__main__":
    main()
