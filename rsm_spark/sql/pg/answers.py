"""PostgreSQL's wire protocol, version 3.0, to clients: answers as bytes. Pure."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from rsm_spark.sql.pg.faults import PgFatalFault, PgFault
from rsm_spark.sql.pg.values import PgColumn

_HEAD = struct.Struct("!ci")
_INT = struct.Struct("!i")
_SHORT = struct.Struct("!h")
_COLUMN = struct.Struct("!ihihih")
_TEXT_CHARS_MAX: Final = 2_000
_NULL: Final = _INT.pack(-1)


def _frame(kind: bytes, content: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(content) + 4) + content


def _text(text: str) -> bytes:
    return text.replace("\0", "").encode() + b"\0"


AUTHENTICATED: Final = _frame(b"R", _INT.pack(0))
ASK_PASSWORD: Final = _frame(b"R", _INT.pack(3))
ASK_SCRAM: Final = _frame(b"R", _INT.pack(10) + b"SCRAM-SHA-256\0\0")
PARSED: Final = _frame(b"1")
BOUND: Final = _frame(b"2")
CLOSED: Final = _frame(b"3")
NO_ROWS: Final = _frame(b"n")
SUSPENDED: Final = _frame(b"s")
EMPTY: Final = _frame(b"I")
COPY_DONE: Final = _frame(b"c")
_READY: Final = {state: _frame(b"Z", state.encode()) for state in "ITE"}
TLS_YES: Final = b"S"
TLS_NO: Final = b"N"


def scram_continue(text: bytes) -> bytes:
    """Return the question of SCRAM."""
    return _frame(b"R", _INT.pack(11) + text)


def scram_final(text: bytes) -> bytes:
    """Return the server's own proof."""
    return _frame(b"R", _INT.pack(12) + text)


def older_protocol(options: Sequence[str]) -> bytes:
    """Return that version 3.0 is spoken, and which options are not known."""
    return _frame(b"v", _INT.pack(0) + _INT.pack(len(options)) + b"".join(map(_text, options)))


def key(process_id: int, secret: int) -> bytes:
    """Return what a client needs to cancel what it has under way."""
    return _frame(b"K", struct.pack("!ii", process_id, secret))


def status(name: str, value: str) -> bytes:
    """Return the value of a setting that clients are told."""
    return _frame(b"S", _text(name) + _text(value))


def ready(transaction: str) -> bytes:
    """Return that the next request may come; "I" idle, "T" in a transaction, "E" in one that has failed."""
    return _READY[transaction]


@functools.lru_cache(maxsize=256)
def done(tag: str) -> bytes:
    """Return what a statement has done."""
    return _frame(b"C", _text(tag))


def fault(found: PgFault) -> bytes:
    """Return a fault."""
    severity = "FATAL" if isinstance(found, PgFatalFault) else "ERROR"
    return _frame(b"E", _notes(severity, found))


def notice(code: str, text: str) -> bytes:
    """Return a warning."""
    return _frame(b"N", _notes("WARNING", PgFault(code, text)))


def _notes(severity: str, found: PgFault) -> bytes:
    fields = [
        ("S", severity),
        ("V", severity),
        ("C", found.code),
        ("M", found.text[:_TEXT_CHARS_MAX]),
        ("t", found.table),
        ("c", found.column),
    ]
    return b"".join(name.encode() + _text(text) for name, text in fields if text) + b"\0"


def parameters(types: Sequence[int]) -> bytes:
    """Return the types of a statement's parameters."""
    return _frame(b"t", struct.pack(f"!H{len(types)}I", len(types), *types))


def columns(found: Sequence[PgColumn], formats: Sequence[int]) -> bytes:
    """Return the columns of rows to come, with the format of each."""
    parts = [_SHORT.pack(len(found))]
    for column, form in zip(found, formats, strict=True):
        parts += [_text(column.name), _COLUMN.pack(0, 0, column.type, column.size, -1, form)]
    return _frame(b"T", b"".join(parts))


def row(values: Iterable[bytes | None]) -> bytes:
    """Return a row of encoded values."""
    parts: list[bytes] = []
    count = 0
    for value in values:
        count += 1
        parts += [_NULL] if value is None else [_INT.pack(len(value)), value]
    return _frame(b"D", _SHORT.pack(count) + b"".join(parts))


def copy_begins(count: int, *, is_in: bool, form: int) -> bytes:
    """Return that rows of so many columns are to be copied, as text (`form` 0) or in binary (1)."""
    return _frame(b"G" if is_in else b"H", bytes([form]) + _SHORT.pack(count) + _SHORT.pack(form) * count)


def copied(content: bytes) -> bytes:
    """Return a part of a copy."""
    return _frame(b"d", content)
