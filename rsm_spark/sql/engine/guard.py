"""Guard of the statements of clients: SQLite asks it for each thing that a statement would do, when it is prepared."""

from __future__ import annotations

import apsw

from rsm_spark.sql.table_rights import TableRights, folded

INTERNAL_PREFIX = "_rsm_"
"""Tables of the replica itself, in the same file."""
_SYSTEM = "temp"
"""Schema of the system tables of a connection; clients have nothing there."""

_READS = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE, apsw.SQLITE_FUNCTION})
_READS_NOTHING = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE, apsw.SQLITE_FUNCTION})
_WRITES = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
_SCHEMA = {
    apsw.SQLITE_CREATE_TABLE: "CREATE TABLE",
    apsw.SQLITE_CREATE_INDEX: "CREATE INDEX",
    apsw.SQLITE_CREATE_VIEW: "CREATE VIEW",
    apsw.SQLITE_CREATE_TRIGGER: "CREATE TRIGGER",
    apsw.SQLITE_DROP_TABLE: "DROP TABLE",
    apsw.SQLITE_DROP_INDEX: "DROP INDEX",
    apsw.SQLITE_DROP_VIEW: "DROP VIEW",
    apsw.SQLITE_DROP_TRIGGER: "DROP TRIGGER",
    apsw.SQLITE_ALTER_TABLE: "ALTER TABLE",
}
_REFUSED = {
    apsw.SQLITE_ATTACH: "ATTACH opens another file: the tables of a log are in one",
    apsw.SQLITE_DETACH: "DETACH: the tables of a log are in one file",
    apsw.SQLITE_TRANSACTION: "BEGIN, COMMIT and ROLLBACK: send the statements of a transaction together, or begin an "
    "interactive one",
    apsw.SQLITE_SAVEPOINT: "SAVEPOINT and RELEASE are for interactive transactions",
    apsw.SQLITE_ANALYZE: "ANALYZE: its statistics are not replicated",
    apsw.SQLITE_REINDEX: "REINDEX is not replicated: drop the index and make it again",
    apsw.SQLITE_CREATE_VTABLE: "virtual tables (FTS5, R*Tree, …) are not replicated",
    apsw.SQLITE_DROP_VTABLE: "virtual tables are not replicated",
    apsw.SQLITE_CREATE_TEMP_TABLE: "temporary tables are not replicated",
    apsw.SQLITE_CREATE_TEMP_INDEX: "temporary indexes are not replicated",
    apsw.SQLITE_CREATE_TEMP_VIEW: "temporary views are not replicated",
    apsw.SQLITE_CREATE_TEMP_TRIGGER: "temporary triggers are not replicated",
    apsw.SQLITE_DROP_TEMP_TABLE: "temporary tables are not replicated",
    apsw.SQLITE_DROP_TEMP_INDEX: "temporary indexes are not replicated",
    apsw.SQLITE_DROP_TEMP_VIEW: "temporary views are not replicated",
    apsw.SQLITE_DROP_TEMP_TRIGGER: "temporary triggers are not replicated",
}
_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
)
"""Pragmas that only tell of the schema."""
_FUNCTIONS_REFUSED = frozenset({"load_extension", "fts3_tokenizer", "sqlite_offset"})
_COMPUTED = ("json_each", "json_tree")
"""Tables whose rows SQLite computes from what it is given; those of pragmas tell of the schema, as their pragmas do."""
_NAMES_OF_ALL = ("sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema")
"""Names and definitions of tables are no secret."""
_OF_TWO = frozenset({
    apsw.SQLITE_CREATE_INDEX, apsw.SQLITE_CREATE_TRIGGER, apsw.SQLITE_DROP_INDEX, apsw.SQLITE_DROP_TRIGGER,
    apsw.SQLITE_ALTER_TABLE,
})  # fmt: skip
"""Changes of the schema of which the second name is that of the table."""
NO_RIGHT = "the caller has no right to "
"""Beginning of the words about what is beyond a caller's rights."""
_TABLES_REFUSED = ("dbstat", "sqlite_dbpage", "sqlite_stmt", "bytecode", "tables_used", "carray")


