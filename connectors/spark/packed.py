"""Keys and rows in msgpack to columns: decoded by the batch, one by one only where something does not fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

__all__ = ["Misfit", "typed_column", "unpack_all"]

_ARRAYS: Final = msgspec.msgpack.Decoder(list[list[Any]])
_ARRAY: Final = msgspec.msgpack.Decoder(list[Any])

Misfit = Callable[[int, str], None]
"""(place, what is wrong): takes note of a value that cannot be used, or raises."""


def unpack_all(packed: Sequence[bytes | None], width: int, misfit: Misfit) -> list[list[Any] | None]:
    """Return the values of msgpack arrays; None where there is none, or one that is told to `misfit`.

    Args:
        packed: The arrays.
        width: How many values each must have.
        misfit: Told of those that have another number, or are none.

    """
    present = [text for text in packed if text is not None]
    try:
        arrays = _ARRAYS.decode(b"\xdd" + len(present).to_bytes(4, "big") + b"".join(present))
    except msgspec.MsgspecError:
        arrays = []
    if len(arrays) == len(present) and all(len(array) == width for array in arrays):
        if len(present) == len(packed):
            return list(arrays)
        rest = iter(arrays)
        return [None if text is None else next(rest) for text in packed]
    return [None if text is None else _unpack(text, width, place, misfit) for place, text in enumerate(packed)]


def _unpack(text: bytes, width: int, place: int, misfit: Misfit) -> list[Any] | None:
    try:
        array = _ARRAY.decode(text)
    except msgspec.MsgspecError as error:
        misfit(place, f"is no msgpack array: {error}")
        return None
    if len(array) != width:
        misfit(place, f"has {len(array)} columns, {width} are described")
        return None
    return array


def typed_column(values: list[Any], kind: pa.DataType, misfit: Misfit) -> pa.Array[Any]:
    """Return a column; null where a value does not fit its type, which is told to `misfit`."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError, ValueError):
        return pa.array([_fitting(value, kind, place, misfit) for place, value in enumerate(values)], kind)


def _fitting(value: Any, kind: pa.DataType, place: int, misfit: Misfit) -> Any:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        misfit(place, f"{type(value).__name__} is no {kind}: {error}")
        return None
    return value
