"""Bodies as JSON, strictly: what one reader may take for this and another for that is refused.

    unknown, missing or twice the same member, wrong type, out of bounds, deeper than 64, a number of over 16 digits,
    NaN, Infinity, half a surrogate pair, bytes that are no UTF-8, anything behind the end,
    more strings, values, objects than any full batch has

A body is decoded twice by C code, once typed and once as it is, and its punctuation is counted: some microseconds.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

import msgspec

from ledger.decoding import json_decoder
from ledger.http.problems import HttpProblem

DEPTH_MAX = 64
STRINGS_MAX = 300_000
"""Keys and texts; a full batch whose tasks name everything has 200,000."""
VALUES_MAX = 600_000
CONTAINERS_MAX = 50_000
_ANY = msgspec.json.Decoder()
_LONG_NUMBER = re.compile(rb"(?<![.\d])\d{17}")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_INVALID = "invalid"


class StrictDecoder:
    """Reads bodies of one type.

    Args:
        type: A struct that forbids unknown fields.

    """

    def __init__(self, type: type[msgspec.Struct]) -> None:  # noqa: A002
        self._decoder: msgspec.json.Decoder[Any] = json_decoder(type)
        self._names = sorted(_field_names(type, set()))

    def decode(self, body: bytes) -> Any:
        """Return a body, read.

        Raises:
            Problem: 400: it is not what it must be; says where.

        """
        outside = _punctuation(body)
        try:
            value = self._decoder.decode(body)
            plain = _ANY.decode(body)
        except msgspec.ValidationError as error:
            raise self._explain(str(error)) from None
        except msgspec.DecodeError as error:
            raise _malformed(f"the body is not JSON: {error}") from None
        except UnicodeDecodeError as error:
            raise _malformed(f"the body is not UTF-8: {error.reason}") from None
        except RecursionError:
            raise _malformed(f"the body is nested deeper than {DEPTH_MAX}") from None
        if outside.count(b":") != _member_count(plain):
            raise _malformed("the body has an object with the same member twice")
        return value

    def _explain(self, message: str) -> HttpProblem:
        unknown = _UNKNOWN.search(message)
        hint = nearest(unknown[1], self._names) if unknown else ""
        return _malformed(f"the body does not fit: {message}{hint}")


def nearest(name: str, known: list[str]) -> str:
    """Return "; did you mean …?", or which names there are."""
    near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _punctuation(body: bytes) -> bytes:
    """Return what is outside of strings, bounded before anything is made of it: decoding holds up the whole broker.

    Raises:
        Problem: 400: there is too much of it, or it is nested too deep.

    """
    if b"\\" in body:
        # Runs of backslashes are read from their left: pairs first, then what is left before a quotation mark.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if body.count(b'"') > 2 * STRINGS_MAX:
        raise _malformed(f"the body has more than {STRINGS_MAX:,} strings")
    outside = b"".join(body.split(b'"')[::2]).translate(None, b" \t\r\n")
    if outside.count(b",") + outside.count(b":") > VALUES_MAX:
        raise _malformed(f"the body has more than {VALUES_MAX:,} values")
    if outside.count(b"{") + outside.count(b"[") > CONTAINERS_MAX:
        raise _malformed(f"the body has more than {CONTAINERS_MAX:,} objects and arrays")
    if _LONG_NUMBER.search(outside):
        raise _malformed("the body has a number of more than 16 digits")
    brackets = outside.translate(None, _NOT_BRACKETS)
    if len(brackets) > 2 * DEPTH_MAX:
        for _ in range(DEPTH_MAX):
            brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
            if len(brackets) <= 1:
                break
        else:
            raise _malformed(f"the body is nested deeper than {DEPTH_MAX}")
    return outside


def _member_count(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum([_member_count(one) for one in value.values() if type(one) in _CONTAINERS])
    if type(value) is list:
        return sum([_member_count(one) for one in value if type(one) in _CONTAINERS])
    return 0


_CONTAINERS = (dict, list)


def _malformed(detail: str) -> HttpProblem:
    return HttpProblem(400, _INVALID, detail)


def _field_names(type: Any, seen: set[Any]) -> set[str]:  # noqa: A002
    """Return the names of the fields of a struct and of the structs in it."""
    names: set[str] = set()
    stack = [msgspec.inspect.type_info(type)]
    while stack:
        info = stack.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            names |= {one.encode_name for one in info.fields}
            stack += [one.type for one in info.fields]
        elif isinstance(info, msgspec.inspect.UnionType):
            stack += list(info.types)
        elif isinstance(info, msgspec.inspect.CollectionType):
            stack.append(info.item_type)
    return names