class StatementGuard:
    """Says what a client's statement may do.

    Args:
        may_write: Statements may change rows and schema.

    Attributes:
        may_write: The same.
        rights: Tables that the client has; None = all.
        written: Tables whose rows the statement changes, as it said when it was prepared.
        is_on: A client's statement is being run; else one of the replica itself, which may do anything.
        refusal: Why the last statement was refused, in words; "" = it was not.
        altered: Table whose schema it changes, as names are compared; "" = none, or all tables are the client's.
        schema_action: What the statement does to the schema ("DROP TABLE"); "" = nothing.
        target: Table, index, view or trigger that this is done to.
        is_rename, is_column_drop: Kind of an ALTER TABLE.
        has_read: The statement reads a table of the log, or tells of the schema.
        has_read_system: It reads a system table.
        system: Names of the system tables that the connection has now.

    """

    def __init__(self, *, may_write: bool) -> None:
        self.may_write = may_write
        self.rights: TableRights | None = None
        self.is_on = False
        self.system: frozenset[str] = frozenset()
        self._has_heard = True
        self.begin()

    def begin(self) -> None:
        """Forget the statement before."""
        if not self._has_heard:
            return
        self._has_heard = False
        self.refusal = ""
        self.written: set[str] = set()
        self.schema_action = ""
        self.altered = ""
        self.target = ""
        self.is_rename = False
        self.is_column_drop = False
        self.has_read = False
        self.has_read_system = False

    @property
    def change(self) -> tuple[str, str, str, bool, bool]:
        """Effect of the statement on the schema, to be set again when others were looked at meanwhile."""
        return self.schema_action, self.altered, self.target, self.is_rename, self.is_column_drop

    @change.setter
    def change(self, known: tuple[str, str, str, bool, bool]) -> None:
        self._has_heard = True
        self.schema_action, self.altered, self.target, self.is_rename, self.is_column_drop = known

    def __call__(self, action: int, one: str | None, two: str | None, database: str | None, _by: str | None) -> int:
        """Answer SQLite."""
        if not self.is_on:
            return apsw.SQLITE_OK
        self._has_heard = True
        # SQLite names no database where it reads no column: count(*).
        is_of_system = database == _SYSTEM or (database is None and (one or "").lower() in self.system)
        if action == apsw.SQLITE_READ and is_of_system:
            self.has_read_system = True
        else:
            self.has_read = self.has_read or action not in _READS_NOTHING
        reason = self._reason(action, one or "", two or "")
        if not reason and self.rights is not None and not is_of_system:
            reason = self._beyond(self.rights, action, one or "", two or "")
        if not reason:
            return apsw.SQLITE_OK
        self.refusal = self.refusal or reason
        return apsw.SQLITE_DENY

    def _reason(self, action: int, one: str, two: str) -> str:
        if action == apsw.SQLITE_FUNCTION:
            return self._function(two)
        if action == apsw.SQLITE_PRAGMA:
            return "" if one.lower() in _PRAGMAS else f"PRAGMA {one} is not for clients"
        if action == apsw.SQLITE_REINDEX and self.schema_action:
            return ""  # The index is being made.
        refused = _REFUSED.get(action)
        if refused is not None:
            return refused
        if one.lower().startswith(INTERNAL_PREFIX) or two.lower().startswith(INTERNAL_PREFIX):
            return f"names that begin with {INTERNAL_PREFIX} are the replica's own"
        if action in _READS:
            return f"{one} is not for clients" if one.lower() in _TABLES_REFUSED else ""
        if not self.may_write:
            return "it writes: send it by execute, not by query"
        if action in _SCHEMA:
            self.schema_action = self.schema_action or _SCHEMA[action]
            self.target = self.target or (two if action == apsw.SQLITE_ALTER_TABLE else one)
            return ""
        if action not in _WRITES:
            return f"action {action} of SQLite is not known to this version"
        if one == "sqlite_sequence" and not self.schema_action:
            return "sqlite_sequence is written by AUTOINCREMENT alone"
        return ""

    def _beyond(self, rights: TableRights, action: int, one: str, two: str) -> str:
        """Return what is beyond a client's rights, of triggers and views too: they act with these rights."""
        if action in _SCHEMA:
            table = two if action in _OF_TWO else one
            self.altered = self.altered or folded(table)
            return "" if rights.may_alter(table) else no_right("alter", table, "tables_schema")
        name = folded(one)
        if action in _WRITES:
            self.written.add(name)
            # What else is written of SQLite's own tables is looked at for everybody.
            is_dropped = self.schema_action.startswith("DROP") and name == self.altered
            if name.startswith("sqlite_") or is_dropped or rights.may_write(one):
                return ""
            return no_right("write", one, "tables_write")
        if action != apsw.SQLITE_READ or name in _NAMES_OF_ALL or name in _COMPUTED or name.startswith("pragma_"):
            return ""
        is_own_change = bool(self.schema_action) and (name == self.altered or name.startswith("sqlite_"))
        is_read = is_own_change or (rights.may_read(one) and not name.startswith("sqlite_"))
        return "" if is_read else no_right("read", one, "tables_read")

    def _function(self, name: str) -> str:
        if name.lower() in _FUNCTIONS_REFUSED:
            return f"the function {name} is not for clients"
        self.is_rename = self.is_rename or name == "sqlite_rename_table"
        self.is_column_drop = self.is_column_drop or name == "sqlite_drop_column"
        return ""


def no_right(verb: str, table: str, field: str) -> str:
    """Return the words about a table that is beyond a caller's rights."""
    return f"{NO_RIGHT}{verb} {table}: its {field} (in the file of principals) has no such name"
