"""Statements drawn by chance, mostly sound: schema, rows, triggers, foreign keys, conflicts."""

from __future__ import annotations

import random

_TYPES = ("INTEGER", "TEXT", "REAL", "NUMERIC", "BLOB", "")
_CONFLICTS = ("", "OR IGNORE", "OR REPLACE", "OR ABORT", "OR FAIL", "OR ROLLBACK")


class DrawnSql:
    """Draws statements for tables that it has made, as far as it knows.

    Args:
        rng: Chance.

    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._made = 0
        self._tables: dict[str, list[str]] = {}

    def learn(self, tables: dict[str, list[str]]) -> None:
        """Take columns by table as they really are: statements may have failed."""
        own = {"id", "k", "g", "p"}
        self._tables = {name: [one for one in columns if one not in own] for name, columns in tables.items()}
        self._tables = {name: columns for name, columns in self._tables.items() if columns}

    def transaction(self) -> list[str]:
        """Draw the statements of one transaction."""
        return [self.statement() for _ in range(self._rng.choice((1, 1, 2, 3, 6)))]

    def statement(self) -> str:
        rng = self._rng
        if len(self._tables) < 2 or rng.random() < 0.08:
            return self._create()
        draw = rng.random()
        if draw < 0.14:
            return self._alter()
        return rng.choice((self._insert, self._insert, self._insert, self._update, self._update, self._delete))()

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def _create(self) -> str:
        rng = self._rng
        name = self._name("t")
        columns = [f"c{number}" for number in range(rng.randint(1, 4))]
        parts = [f"{column} {rng.choice(_TYPES)} {self._constraint()}" for column in columns]
        kind = rng.random()
        suffix = ""
        if kind < 0.35:
            parts.insert(0, f"id INTEGER PRIMARY KEY {rng.choice(('', '', 'AUTOINCREMENT'))}")
            if rng.random() < 0.3:
                parts.append(f"g AS (c0 || 'x') {rng.choice(('VIRTUAL', 'STORED'))}")
            if self._tables and rng.random() < 0.4:
                parent = rng.choice(list(self._tables))
                action = rng.choice(("CASCADE", "SET NULL", "NO ACTION"))
                parts.append(f"p INTEGER REFERENCES {parent} ON DELETE {action} ON UPDATE {action}")
        elif kind < 0.6:
            suffix = " WITHOUT ROWID"
            collation = rng.choice(("", "COLLATE NOCASE"))
            parts.insert(0, f"k TEXT {collation}")
            parts.append(f"PRIMARY KEY ({rng.choice(('k', 'k, c0', 'c0, k'))})")
        elif kind < 0.7:
            parts.append("PRIMARY KEY (c0)")
        self._tables[name] = columns
        return f"CREATE TABLE {name} ({', '.join(parts)}){suffix}"

    def _constraint(self) -> str:
        return self._rng.choice(
            ("", "", "", "", "UNIQUE", "NOT NULL DEFAULT 0", "DEFAULT 'd'", "DEFAULT 1.5", "DEFAULT NULL", "CHECK (1)")
        )

    def _alter(self) -> str:
        rng = self._rng
        name = rng.choice(list(self._tables))
        columns = self._tables[name]
        match rng.randint(0, 9):
            case 0:
                column = self._name("a")
                columns.append(column)
                default = rng.choice(
                    ("", "DEFAULT 5", "DEFAULT 'x'", "NOT NULL DEFAULT 0", "DEFAULT '7'", "DEFAULT 2.0")
                )
                return f"ALTER TABLE {name} ADD COLUMN {column} {rng.choice(_TYPES)} {default}"
            case 1 if len(columns) > 1:
                return f"ALTER TABLE {name} DROP COLUMN {columns.pop()}"
            case 2:
                new = self._name("t")
                self._tables[new] = self._tables.pop(name)
                return f"ALTER TABLE {name} RENAME TO {new}"
            case 3:
                old, columns[-1] = columns[-1], self._name("r")
                return f"ALTER TABLE {name} RENAME COLUMN {old} TO {columns[-1]}"
            case 4 if len(self._tables) > 2:
                del self._tables[name]
                return f"DROP TABLE {name}"
            case 5:
                other = rng.choice(list(self._tables))
                column = self._tables[other][0]
                event = rng.choice(("INSERT", "DELETE", "UPDATE"))
                return (
                    f"CREATE TRIGGER {self._name('g')} AFTER {event} ON {name} BEGIN "
                    f"UPDATE {other} SET {column} = {column} || 't' WHERE length({column}) < 9; END"
                )
            case 6:
                return f"CREATE VIEW {self._name('v')} AS SELECT * FROM {name}"
            case 7:
                where = rng.choice(("", f" WHERE {columns[0]} > 3"))
                unique = rng.choice(("", "", "UNIQUE "))
                return f"CREATE {unique}INDEX {self._name('i')} ON {name} ({columns[0]}){where}"
            case 8:
                return f"CREATE INDEX IF NOT EXISTS i_{name} ON {name} (lower({columns[-1]}))"
            case _:
                return f"DROP INDEX IF EXISTS i_{name}"

    def _value(self) -> str:
        rng = self._rng
        plain = ("NULL", "'7'", "x'c3a9'", "x'6100'", "2.5", "-0.0", "1e300", "''", "9007199254740993")
        return rng.choice((str(rng.randint(-3, 12)), str(rng.randint(0, 9)), f"'{rng.choice('abcABC')}'", *plain))

    def _insert(self) -> str:
        rng = self._rng
        name = rng.choice(list(self._tables))
        columns = [column for column in self._tables[name] if rng.random() < 0.85] or self._tables[name][:1]
        if rng.random() < 0.3:
            columns = ["k", *columns] if rng.random() < 0.5 else ["id", *columns]
        lines = ", ".join(f"({', '.join(self._value() for _ in columns)})" for _ in range(rng.choice((1, 1, 2, 5))))
        return f"INSERT {rng.choice(_CONFLICTS)} INTO {name} ({', '.join(columns)}) VALUES {lines}"

    def _update(self) -> str:
        rng = self._rng
        name = rng.choice(list(self._tables))
        column = rng.choice([*self._tables[name], "id", "rowid", "k"])
        value = rng.choice((self._value(), f"{column} + 1", f"{column} || 'z'", f"upper({column})"))
        where = rng.choice(("", f" WHERE {rng.choice(self._tables[name])} = {self._value()}", " WHERE rowid = 1"))
        return f"UPDATE {rng.choice(_CONFLICTS)} {name} SET {column} = {value}{where}"

    def _delete(self) -> str:
        rng = self._rng
        name = rng.choice(list(self._tables))
        where = rng.choice((f" WHERE {rng.choice(self._tables[name])} = {self._value()}", " WHERE rowid = 2", ""))
        return f"DELETE FROM {name}{where}"
