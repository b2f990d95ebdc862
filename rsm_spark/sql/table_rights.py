"""Rights of a caller to SQL tables, by their names; and the envelope in which a request carries them. Pure.

    rights = rights_of(principal)              # None = it has all tables
    payload = within(rights, encode(query))    # of a caller that only the replica knows which it has called

Names are compared as SQLite does: letters of ASCII in either case are the same. `*` stands for any letters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

import msgspec

from ledger.decoding import msgpack_decoder
from ledger.rights.principal import ClientAccess, Principal, Role
from rsm_spark.errors import InvalidCommandError

RIGHTS_ARE_IN_A_FILE: Final = (
    "GRANT and REVOKE are not served: rights to tables are given in the file of principals (tables_read, tables_write, "
    "tables_schema)"
)
_FOLD: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}
_ENVELOPE: Final = b"\x93\x08"
"""First bytes of `SqlBoundedRequest`: an array of three, its tag."""


class TableRights(msgspec.Struct, frozen=True, array_like=True):
    """Tables that a caller has.

    Attributes:
        read: Names of tables and views whose rows it may read.
        write: The same, whose rows it may insert, change and delete.
        schema: The same, which it may make, alter and drop.

    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    schema: tuple[str, ...] = ()

    def may_read(self, table: str) -> bool:
        """Return whether it may read a table's rows."""
        return _fits(self.read)(folded(table)) is not None

    def may_write(self, table: str) -> bool:
        """Return whether it may change a table's rows."""
        return _fits(self.write)(folded(table)) is not None

    def may_alter(self, table: str) -> bool:
        """Return whether it may make, alter and drop a table of this name."""
        return _fits(self.schema)(folded(table)) is not None

    def may_see(self, table: str) -> bool:
        """Return whether it has any right to a table."""
        return self.may_read(table) or self.may_write(table) or self.may_alter(table)


class SqlBoundedRequest(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A command or a query of a caller who has some tables: what may be sent as such, and the caller's rights.

    Replicas that do not know of it refuse it.
    """

    rights: TableRights
    payload: bytes


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final = msgpack_decoder(SqlBoundedRequest)


def folded(name: str) -> str:
    """Return a name as it is compared."""
    return name.translate(_FOLD)


@functools.lru_cache(maxsize=1_024)
def _fits(patterns: tuple[str, ...]) -> Callable[[str], object]:
    texts = (".*".join(map(re.escape, folded(one).split("*"))) for one in patterns)
    return re.compile("|".join(f"(?:{text})" for text in texts) or r"(?!)", re.DOTALL).fullmatch


def rights_of(principal: Principal | None) -> TableRights | None:
    """Return the tables that a principal has; None = all. Who is no client, or names none, has all."""
    if principal is None or principal.role is not Role.CLIENT or not principal.has_table_bounds:
        return None
    if principal.access is not ClientAccess.WRITE:
        return TableRights(principal.tables_read or ())
    return TableRights(principal.tables_read or (), principal.tables_write or (), principal.tables_schema or ())


def within(rights: TableRights | None, payload: bytes) -> bytes:
    """Return a payload that is done with these rights, and no others; None = as it is."""
    return payload if rights is None else _ENCODE(SqlBoundedRequest(rights, payload))


def opened(payload: bytes) -> tuple[TableRights | None, bytes]:
    """Return with which rights a payload is to be done, None = it has no bounds, and the payload itself.

    Raises:
        InvalidCommandError: It cannot be read, or has another one in it.

    """
    if not payload.startswith(_ENVELOPE):
        return None, payload
    try:
        found = _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidCommandError(f"this is no request with rights to tables: {error}") from None
    if found.payload.startswith(_ENVELOPE):
        raise InvalidCommandError("a request has rights to tables once")
    return found.rights, found.payload
