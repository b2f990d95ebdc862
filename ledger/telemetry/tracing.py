"""Spans: what a process did, when, and what it belongs to.

Nothing is traced until a `Tracer` is installed. Hot paths ask `tracer()` once, and do nothing more while it says None.
A span that is not sampled does not exist: `begin_span` returns None, and None is passed on.

A trace is sampled where it begins, by the tracer's rate; whoever gets its context goes by what that says.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Final, Literal

from ledger.shown_text import shown
from ledger.telemetry.trace_context import TraceContext, is_within

ATTRIBUTES_MAX: Final = 32
EVENTS_MAX: Final = 32
LINKS_MAX: Final = 32
VALUE_CHARS_MAX: Final = 1_024

Value = str | int | float | bool


class SpanKind(IntEnum):
    """Kind of a span, as OTLP numbers it."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


class Span:
    """Something that takes time; it is told when it has ended.

    Attributes:
        name: What it is, of few names.
        kind: See `SpanKind`.
        context: Its own.
        parent_id: Span above it; 0 = it begins the trace.
        start_ns: Wall clock.
        end_ns: The same; 0 = it goes on.
        attributes: Names are those of fields of log lines, behind `rsm.`.
        events: What happened in it: when, what, and with which attributes.
        links: Spans that it belongs to, too.
        error: What failed; "" = nothing.

    """

    __slots__ = (
        "_on_end", "attributes", "context", "end_ns", "error", "events", "kind", "links", "name", "parent_id",
        "start_ns",
    )  # fmt: skip

    def __init__(
        self, name: str, kind: SpanKind, context: TraceContext, parent_id: int, start_ns: int,
        on_end: Callable[[Span], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.kind = kind
        self.context = context
        self.parent_id = parent_id
        self.start_ns = start_ns
        self.end_ns = 0
        self.attributes: dict[str, Value] = {}
        self.events: list[tuple[int, str, dict[str, Value]]] = []
        self.links: list[TraceContext] = []
        self.error = ""
        self._on_end = on_end

    def set(self, **attributes: Value) -> None:
        """Add attributes; what is beyond the bounds is left out."""
        for name, value in attributes.items():
            if len(self.attributes) < ATTRIBUTES_MAX:
                self.attributes[f"rsm.{name}"] = _bounded(value)

    def event(self, name: str, **attributes: Value) -> None:
        """Note that something happens in it now."""
        if len(self.events) < EVENTS_MAX:
            told = {f"rsm.{key}": _bounded(value) for key, value in attributes.items()}
            self.events.append((time.time_ns(), name, told))

    def link(self, context: TraceContext) -> None:
        """Note a span that it belongs to, too."""
        if len(self.links) < LINKS_MAX:
            self.links.append(context)

    def end(self, error: str = "", end_ns: int = 0) -> None:
        """End it, and have it told; only the first end counts.

        Args:
            error: What failed.
            end_ns: When it ended; 0 = now.

        """
        if self.end_ns:
            return
        self.end_ns = end_ns or time.time_ns()
        self.error = shown(error, VALUE_CHARS_MAX)
        self._on_end(self)


class Tracer:
    """Begins spans.

    Args:
        rate: Share of the traces that begin here and are told, 0 to 1.
        on_end: Gets each span that has ended; must not block.

    """

    def __init__(self, rate: float, on_end: Callable[[Span], None]) -> None:
        self.rate = rate
        self._on_end = on_end
        self._bits = random.SystemRandom().getrandbits

    def begin(
        self,
        name: str,
        kind: SpanKind,
        parent: TraceContext | Literal["new"] | None,
        attributes: Mapping[str, Value] | None = None,
        *,
        own: TraceContext | None = None,
        start_ns: int = 0,
    ) -> Span | None:
        """Begin a span; None = its trace is not told.

        Args:
            name: What it is.
            kind: See `SpanKind`.
            parent: What it belongs to; "new" = it begins a trace, if that is among those to be told.
            attributes: See `Span.set`.
            own: Its own context, where others know it by its name; None = a new one below `parent`.
            start_ns: When it began; 0 = now.

        """
        if parent == "new":
            context = own or TraceContext(self._bits(128) or 1, self._bits(64) or 1)
            parent_id = 0
            if not (context.is_sampled if own else is_within(context.trace_id, self.rate)):
                return None
        elif parent is None or not parent.is_sampled:
            return None
        else:
            context = own or TraceContext(parent.trace_id, self._bits(64) or 1)
            parent_id = parent.span_id
        span = Span(name, kind, context, parent_id, start_ns or time.time_ns(), self._on_end)
        if attributes:
            span.set(**attributes)
        return span


_UNSAMPLED: Final = TraceContext(1, 1, is_sampled=False)
_tracer: Tracer | None = None
# None = nothing is known of a trace; a context that is not sampled = it is known not to be told.
_CURRENT: ContextVar[TraceContext | None] = ContextVar("rsm_trace", default=None)


def tracer() -> Tracer | None:
    """Return what begins spans; None = nothing is traced."""
    return _tracer


def install_tracer(installed: Tracer | None) -> None:
    """Trace from now on, or stop it."""
    global _tracer  # noqa: PLW0603 - one of a process, as its log is
    _tracer = installed


def begin_span(name: str, kind: SpanKind = SpanKind.INTERNAL, **attributes: Value) -> Span | None:
    """Begin a span below the current one; without one it begins a trace. None = it is not told."""
    if _tracer is None:
        return None
    return _tracer.begin(name, kind, current_context() or "new", attributes)


def current_context() -> TraceContext | None:
    """Return the span that is current: ours, else that of OpenTelemetry's API, if the program uses it."""
    found = _CURRENT.get()
    api = sys.modules.get("opentelemetry.trace") if found is None else None
    if api is None or _tracer is None:
        return found
    theirs = api.get_current_span().get_span_context()
    if not theirs.is_valid:
        return None
    return TraceContext(theirs.trace_id, theirs.span_id, is_sampled=bool(theirs.trace_flags.sampled))


@contextmanager
def use_context(context: TraceContext | None) -> Iterator[None]:
    """Have spans that begin in this block, and in what it starts, belong to a span; None = their trace is not told."""
    token = _CURRENT.set(context or _UNSAMPLED)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _bounded(value: Value) -> Value:
    return shown(value, VALUE_CHARS_MAX) if isinstance(value, str) else value
