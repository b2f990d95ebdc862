"""Random queries in the spirit of sqllogictest: expressions, conditions, subqueries, joins, sets and groups."""

from __future__ import annotations

import random
from typing import Final

from tests.unit.rsm_spark.sql.logic_records import LogicRecord

_COLUMNS: Final = ("a", "b", "c", "d", "e")
_TABLES: Final = ("t1", "t2")
_TOTALS: Final = ("count(*)", "min(d)", "max(c)", "sum(a)", "total(b)")
_ROWS: Final = 30


class DrawnQueries:
    """See the module.

    Args:
        rng: Draws them.

    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._number = 0

    def schema(self) -> list[LogicRecord]:
        """Return statements that make and fill the tables, with values of all kinds."""
        made = [
            self._statement("CREATE TABLE t1 (a INTEGER, b INTEGER, c INTEGER, d INTEGER, e TEXT)"),
            self._statement("CREATE TABLE t2 (a INTEGER PRIMARY KEY, b REAL, c TEXT COLLATE NOCASE, d, e INT UNIQUE)"),
            self._statement("CREATE INDEX t1_bc ON t1 (b, c DESC)"),
            self._statement("CREATE VIEW v AS SELECT t1.a, t2.b, t2.c, t1.d, t1.e FROM t1 JOIN t2 ON t1.b = t2.a"),
        ]
        for number in range(_ROWS):
            for table in _TABLES:
                first = number if table == "t2" else self._value()
                values = [
                    first,
                    self._value(),
                    self._value(),
                    self._value(),
                    number if table == "t2" else self._value(),
                ]
                made.append(self._statement(f"INSERT INTO {table} VALUES ({', '.join(map(str, values))})"))
        made.append(self._statement("INSERT INTO t2 (a, e) VALUES (1, 999)", fails=True))
        return made

    def change(self) -> LogicRecord:
        """Return a statement that changes rows."""
        rng = self._rng
        table, column = rng.choice(_TABLES), rng.choice("bcd")
        match rng.randrange(3):
            case 0:
                sql = f"UPDATE {table} SET {column} = {self._expression(2)} WHERE {self._condition(1)}"
            case 1:
                sql = f"DELETE FROM {table} WHERE a = {rng.randrange(_ROWS * 3)}"
            case _:
                sql = (
                    f"INSERT INTO t1 SELECT a, b, {self._expression(1)}, d, e FROM {table} "
                    f"WHERE {self._condition(1)} ORDER BY 1, 2, 3, 4, 5 LIMIT 3"
                )
        return self._statement(sql)

    def query(self) -> LogicRecord:
        """Return a query whose answer has an order, or is compared without one."""
        rng = self._rng
        source = rng.choice(("t1", "t2", "v"))
        self._number += 1
        match rng.randrange(5):
            case 0:
                sql = f"SELECT {self._expression(3)}, {self._expression(2)} FROM {source} WHERE {self._condition(2)}"
            case 1:
                sql = (
                    f"SELECT {rng.choice(_COLUMNS)} AS k, {rng.choice(_TOTALS)} "
                    f"FROM {source} WHERE {self._condition(1)} GROUP BY k HAVING count(*) >= {rng.randrange(3)}"
                )
            case 2:
                kind = rng.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT"))
                sql = f"SELECT a, {self._expression(1)} FROM t1 {kind} SELECT a, {self._expression(1)} FROM t2"
            case 3:
                join = rng.choice(("JOIN", "LEFT JOIN", "CROSS JOIN"))
                sql = (
                    f"SELECT x.a, y.{rng.choice(_COLUMNS)} FROM t1 AS x {join} t2 AS y "
                    f"ON x.b = y.a AND y.e < {rng.randrange(40)}"
                )
            case _:
                sql = (
                    f"SELECT a, rank() OVER (ORDER BY a, b, c, d, e), "
                    f"CASE WHEN {self._condition(1)} THEN {self._expression(1)} ELSE {self._expression(1)} END "
                    f"FROM {source}"
                )
        columns = 3 if "rank()" in sql else 2
        return LogicRecord(f"drawn:{self._number}", sql, None, "T" * columns, "rowsort")

    def _statement(self, sql: str, *, fails: bool | None = False) -> LogicRecord:
        self._number += 1
        return LogicRecord(f"drawn:{self._number}", sql, fails)

    def _value(self) -> str:
        rng = self._rng
        return rng.choice((
            "NULL", str(rng.randrange(_ROWS)), str(rng.randrange(100, 300)), str(-rng.randrange(9)),
            f"{rng.randrange(99)}.5", f"'{rng.choice('abcxyzABC')}{rng.randrange(9)}'", f"x'{rng.randrange(128):02x}'",
        ))  # fmt: skip

    def _expression(self, depth: int) -> str:
        rng = self._rng
        if depth == 0 or rng.random() < 0.2:
            return rng.choice((*_COLUMNS, str(rng.randrange(10)), "NULL"))
        one, two = self._expression(depth - 1), self._expression(depth - 1)
        return rng.choice((
            f"({one} + {two})", f"({one} - {two})", f"({one} * {two})", f"abs(CAST({one} AS INTEGER))",
            f"coalesce({one}, {two})", f"({one} || {two})", f"({one} / 7)", f"length({one})", f"typeof({one})",
            f"CASE {one} WHEN {two} THEN 1 ELSE 0 END",
            f"(SELECT count(*) FROM t2 AS z WHERE z.e < {rng.randrange(40)})",
            f"nullif({one}, {two})", f"upper({one})", f"round({one}, 1)",
        ))  # fmt: skip

    def _condition(self, depth: int) -> str:
        rng = self._rng
        one, two = self._expression(1), self._expression(1)
        if depth == 0 or rng.random() < 0.4:
            return rng.choice((
                f"{one} < {two}", f"{one} = {two}", f"{one} IS NOT {two}", f"{one} BETWEEN 3 AND 200",
                f"{one} IN (1, 5, 'a1')",
                f"EXISTS (SELECT 1 FROM t2 AS z WHERE z.e = {rng.randrange(50)})",
                f"{one} LIKE '%a%'", f"{one} IS NULL",
            ))  # fmt: skip
        left, right = self._condition(depth - 1), self._condition(depth - 1)
        return rng.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))
