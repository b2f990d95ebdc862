"""Context of a trace as it travels: W3C's `traceparent`, 55 characters. What is none is ignored, whoever sent it."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

TRACEPARENT: Final = "traceparent"
"""Name of the header of HTTP, of the metadata of gRPC, and of the pair in a request to a bookie."""
CHARS: Final = 55
_CHARS_MAX: Final = 256
_SAMPLED: Final = 1
_FORMAT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A span, as those below it know it.

    Attributes:
        trace_id: 128 bits, not 0.
        span_id: 64 bits, not 0.
        is_sampled: Spans of this trace are told.

    """

    trace_id: int
    span_id: int
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The same as text."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the context that a text says; None = it says none, as W3C's Trace Context defines it."""
    if len(text) < CHARS or len(text) > _CHARS_MAX:
        return None
    found = _FORMAT.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    # Later versions may append; of this one nothing follows.
    if version == "ff" or (version == "00" and rest is not None):
        return None
    context = TraceContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return context if context.trace_id and context.span_id else None


def derived_context(name: str, rate: float) -> TraceContext:
    """Return the context of something that has a name in the whole cluster: all processes get the same for it.

    Args:
        name: Of one thing, such as a task of a log.
        rate: Share of the names whose traces are told.

    """
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1
    return TraceContext(trace_id, span_id, is_sampled=is_within(trace_id, rate))


def is_within(trace_id: int, rate: float) -> bool:
    """Return whether a trace is among the share that is told: all that know the rate say the same."""
    return trace_id & (1 << 64) - 1 < int(rate * (1 << 64))
