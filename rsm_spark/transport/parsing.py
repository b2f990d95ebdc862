"""Parses what came over gRPC as the message that it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

Parsed = TypeVar("Parsed", bound=Message)


def parsed(kind: type[Parsed], text: bytes, refused: Callable[[str], Exception]) -> Parsed:
    """Return the message of this kind that the bytes are.

    Raises:
        Exception: What `refused` makes of the reason: they are none.

    """
    try:
        return kind.FromString(text)
    except DecodeError as error:
        raise refused(f"{len(text)} bytes are no {kind.DESCRIPTOR.name} message: {error}") from error
