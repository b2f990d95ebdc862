"""Values of SQLite as PostgreSQL's clients send and get them: text and binary, by type. Pure.

SQLite has five kinds of values, PostgreSQL types. A column's declared type says which one its values are shown as;
where it declares none, the values themselves do. Dates, times, UUIDs and JSON are texts in SQLite.
"""

# Longer than 400 lines: each type is read, kept and shown in one place.

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from rsm_spark.sql.messages import SqlValue
from rsm_spark.sql.pg.faults import BAD_TEXT, BAD_VALUE, NOT_SUPPORTED, PROTOCOL_VIOLATION, PgFault

BOOL: Final = 16
BYTEA: Final = 17
CHAR: Final = 18
NAME: Final = 19
INT8: Final = 20
INT2: Final = 21
INT4: Final = 23
TEXT: Final = 25
OID: Final = 26
JSON: Final = 114
FLOAT4: Final = 700
FLOAT8: Final = 701
UNKNOWN: Final = 705
BPCHAR: Final = 1042
VARCHAR: Final = 1043
DATE: Final = 1082
TIME: Final = 1083
TIMESTAMP: Final = 1114
TIMESTAMPTZ: Final = 1184
NUMERIC: Final = 1700
VOID: Final = 2278
UUID_TYPE: Final = 2950
JSONB: Final = 3802

ARRAYS: Final = {
    1000: BOOL, 1001: BYTEA, 1005: INT2, 1007: INT4, 1016: INT8, 1009: TEXT, 1015: VARCHAR, 1014: BPCHAR, 1021: FLOAT4,
    1022: FLOAT8, 1231: NUMERIC, 2951: UUID_TYPE, 1115: TIMESTAMP, 1182: DATE, 1185: TIMESTAMPTZ, 1028: OID, 1003: NAME,
}  # fmt: skip
"""Types of arrays -> of their elements; the statement gets such a value as a JSON array."""

_SIZES = {
    BOOL: 1, CHAR: 1, INT2: 2, INT4: 4, INT8: 8, OID: 4, FLOAT4: 4, FLOAT8: 8, DATE: 4, TIME: 8, TIMESTAMP: 8,
    TIMESTAMPTZ: 8, UUID_TYPE: 16, NAME: 64, VOID: 4,
}  # fmt: skip

