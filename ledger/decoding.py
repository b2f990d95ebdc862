"""Decoders of types, each made once.

msgspec looks into a type when it sees it for the first time: when a decoder is made, in `decode(…, type=…)`, in
`convert`. Two threads that do so at once for the same type end the process with a segmentation fault (seen with msgspec
0.22). So functions of the product decode through these; `tests/tidy` sees to that. A decoder that a module makes when
it is imported is fine.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")

_LOCK = threading.Lock()
_JSON: dict[Any, msgspec.json.Decoder[Any]] = {}
_MSGPACK: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of JSON into a type; any thread may ask."""
    decoder = _JSON.get(kind)
    if decoder is None:
        with _LOCK:
            decoder = _JSON[kind] = msgspec.json.Decoder(kind)
    return cast("msgspec.json.Decoder[T]", decoder)


def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Return the decoder of MessagePack into a type; any thread may ask."""
    decoder = _MSGPACK.get(kind)
    if decoder is None:
        with _LOCK:
            decoder = _MSGPACK[kind] = msgspec.msgpack.Decoder(kind)
    return cast("msgspec.msgpack.Decoder[T]", decoder)


def convert(value: Any, kind: type[T], *, strict: bool = True, from_attributes: bool = False) -> T:
    """Return a value as a type, as `msgspec.convert` does; any thread may ask."""
    json_decoder(kind)
    return msgspec.convert(value, kind, strict=strict, from_attributes=from_attributes)
