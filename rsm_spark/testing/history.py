"""Histories: what clients asked of a map, when, and what they were told; to be judged and to be kept."""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import msgspec

Value = Hashable
"""Bytes in most histories; numbers where they are counted up."""


class Kind(enum.StrEnum):
    """Kinds of calls."""

    PUT = "put"
    GET = "get"
    COMPARE_AND_SET = "compare_and_set"
    INCREMENT = "increment"
    DELETE = "delete"


class CallerReply(NamedTuple):
    """Reply that a caller got.

    Attributes:
        done: Whether a compare-and-set found what it expected, a delete something to delete; else True.
        value: Of a get: what it found, None = no such key. Of an increment: the value after it.
        revision: Mod revision after it: of the own write, or of what was found instead; 0 = no such key; None = the
            reply does not say, so the checker does not judge it.

    """

    done: bool = True
    value: Value | None = None
    revision: int | None = None


class CallerCall(NamedTuple):
    """One call of a client.

    Attributes:
        client: Who called; only for explanations.
        key: The key.
        kind: What was asked for.
        began_s: Monotonic time before it was sent.
        ended_s: Monotonic time after the reply; infinite if the outcome is unknown.
        argument: Value to write (None in a compare-and-set: delete), or the number to add.
        expected: Of a compare-and-set: a value, or a mod revision if `by_revision`; None = no such key.
        by_revision: `expected` is a mod revision.
        reply: None if the outcome is unknown.

    """

    client: Hashable
    key: Hashable
    kind: Kind
    began_s: float
    ended_s: float = math.inf
    argument: Value | None = None
    expected: Value | None = None
    by_revision: bool = False
    reply: CallerReply | None = None


def is_write(call: CallerCall) -> bool:
    """Return whether a call is known to have written a record."""
    reply = call.reply
    return call.kind is not Kind.GET and reply is not None and reply.done and bool(reply.revision)


def shown(call: CallerCall) -> str:
    """Return a call in words."""
    what = f"{call.kind}"
    if call.kind is Kind.COMPARE_AND_SET:
        what += f" {'revision ' if call.by_revision else ''}{call.expected!r} ->"
    if call.kind not in (Kind.GET, Kind.DELETE):
        what += f" {call.argument!r}"
    if call.reply is None:
        return f"{what} by {call.client} from {call.began_s:.6f} (outcome unknown)"
    told = "no" if not call.reply.done else repr(call.reply.value) if call.kind is Kind.GET else "done"
    at = "" if call.reply.revision is None else f" at {call.reply.revision}"
    return f"{what} by {call.client} from {call.began_s:.6f} to {call.ended_s:.6f}: {told}{at}"


def encode_history(calls: Iterable[CallerCall]) -> bytes:
    """Return a history (keys and values bytes, text or numbers) as msgpack: an array of calls as arrays of fields."""
    return msgspec.msgpack.encode(list(calls))


def decode_history(encoded: bytes) -> list[CallerCall]:
    """Return the history that was encoded."""
    calls = []
    for fields in msgspec.msgpack.decode(encoded):
        call = CallerCall(*fields)
        reply = None if call.reply is None else CallerReply(*call.reply)
        calls.append(call._replace(kind=Kind(call.kind), reply=reply))
    return calls