_DECLARED: dict[str, int] = {
    "BOOL": BOOL, "BOOLEAN": BOOL, "BYTEA": BYTEA, "BLOB": BYTEA, "NAME": NAME,
    "INT": INT8, "INTEGER": INT8, "BIGINT": INT8, "INT8": INT8, "SMALLINT": INT8, "INT2": INT8, "INT4": INT8,
    "TINYINT": INT8, "MEDIUMINT": INT8, "OID": INT8, "SERIAL": INT8, "BIGSERIAL": INT8,
    "REAL": FLOAT8, "DOUBLE": FLOAT8, "DOUBLE PRECISION": FLOAT8, "FLOAT": FLOAT8, "FLOAT4": FLOAT8, "FLOAT8": FLOAT8,
    "NUMERIC": NUMERIC, "DECIMAL": NUMERIC, "TEXT": TEXT, "CLOB": TEXT, "VARCHAR": VARCHAR,
    "CHARACTER VARYING": VARCHAR,
    "CHAR": BPCHAR, "CHARACTER": BPCHAR, "NCHAR": BPCHAR, "NVARCHAR": VARCHAR, "DATE": DATE, "TIME": TIME,
    "TIMESTAMP": TIMESTAMP, "DATETIME": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMPTZ, "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    "TIMESTAMP WITHOUT TIME ZONE": TIMESTAMP, "TIME WITHOUT TIME ZONE": TIME, "UUID": UUID_TYPE, "JSON": JSON,
    "JSONB": JSONB, "TEXT[]": 1009, "INT8[]": 1016,
}  # fmt: skip
_ARGUMENTS = re.compile(r"\s*\([^)]*\)")
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 - a time without a zone
_EPOCH_UTC = datetime(2000, 1, 1, tzinfo=UTC)
_DAY = date(2000, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_ARRAY_DEPTH = 1
_NUMERIC_DIGITS_MAX = 1_000


class PgColumn(NamedTuple):
    """A column of rows as clients are told of it."""

    name: str
    type: int

    @property
    def size(self) -> int:
        """Bytes of a binary value; -1 = that differs."""
        return _SIZES.get(self.type, -1)


def declared_type(declared: str) -> int | None:
    """Return the type of a column by what its table says; None = that says nothing."""
    words = " ".join(_ARGUMENTS.sub(" ", declared).upper().split())
    if not words:
        return None
    found = _DECLARED.get(words)
    if found is not None:
        return found
    for part, kind in (("INT", INT8), ("CHAR", TEXT), ("CLOB", TEXT), ("TEXT", TEXT), ("BLOB", BYTEA)):
        if part in words:
            return kind
    return FLOAT8 if any(part in words for part in ("REAL", "FLOA", "DOUB")) else TEXT


def found_type(values: Iterable[SqlValue]) -> int:
    """Return the type that shows all of some values."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return INT8
    if kinds and kinds <= {int, float}:
        return FLOAT8
    return BYTEA if kinds == {bytes} else TEXT


# ---- parameters


def parameter_value(kind: int, form: int, content: bytes | None) -> SqlValue:
    """Return a parameter as the statement gets it.

    Args:
        kind: Its type; 0 = not said.
        form: 1 = binary.
        content: As it came; None = NULL.

    Raises:
        PgFault: It is none of this type.

    """
    if content is None:
        return None
    if form == 0 and kind in (0, TEXT):
        return _utf8(content)
    if form not in (0, 1):
        raise PgFault(PROTOCOL_VIOLATION, f"the format {form} is neither text (0) nor binary (1)")
    try:
        if form == 0:
            return _from_text(kind, _utf8(content))
        if kind in ARRAYS:
            return _binary_array(content)
        read = _FROM_BINARY.get(kind)
        if read is None:
            raise PgFault(NOT_SUPPORTED, f"a binary parameter of type {kind} is not taken: send it as text")
        return read(content)
    except (ValueError, struct.error, OverflowError, InvalidOperation) as error:
        raise PgFault(BAD_VALUE, f"a parameter is no value of type {kind}: {error}") from None


def _utf8(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise PgFault(BAD_TEXT, "a text is not UTF-8: send it as bytea") from None
    if "\0" in text:
        raise PgFault(BAD_TEXT, "a text has a NUL: send it as bytea")
    return text


def _from_text(kind: int, text: str) -> SqlValue:
    match kind:
        case 23 | 20 | 21 | 26:
            return _int64(int(text))
        case 700 | 701:
            return float(text)
        case 16:
            return _BOOLEANS[text.strip().lower()] if text.strip().lower() in _BOOLEANS else _no_boolean(text)
        case 17:
            return bytes.fromhex(text[2:]) if text.startswith("\\x") else _escaped(text)
        case 1700:
            return _number(Decimal(text))
        case kind if kind in ARRAYS:
            return _text_array(text, ARRAYS[kind])
        case _:
            return text


_BOOLEANS = {
    "t": 1,
    "true": 1,
    "y": 1,
    "yes": 1,
    "on": 1,
    "1": 1,
    "f": 0,
    "false": 0,
    "n": 0,
    "no": 0,
    "off": 0,
    "0": 0,
}


def _no_boolean(text: str) -> int:
    raise ValueError(f"{text[:20]!r} is neither true nor false")


def _int64(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError("it needs more than 64 bits")
    return value


def _escaped(text: str) -> bytes:
    """Read a bytea in its older text form."""
    content = bytearray()
    at = 0
    raw = text.encode()
    while at < len(raw):
        if raw[at] != 0x5C:
            content.append(raw[at])
            at += 1
        elif raw[at + 1 : at + 2] == b"\\":
            content.append(0x5C)
            at += 2
        else:
            content.append(int(raw[at + 1 : at + 4], 8))
            at += 4
    return bytes(content)


def _number(value: Decimal) -> SqlValue:
    """Return a decimal number as SQLite keeps it: exactly where it can, else as a text that means it."""
    if not value.is_finite():
        return str(value)
    if value.adjusted() > 400 or value.adjusted() < -400:
        return str(value)
    if value == value.to_integral_value() and -(2**63) <= value < 2**63:
        return int(value)
    near = float(value)
    return near if Decimal(repr(near)) == value else str(value)


def array_json(text: str) -> str:
    """Return an array as PostgreSQL writes it, `{1,"a b",NULL}`, as JSON; its items are texts.

    Raises:
        ValueError: It is none.

    """
    return str(_text_array(text, TEXT))


def _text_array(text: str, element: int) -> str:
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("an array is written {1,2,3}")
    items: list[Any] = []
    for quoted, plain in _ARRAY_ITEM.findall(text[1:-1]):
        if quoted:
            items.append(_from_text(element, re.sub(r"\\(.)", r"\1", quoted[1:-1])))
        elif plain.upper() == "NULL":
            items.append(None)
        elif plain:
            items.append(_from_text(element, plain))
    return _json(items)


_ARRAY_ITEM = re.compile(r'("(?:[^"\\]|\\.)*+")|([^,{}"]++)')


def _json(items: list[Any]) -> str:
    return msgspec.json.encode([item.hex() if isinstance(item, bytes) else item for item in items]).decode()


def _binary_array(content: bytes) -> str:
    depth, _has_null, element = struct.unpack_from("!iiI", content)
    if depth == 0:
        return "[]"
    if depth != _ARRAY_DEPTH:
        raise ValueError("an array of arrays is not taken")
    count, _lower = struct.unpack_from("!ii", content, 12)
    at = 20
    items: list[Any] = []
    for _ in range(count):
        (size,) = struct.unpack_from("!i", content, at)
        at += 4
        if size < 0:
            items.append(None)
            continue
        items.append(parameter_value(element, 1, content[at : at + size]))
        at += size
    return _json(items)


def _boolean(content: bytes) -> int:
    return int(struct.unpack("!?", content)[0])


def _numeric(content: bytes) -> SqlValue:
    count, weight, sign, scale = struct.unpack_from("!hhHH", content)
    if sign == 0xC000:
        return "NaN"
    if sign in (0xD000, 0xF000):
        return "Infinity" if sign == 0xD000 else "-Infinity"
    if not 0 <= count <= _NUMERIC_DIGITS_MAX or abs(weight) > _NUMERIC_DIGITS_MAX:
        raise ValueError("a number is too long")
    digits = struct.unpack_from(f"!{count}h", content, 8)
    value = Decimal(0)
    for place, digit in enumerate(digits):
        value += Decimal(digit).scaleb(4 * (weight - place))
    value = value.quantize(Decimal(1).scaleb(-scale)) if scale <= 28 else value
    return _number(-value if sign else value)


def _timestamp(content: bytes) -> str:
    (microseconds,) = struct.unpack("!q", content)
    if abs(microseconds) == 2**63 - 1 or microseconds == -(2**63):
        return "infinity" if microseconds > 0 else "-infinity"
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(sep=" ")


def _timestamptz(content: bytes) -> str:
    shown = _timestamp(content)
    return shown if shown.endswith("infinity") else f"{shown}+00:00"


def _date(content: bytes) -> str:
    (days,) = struct.unpack("!i", content)
    return (_DAY + timedelta(days=days)).isoformat()


def _time(content: bytes) -> str:
    (microseconds,) = struct.unpack("!q", content)
    return (_EPOCH + timedelta(microseconds=microseconds)).time().isoformat()


def _jsonb(content: bytes) -> str:
    if content[:1] != b"\x01":
        raise ValueError("its version is not known")
    return _utf8(content[1:])


def _unpacked(form: str) -> Callable[[bytes], SqlValue]:
    unpack = struct.Struct(form).unpack

    def read(content: bytes) -> SqlValue:
        value: SqlValue = unpack(content)[0]
        return value

    return read


_FROM_BINARY: dict[int, Callable[[bytes], SqlValue]] = {
    BOOL: _boolean, BYTEA: bytes, INT2: _unpacked("!h"), INT4: _unpacked("!i"), INT8: _unpacked("!q"),
    OID: _unpacked("!I"), FLOAT4: _unpacked("!f"), FLOAT8: _unpacked("!d"), NUMERIC: _numeric, TEXT: _utf8,
    VARCHAR: _utf8, BPCHAR: _utf8, NAME: _utf8, CHAR: _utf8, UNKNOWN: _utf8, 0: _utf8, JSON: _utf8, JSONB: _jsonb,
    TIMESTAMP: _timestamp, TIMESTAMPTZ: _timestamptz, DATE: _date, TIME: _time,
    UUID_TYPE: lambda content: str(UUID(bytes=content)),
}  # fmt: skip


# ---- results


def shown_value(kind: int, form: int, value: SqlValue) -> bytes | None:
    """Return a value as it is sent.

    Args:
        kind: Type of its column.
        form: 1 = binary.
        value: As SQLite has it.

    Raises:
        PgFault: It cannot be shown as this type.

    """
    if value is None:
        return None
    if form == 0:
        return _to_text(kind, value)
    write = _TO_BINARY.get(kind)
    if write is None:
        raise PgFault(NOT_SUPPORTED, f"a column of type {kind} is not sent in binary: ask for text")
    try:
        return write(value)
    except (ValueError, TypeError, struct.error, OverflowError, InvalidOperation, AttributeError):
        shown = str(value)[:40]
        raise PgFault(
            BAD_VALUE,
            f"the value {shown!r} cannot be shown as type {kind} of its column: SQLite does not hold values to their "
            "types. Write CAST(… AS TEXT)",
        ) from None


def _to_text(kind: int, value: SqlValue) -> bytes:
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if kind == BOOL and value in (0, 1):
        return b"t" if value else b"f"
    if isinstance(value, float):
        return _shown_float(value).encode()
    if kind in (TIMESTAMP, TIMESTAMPTZ) and isinstance(value, str) and value[10:11] == "T":
        return f"{value[:10]} {value[11:]}".encode()
    return str(value).encode()


def _shown_float(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if math.isnan(value) else repr(value)


def _microseconds(value: SqlValue) -> bytes:
    found = _moment(value)
    if found.tzinfo is not None:
        found = found.astimezone(UTC).replace(tzinfo=None)
    return struct.pack("!q", (found - _EPOCH) // _MICROSECOND)


def _microseconds_utc(value: SqlValue) -> bytes:
    found = _moment(value)
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    return struct.pack("!q", (found - _EPOCH_UTC) // _MICROSECOND)


def _moment(value: SqlValue) -> datetime:
    if not isinstance(value, str):
        raise TypeError
    return datetime.fromisoformat(value)


def _days(value: SqlValue) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return struct.pack("!i", (date.fromisoformat(value[:10]) - _DAY).days)


def _since_midnight(value: SqlValue) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    found = time.fromisoformat(value)
    seconds = found.hour * 3600 + found.minute * 60 + found.second
    return struct.pack("!q", seconds * 1_000_000 + found.microsecond)


def _numeric_bytes(value: SqlValue) -> bytes:
    number = Decimal(repr(value) if isinstance(value, float) else str(value))
    if not number.is_finite():
        return struct.pack("!hhHH", 0, 0, 0xC000, 0)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if abs(exponent) > _NUMERIC_DIGITS_MAX:
        raise ValueError
    scale = max(0, -exponent)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    text = text.rjust(scale, "0")
    whole, fraction = text[: len(text) - scale], text[len(text) - scale :]
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((whole + fraction)[at : at + 4]) for at in range(0, len(whole) + len(fraction), 4)]
    weight = len(whole) // 4 - 1
    while groups and not groups[0]:
        groups.pop(0)
        weight -= 1
    while groups and not groups[-1]:
        groups.pop()
    return struct.pack(f"!hhHH{len(groups)}h", len(groups), weight if groups else 0, 0x4000 * sign, scale, *groups)


def _bytes_of(value: SqlValue) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _text_of(value: SqlValue) -> bytes:
    return _to_text(TEXT, value)


def _packed(form: str) -> Callable[[SqlValue], bytes]:
    pack = struct.Struct(form).pack

    def write(value: SqlValue) -> bytes:
        return pack(value)

    return write


def _flag(value: SqlValue) -> bytes:
    if value not in (0, 1):
        raise ValueError
    return b"\x01" if value else b"\x00"


_TO_BINARY: dict[int, Callable[[Any], bytes]] = {
    BOOL: _flag, BYTEA: _bytes_of, INT2: _packed("!h"), INT4: _packed("!i"), INT8: _packed("!q"), OID: _packed("!I"),
    FLOAT4: _packed("!f"), FLOAT8: _packed("!d"), NUMERIC: _numeric_bytes, TEXT: _text_of, VARCHAR: _text_of,
    BPCHAR: _text_of, NAME: _text_of, CHAR: _text_of, UNKNOWN: _text_of, JSON: _text_of,
    JSONB: lambda value: b"\x01" + _text_of(value), TIMESTAMP: _microseconds, TIMESTAMPTZ: _microseconds_utc,
    DATE: _days, TIME: _since_midnight, UUID_TYPE: lambda value: UUID(value).bytes, VOID: lambda _value: b"",
}  # fmt: skip


def spread(formats: Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Return a format for each of some values, as the protocol abbreviates them.

    Raises:
        PgFault: There are as many formats as values, or one, or none.

    """
    if not formats:
        return (0,) * count
    if len(formats) == 1:
        return (formats[0],) * count
    if len(formats) != count:
        raise PgFault(PROTOCOL_VIOLATION, f"{len(formats)} formats of {count} {what}")
    return tuple(formats)
