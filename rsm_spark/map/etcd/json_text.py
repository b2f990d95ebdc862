"""Messages as JSON, as etcd's gateway has them: names as etcd writes them, bytes in base64, long numbers as text.

What comes in is bounded before anything is made of it. Pure.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from rsm_spark.map.etcd import errors as e

OBJECTS_MAX = 10_000
"""Objects and lists of one request: the largest transaction has fewer."""
VALUES_MAX = 50_000
_DEPTH_MAX = 64
_WORD = re.compile(r"[A-Za-z0-9+/_=-]*")
"""Base64 of either alphabet, numbers, names of enumerations: the library skips what is no base64 in between."""
_LONG = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})
_NAMES: dict[str, str] = {}
_ENCODER = msgspec.json.Encoder()


def parse_json(kind: type[Message], text: bytes) -> Any:
    """Return a message of its JSON; no text at all is a message that says nothing.

    Raises:
        EtcdError: It is no such message, or has too many parts.

    """
    (only,) = parse_all(kind, text, 1)
    return only


def parse_all(kind: type[Message], text: bytes, count_max: int) -> list[Any]:
    """Return the messages of a text, one behind the other, one at least; see `parse_json`."""
    if text.count(b"{") + text.count(b"[") > OBJECTS_MAX or text.count(b",") > VALUES_MAX:
        raise e.invalid(f"rsm: the request has more than {OBJECTS_MAX} objects, or {VALUES_MAX} values")
    try:
        has_text = any(field.type == FieldDescriptor.TYPE_STRING for field in kind.DESCRIPTOR.fields)
        documents = list(_documents(text.decode(), count_max, _once if has_text else _once_in_words)) or [{}]
        return [ParseDict(one, kind(), max_recursion_depth=_DEPTH_MAX) for one in documents]
    except RecursionError:
        raise e.invalid(f"rsm: the request is nested deeper than {_DEPTH_MAX}") from None
    except (JsonError, ValueError, TypeError, AttributeError, KeyError) as error:  # Some get through the library.
        raise e.invalid(f"rsm: the request is no {kind.DESCRIPTOR.name} in JSON: {error}"[:400]) from None


def _documents(
    text: str, count_max: int, hook: Callable[[list[tuple[str, Any]]], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(object_pairs_hook=hook)
    place, count = _behind_space(text, 0), 0
    while place < len(text):
        count += 1
        if count > count_max:
            raise ValueError(f"there are more than {count_max} documents")
        document, place = decoder.raw_decode(text, place)
        if not isinstance(document, dict):
            raise TypeError("it is no object")
        yield document
        place = _behind_space(text, place)


def _behind_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the same member is there twice")
    return found


def _once_in_words(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, value in pairs:
        if isinstance(value, str) and not _WORD.fullmatch(value):
            raise ValueError(f"{name[:40]!r} is neither base64 nor a number")
    return _once(pairs)


def json_steps(message: Message) -> Iterator[bytes]:
    """Yield the JSON of a message in pieces: what is repeated at its top is a piece each."""
    before = b"{"
    for field, value in message.ListFields():
        name = b"%s%s:" % (before, _ENCODER.encode(_name_of(field)))
        before = b","
        if not _is_repeated(value):
            yield name + _ENCODER.encode(_shown(field, value))
            continue
        name += b"["
        for one in value:
            yield name + _ENCODER.encode(_shown(field, one))
            name = b","
        yield b"]"
    yield b"{}" if before == b"{" else b"}"


def json_of(message: Message) -> bytes:
    """Return the JSON of a message."""
    return b"".join(json_steps(message))


def _document(message: Message) -> dict[str, Any]:
    return {
        _name_of(field): [_shown(field, one) for one in value] if _is_repeated(value) else _shown(field, value)
        for field, value in message.ListFields()
    }


def _shown(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _document(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b64encode(value).decode()
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None, "an enumeration has one"
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return str(value) if field.cpp_type in _LONG else value


def _is_repeated(value: Any) -> bool:
    return not isinstance(value, Message | bytes | str | int | float)


def _name_of(field: FieldDescriptor) -> str:
    """Return a field's name: the one that our text of the messages says where it is not made of our own."""
    found = _NAMES.get(field.full_name)
    if found is None:
        first, *words = field.name.split("_")
        own = first + "".join(word.capitalize() for word in words)
        found = _NAMES[field.full_name] = str(field.name if field.json_name == own else field.json_name)
    return found
