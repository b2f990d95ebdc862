"""Paths that a command or a query touches, checked against a client's scope. Pure.

The prefix of a client is a directory: `/team-a` lets it touch `/team-a` and what lies below, and not `/team-ab`.
"""

from __future__ import annotations

from ledger.rights.principal import Principal, Role
from rsm_spark.files.commands import (
    DeleteEntry,
    EndLedger,
    FileCommand,
    FileQuery,
    ForgetLedgers,
    NoteLedger,
    NoteProgress,
    RenameEntry,
    SetQuota,
    decode_command,
    decode_query,
    encode,
)
from rsm_spark.files.errors import FileError
from rsm_spark.files.paths import is_below, names_of


def path_fault(principal: Principal, path: str) -> str:
    """Return why a principal may not touch a path; "" = it may."""
    if principal.role is not Role.CLIENT:
        return ""
    if not principal.prefix:
        return _tables_fault(principal)
    try:
        scope = names_of(principal.prefix.decode())
        if is_below(names_of(path), scope):
            return ""
    except (FileError, UnicodeDecodeError) as error:
        return str(error)
    return f"{principal} may touch {principal.prefix.decode()} and what lies below only"


def _tables_fault(principal: Principal) -> str:
    """Return why a client that names SQL tables, and no directory, has no files; "" = it names none, and has all."""
    return f"{principal} has the right to some SQL tables alone, not to files" if principal.has_table_bounds else ""


def message_fault(message: FileCommand | FileQuery, principal: Principal) -> str:
    """Return what of a command or a query is beyond a principal's paths; "" = nothing."""
    if isinstance(message, RenameEntry):
        return path_fault(principal, message.source) or path_fault(principal, message.destination)
    return path_fault(principal, message.path)


class FileScopes:
    """Scopes of the file store for those who call a replica itself; see `rsm_spark.transport.reach.KeyScopes`.

    Attributes:
        nothing: A command that changes nothing: nobody deletes the root.

    """

    nothing: bytes = encode(DeleteEntry("/", is_recursive=False))
    has_keys = True

    @staticmethod
    def log_fault(principal: Principal) -> str:
        """Return why a client's scope has nothing of the files; "" = it has some, or all."""
        return "" if principal.prefix else _tables_fault(principal)

    @staticmethod
    def is_governing(command: bytes) -> bool:
        """Return whether a command sets a quota, or says what lies in a ledger: that is for servers to say."""
        try:
            return isinstance(decode_command(command), SetQuota | NoteLedger | NoteProgress | EndLedger | ForgetLedgers)
        except FileError:
            return False

    @staticmethod
    def command_fault(command: bytes, principal: Principal) -> str:
        """Return what of a command is beyond a principal's paths; "" = nothing."""
        try:
            return message_fault(decode_command(command), principal)
        except FileError as error:
            return str(error)

    @staticmethod
    def query_fault(query: bytes, principal: Principal) -> str:
        """Return what of a query is beyond a principal's paths; "" = nothing."""
        try:
            return message_fault(decode_query(query), principal)
        except FileError as error:
            return str(error)

    @staticmethod
    def watch_fault(table: str, start: bytes, end: bytes | None, principal: Principal) -> str:  # noqa: ARG004
        """Return why a principal may not watch a table: its rows have numbers, not paths."""
        return f"{principal} has a part of the paths only: tables are watched by those who have all"
