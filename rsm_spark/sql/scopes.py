"""Scope of a client in a log of SQL tables, as far as it shows before a statement is looked at. Pure."""

from __future__ import annotations

from typing import Final

from ledger.rights.principal import Principal
from rsm_spark.transport.reach import KeyScopes


class SqlScopes:
    """Scope of a client in a log of SQL tables; see `KeyScopes`. The engine looks at the tables themselves."""

    nothing = b""
    has_keys = False

    @staticmethod
    def log_fault(principal: Principal) -> str:
        """Return why a client's scope has nothing of the log: it names keys alone."""
        if not principal.prefix or principal.has_table_bounds:
            return ""
        return f"the state of this log has no keys: {principal} has a prefix of keys, and may not touch it"

    @staticmethod
    def is_governing(command: bytes) -> bool:  # noqa: ARG004 - as `KeyScopes` has it
        """Return False: nothing here administers the log."""
        return False

    @staticmethod
    def command_fault(command: bytes, principal: Principal) -> str:  # noqa: ARG004
        """Return nothing: who runs it looks."""
        return ""

    @staticmethod
    def query_fault(query: bytes, principal: Principal) -> str:  # noqa: ARG004
        """Return nothing: who runs it looks."""
        return ""

    @staticmethod
    def watch_fault(table: str, start: bytes, end: bytes | None, principal: Principal) -> str:  # noqa: ARG004
        """Return why records of the log are not told to who has some tables."""
        return f"{principal} has the right to some tables: the feed of changes tells of them, a watch of all"


SQL_SCOPES: Final[KeyScopes] = SqlScopes()
