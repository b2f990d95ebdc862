"""Spans of a message of a client: at the client, one an operation; at the replica, one for each context that came."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import msgspec

from ledger.telemetry.trace_context import TRACEPARENT, TraceContext, parse_traceparent
from ledger.telemetry.tracing import Span, SpanKind, Tracer, current_context, tracer, use_context
from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import Answer, AnswerStatus
from rsm_spark.core.operation import TRACES_MAX, ColumnPart, Message
from rsm_spark.transport.http2_heads import RpcHead


class TracedMessage(Protocol):
    """Part of a received message that is needed here."""

    @property
    def requests(self) -> Sequence[object]:
        """In the order in which they are answered."""
        ...

    @property
    def traces(self) -> Sequence[str] | None:
        """As they came; None = the client does not trace."""
        ...


def with_traces(message: Message) -> Message:
    """Return a message that carries the contexts of its operations; to be called while this process traces."""
    contexts: dict[str, None] = {}
    for one in (*message.commands, *message.queries):
        span: Span | None = one.column.trace if type(one) is ColumnPart else one.trace  # type: ignore[union-attr]
        if span is not None and len(contexts) < TRACES_MAX:
            contexts[span.context.traceparent] = None
    return msgspec.structs.replace(message, traces=tuple(contexts))


def called_by(context: Any) -> AbstractContextManager[None]:
    """Return a block in which what is submitted belongs to the trace that a call's metadata name, if any."""
    if tracer() is None:
        return nullcontext()
    head: RpcHead = context.head
    told = dict(head.metadata).get(TRACEPARENT, b"")
    found = parse_traceparent(told.decode("latin-1"))
    return nullcontext() if found is None else use_context(found)


def served(
    received: TracedMessage, log: str, submit: Callable[[], asyncio.Future[Sequence[Answer]]]
) -> asyncio.Future[Sequence[Answer]]:
    """Submit a message as what its traces say; return the future of its answers.

    Args:
        received: The message.
        log: Name of the log.
        submit: Gives it to the replica.

    """
    found = tracer()
    if found is None:
        return submit()
    spans = _begun(found, received.traces, log, len(received.requests))
    with use_context(spans[0].context if spans else None):
        future = submit()
    if spans:
        future.add_done_callback(functools.partial(_end, spans))
    return future


def _begun(found: Tracer, traces: Sequence[str] | None, log: str, count: int) -> list[Span]:
    if traces is None:
        # By the metadata of the call, by who submits in this process, or a trace that begins here.
        span = found.begin("serve", SpanKind.SERVER, current_context() or "new", {"log": log, "count": count})
        return [] if span is None else [span]
    contexts: dict[TraceContext, None] = {}
    for text in traces[:TRACES_MAX]:
        context = parse_traceparent(text)
        if context is not None:
            contexts[context] = None
    spans = [
        span
        for context in contexts
        if (span := found.begin("serve", SpanKind.SERVER, context, {"log": log, "count": count})) is not None
    ]
    for span in spans[1:]:
        span.link(spans[0].context)  # Whose entry theirs is, too.
    return spans


def _end(spans: Sequence[Span], future: asyncio.Future[Sequence[Answer]]) -> None:
    error = "given up" if future.cancelled() else ""
    if not error and future.exception() is None:
        answers = AnswerColumn.of(future.result())
        refused = [] if answers.is_all_ok else [status for status in answers.statuses if status != AnswerStatus.OK]
        error = AnswerStatus(refused[0]).name if refused else ""
    for span in spans:
        span.end(error)
