"""Functions of PostgreSQL that questions to its system catalog call, as far as they say something here. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rsm_spark.sql.pg.catalog_tables import (
    CATALOG_OID,
    DATABASE_OID,
    INFORMATION_OID,
    PUBLIC_OID,
    TYPES,
    PgCatalogRows,
    quoted_name,
)
from rsm_spark.sql.pg.session_settings import SERVER_VERSION
from rsm_spark.sql.table_rights import TableRights

ARRAY_MARK: Final = "\x02"
"""Begins a text that is an array: JSON behind it."""
_PATTERN_CHARS_MAX: Final = 200
_READ_PRIVILEGES: Final = frozenset({"SELECT"})
_WRITTEN: Final = frozenset({"INSERT", "UPDATE", "DELETE", "TRUNCATE"})
_ALTERED: Final = frozenset({"REFERENCES", "TRIGGER"})
_PRIVILEGES: Final = _READ_PRIVILEGES | _WRITTEN | _ALTERED | {"MAINTAIN", "RULE"}
"""All that PostgreSQL knows, those of before too. Nobody has what is not served: MAINTAIN is VACUUM and its like."""
_OF_SCHEMAS: Final = frozenset({"USAGE", "CREATE"})
_OF_DATABASES: Final = frozenset({"CREATE", "CONNECT", "TEMPORARY", "TEMP"})
_OF_FUNCTIONS: Final = frozenset({"EXECUTE"})
_SCHEMAS: Final = {"pg_catalog": CATALOG_OID, "public": PUBLIC_OID, "information_schema": INFORMATION_OID}
_GRANTED: Final = " WITH GRANT OPTION"
"""Nobody has it: rights are in a file."""
_TYPES_BY_NAME: Final = {
    **{name: oid for oid, (name, _, _, _) in TYPES.items()},
    **{words: oid for oid, (_, words, _, _) in TYPES.items()},
}
_ARRAYS: Final = {array: oid for oid, (_, _, _, array) in TYPES.items() if array}
_PATTERNS = re.compile(r"[\w\s^$()|.*+?\[\]\\-]*")


class CatalogAsker(NamedTuple):
    """Session that asks the system catalog.

    Attributes:
        user: Its name.
        settings: Of it.
        rights: Tables that it has; None = all.
        may_write: It may write those at all.

    """

    user: str
    settings: Mapping[str, str]
    rights: TableRights | None = None
    may_write: bool = True


class PgCatalogCalls:
    """See the module.

    Args:
        database: Name of the log.

    Attributes:
        asker: Who asks.

    """

    def __init__(self, database: str) -> None:
        self.asker = CatalogAsker("", {})
        self._database = database
        self._found = PgCatalogRows({}, {}, {}, {}, {}, {})
        self._by_name: dict[str, int] = {}

    def take(self, found: PgCatalogRows) -> None:
        """Speak of these tables from here on."""
        self._found = found
        self._by_name = {name: oid for oid, name in found.names.items()}

    def scalars(self) -> dict[str, Callable[..., Any]]:
        """Return functions of values by name."""
        always: dict[str, Any] = {
            "pg_table_is_visible": 1, "pg_type_is_visible": 1, "pg_function_is_visible": 1, "pg_operator_is_visible": 1,
            "pg_has_role": 1, "pg_relation_size": 0,
            "pg_collation_is_visible": 1, "obj_description": None, "col_description": None, "shobj_description": None,
            "pg_table_size": 0, "pg_total_relation_size": 0, "pg_database_size": 0, "pg_indexes_size": 0,
            "pg_is_in_recovery": 0, "pg_my_temp_schema": 0, "pg_is_other_temp_schema": 0, "pg_backend_pid": 0,
            "pg_get_userbyid": "rsm", "pg_encoding_to_char": "UTF8", "pg_get_function_result": None,
            "pg_get_function_arguments": None, "pg_get_function_identity_arguments": None, "pg_get_ruledef": None,
            "pg_get_partkeydef": None, "pg_get_statisticsobjdef_columns": None, "pg_relation_is_publishable": 0,
            "pg_stat_get_numscans": 0, "inet_server_addr": None, "inet_server_port": None, "inet_client_addr": None,
            "txid_current": 0, "pg_postmaster_start_time": None, "pg_conf_load_time": None, "pg_size_pretty": "0 bytes",
            "pg_get_serial_sequence": None, "pg_partition_ancestors": None,
            "pg_partition_root": None, "pg_collation_for": None, "pg_tablespace_location": "",
        }  # fmt: skip
        said: dict[str, Callable[..., Any]] = {name: _says(value) for name, value in always.items()}
        return (
            said
            | self._rights()
            | {
                "version": lambda *_: f"PostgreSQL {SERVER_VERSION} (its protocol, spoken by rsm-spark)",
                "current_database": lambda *_: self._database,
                "current_catalog": lambda *_: self._database,
                "current_schema": lambda *_: "public",
                "current_schemas": lambda *_: marked(["pg_catalog", "public"]),
                "current_user": lambda *_: self.asker.user,
                "session_user": lambda *_: self.asker.user,
                "current_role": lambda *_: self.asker.user,
                "current_setting": self._setting,
                "set_config": lambda _name, value, *_: value,
                "format_type": _format_type,
                "pg_get_expr": lambda text, *_: text,
                "pg_get_indexdef": self._index_text,
                "pg_get_constraintdef": lambda oid, *_: self._found.constraint_texts.get(oid),
                "pg_get_viewdef": self._view_text,
                "pg_get_triggerdef": lambda oid, *_: self._found.trigger_texts.get(oid),
                "pg_char_to_encoding": lambda *_: 6,
                "regclass": self._regclass,
                "to_regclass": self._to_regclass,
                "regtype": self._regtype,
                "to_regtype": lambda name, *_: _TYPES_BY_NAME.get(str(name).strip('"').lower()),
                "regproc": lambda value, *_: value,
                "regnamespace": lambda value, *_: value,
                "regrole": lambda value, *_: "rsm" if value else value,
                "quote_ident": lambda name, *_: None if name is None else quoted_name(str(name)),
                "quote_literal": lambda text, *_: None if text is None else "'" + str(text).replace("'", "''") + "'",
                "array_to_string": _joined,
                "array_length": lambda found, *_: len(items(found)) or None,
                "array_upper": lambda found, *_: len(items(found)) or None,
                "cardinality": lambda found, *_: len(items(found)),
                "array_position": _position,
                "array_item": _item,
                "json_series": lambda first, last, *_: json.dumps(list(range(first or 0, min(last or 0, 1_000) + 1))),
                "json_items": lambda found, *_: json.dumps(items(found)),
                "made_array": lambda *found: marked(list(found)),
                "regexp": _matches,
                "regexp_like": lambda value, pattern, *_: _matches(pattern, value),
                "split_part": _part,
                "json_build_object": _object,
            }
        )

    def _rights(self) -> dict[str, Callable[..., Any]]:
        """Return those that tell of rights: to whom, where it is said, is not looked at."""
        return {
            "has_table_privilege": lambda *asked: self._has_privilege(*asked[-2:]),
            "has_any_column_privilege": lambda *asked: self._has_privilege(*asked[-2:]),
            "has_column_privilege": lambda *asked: self._has_privilege(asked[-3], asked[-1]),
            "has_schema_privilege": lambda *asked: self._has_schema_privilege(*asked[-2:]),
            "has_database_privilege": lambda *asked: self._has_database_privilege(*asked[-2:]),
            "has_sequence_privilege": _says(None),  # There are none.
            "has_function_privilege": lambda *asked: _has_any(asked[-1], _OF_FUNCTIONS, _OF_FUNCTIONS),
        }

    def aggregates(self) -> dict[str, Callable[[Sequence[Any]], Any]]:
        """Return functions of the values of many rows by name."""
        return {"gathered_array": lambda found: marked(list(found))}

    def _setting(self, name: Any, *more: Any) -> Any:
        lower = str(name).lower()
        found = {key.lower(): value for key, value in self.asker.settings.items()}.get(lower)
        if found is None and not (more and more[0]):
            raise ValueError(f"there is no setting {name!r}")
        return found

    def _index_text(self, oid: Any, column: Any = 0, *_: Any) -> Any:
        text, columns = self._found.index_texts.get(oid, ("", ()))
        if not column:
            return text or None
        return quoted_name(columns[column - 1]) if 0 < column <= len(columns) and columns[column - 1] else None

    def _has_privilege(self, table: Any, privileges: Any) -> Any:
        """Return whether who asks has one of some privileges; None = there is no such table for it."""
        if table is None or privileges is None:
            return None
        named = _asked_for(privileges, _PRIVILEGES)
        rights, may_write = self.asker.rights, self.asker.may_write
        is_read, is_written, is_altered = (bool(named & of) for of in (_READ_PRIVILEGES, _WRITTEN, _ALTERED))
        if rights is None:
            return int(is_read or (may_write and (is_written or is_altered)))
        oid = self._regclass(table) if isinstance(table, str) else table
        name = self._found.names.get(oid)
        if name is None:
            return None
        return int(
            (is_read and rights.may_read(name))
            or (is_written and rights.may_write(name))
            or (is_altered and rights.may_alter(name))
        )

    def _has_schema_privilege(self, schema: Any, privileges: Any) -> Any:
        """Return the same of a schema: who may make some table may make it in `public`."""
        if schema is None:
            return None
        oid = _SCHEMAS.get(str(schema).strip('"')) if isinstance(schema, str) and not schema.isdigit() else int(schema)
        if oid is None:
            raise ValueError(f"schema {schema!r:.80} does not exist")
        if oid not in _SCHEMAS.values():
            return None
        rights = self.asker.rights
        may_create = self.asker.may_write if rights is None else bool(rights.schema)
        has = _OF_SCHEMAS if may_create and oid == PUBLIC_OID else _OF_SCHEMAS - {"CREATE"}
        return _has_any(privileges, _OF_SCHEMAS, has)

    def _has_database_privilege(self, database: Any, privileges: Any) -> Any:
        """Return the same of a database: nobody makes another schema, or a temporary table."""
        if database is None:
            return None
        if database not in (self._database, DATABASE_OID, str(DATABASE_OID)):
            if isinstance(database, str) and not database.isdigit():
                raise ValueError(f"database {database!r:.80} does not exist")
            return None
        return _has_any(privileges, _OF_DATABASES, frozenset({"CONNECT"}))

    def _view_text(self, oid: Any, *_: Any) -> Any:
        if isinstance(oid, str):
            oid = self._to_regclass(oid)
        found = re.search(r"\bAS\b(.*)", self._found.view_texts.get(oid, ""), re.IGNORECASE | re.DOTALL)
        return None if found is None else found[1].strip() + ";"

    def _to_regclass(self, name: Any, *_: Any) -> Any:
        if name is None:
            return None
        return self._by_name.get(str(name).rpartition(".")[2].strip('"'))

    def _regclass(self, value: Any, *_: Any) -> Any:
        """Return the number of a table by its name, or its name by its number."""
        if isinstance(value, int):
            return quoted_name(self._found.names[value]) if value in self._found.names else str(value)
        if isinstance(value, str) and value.isdigit():
            return int(value)
        known = {"pg_class": 1259, "pg_type": 1247, "pg_proc": 1255, "pg_constraint": 2606, "pg_namespace": 2615}
        found = self._to_regclass(value)
        if found is None and value is not None:
            found = known.get(str(value).rpartition(".")[2].strip('"'), 0)
        return found

    def _regtype(self, value: Any, *_: Any) -> Any:
        if isinstance(value, int):
            return _format_type(value, None)
        return _TYPES_BY_NAME.get(str(value).strip('"').lower(), value)


def _says(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def marked(found: Sequence[Any]) -> str:
    """Return an array as a text that is known to be one."""
    return ARRAY_MARK + json.dumps(found)


def items(found: Any) -> list[Any]:
    """Return the items of an array, of JSON or PostgreSQL's own text."""
    if not isinstance(found, str) or not found:
        return []
    text = found.removeprefix(ARRAY_MARK)
    if text.startswith("{"):
        return [part.strip('"') for part in text.strip("{}").split(",") if part]
    try:
        read = json.loads(text)
    except ValueError:
        return [part for part in text.split() if part]
    return list(read) if isinstance(read, list) else [read]


