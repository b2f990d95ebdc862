"""Answers, before they are bytes on a connection."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

JSON_TYPE = b"application/json"
NO_REVISION = -1
_ENCODER = msgspec.json.Encoder()


class HttpReply(NamedTuple):
    """One whole answer.

    Attributes:
        status: HTTP status.
        body: All of it.
        headers: Besides content type, length and those of every answer; lower-case names.
        content_type: Of the body.

    """

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes = JSON_TYPE


def json_reply(document: Any, *, revision: int = NO_REVISION, status: int = 200, location: str = "") -> HttpReply:
    """Return a document as an answer.

    Args:
        document: Struct or mapping.
        revision: Of the state that it shows, or from which on it is so: `X-Rsm-Revision`.
        status: HTTP status.
        location: Path of what was made.

    """
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if revision != NO_REVISION:
        headers = ((b"x-rsm-revision", b"%d" % revision),)
    if location:
        headers = (*headers, (b"location", location.encode("ascii")))
    return HttpReply(status, _ENCODER.encode(document), headers)
