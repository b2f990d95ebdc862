"""Parameters of a query string, typed and strict: unknown names, doubles and wrong types are refused."""

from __future__ import annotations

import functools
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from ledger.decoding import convert
from ledger.http.problems import HttpProblem
from ledger.http.strict_json import nearest

_PAIRS_MAX = 32


@functools.cache
def query_fields(kind: type[msgspec.Struct]) -> list[str]:
    """Return the names that a query string may have."""
    return sorted(field.encode_name for field in msgspec.structs.fields(kind))


def decode_query(text: bytes, kind: type[msgspec.Struct]) -> Any:
    """Read a query string.

    Args:
        text: As in the request.
        kind: Struct of scalars.

    Raises:
        Problem: 400; says which and why.

    """
    values: dict[str, str] = {}
    if text:
        pairs = text.split(b"&")
        if len(pairs) > _PAIRS_MAX:
            raise _invalid(f"the query has more than {_PAIRS_MAX} parameters")
        names = query_fields(kind)
        for pair in pairs:
            if not pair:
                continue
            raw_name, _, raw_value = pair.replace(b"+", b" ").partition(b"=")
            name = _text(raw_name, "the query")
            if name not in names:
                raise _invalid(
                    f"unknown parameter {name[:100]!r}{nearest(name, names)}" if names else "there are no parameters"
                )
            if name in values:
                raise _invalid(f"parameter {name!r} is there twice")
            values[name] = _text(raw_value, f"parameter {name!r}")
    try:
        return convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(f"the query does not fit: {error}") from None


def decode_segment(raw: bytes) -> str:
    """Read one segment of a path.

    Raises:
        Problem: 400: it is no text.

    """
    return _text(raw, "the path")


def _text(raw: bytes, what: str) -> str:
    if raw.isalnum():
        return raw.decode("ascii")
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise _invalid(f"{what} is not UTF-8") from None
    if "\x00" in text:
        raise _invalid(f"{what} holds a zero byte")
    return text


def _invalid(detail: str) -> HttpProblem:
    return HttpProblem(400, "invalid", detail)