def shown_array(found: str) -> str:
    """Return an array as PostgreSQL writes it."""
    parts: list[str] = []
    for item in items(found):
        text = "NULL" if item is None else str(item)
        is_plain = item is None or re.fullmatch(r"[\w.:+-]+", text)
        parts.append(text if is_plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "{" + ",".join(parts) + "}"


def _asked_for(privileges: Any, known: frozenset[str]) -> set[str]:
    """Return the privileges that a text names.

    Raises:
        ValueError: There is no such privilege.

    """
    named = {" ".join(word.upper().split()) for word in str(privileges).split(",")}
    unknown = sorted({word.removesuffix(_GRANTED) for word in named} - known)
    if unknown:
        raise ValueError(f"unrecognized privilege type: {unknown[0]!r:.40}")
    return named


def _has_any(privileges: Any, known: frozenset[str], has: frozenset[str]) -> Any:
    return None if privileges is None else int(bool(_asked_for(privileges, known) & has))


def _joined(found: Any, separator: Any = ",", *_: Any) -> Any:
    return None if found is None else str(separator).join(str(item) for item in items(found) if item is not None)


def _position(found: Any, item: Any, *_: Any) -> Any:
    listed = items(found)
    return listed.index(item) + 1 if item in listed else None


def _item(found: Any, number: Any, first: int) -> Any:
    listed = items(found)
    return listed[number - first] if number is not None and first <= number < first + len(listed) else None


def _part(text: Any, separator: Any, number: Any) -> Any:
    parts = str(text).split(str(separator))
    return parts[number - 1] if 0 < number <= len(parts) else ""


def _object(*arguments: Any) -> str:
    return json.dumps(dict(zip(arguments[::2], arguments[1::2], strict=True)))


def _matches(pattern: Any, value: Any) -> Any:
    """Return whether a text has a pattern; of patterns those alone that cannot take long."""
    if pattern is None or value is None:
        return None
    text = str(pattern)
    if len(text) > _PATTERN_CHARS_MAX or not _PATTERNS.fullmatch(text) or re.search(r"[*+?}]\)*[*+?{]|\)[*+]", text):
        raise ValueError(f"the pattern {text!r:.100} is not taken in questions to the catalog")
    return int(re.search(text, str(value)[:_PATTERN_CHARS_MAX]) is not None)


def _format_type(oid: Any, modifier: Any = None, *_: Any) -> Any:
    if oid is None:
        return None
    if oid in _ARRAYS:
        return f"{TYPES[_ARRAYS[oid]][1]}[]"
    if oid not in TYPES:
        return "???" if oid != DATABASE_OID else None
    name, words = TYPES[oid][:2]
    if modifier is None or modifier < 0:
        return words
    if name in ("varchar", "bpchar"):
        return f"{words}({modifier - 4})"
    if name == "numeric":
        return f"{words}({(modifier - 4) >> 16},{(modifier - 4) & 0xFFFF})"
    return words
