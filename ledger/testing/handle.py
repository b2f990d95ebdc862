"""A callback to come in a simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any


class SimHandle(asyncio.TimerHandle):
    """A callback, when it is due, and the context that it runs in.

    A simulation is made of them: asyncio's own cost more, since they can also tell where they were made. Of a cancelled
    one the callback is None; what is inherited stays empty.
    """

    __slots__ = ("arguments", "callback", "context", "due_s")

    def __init__(
        self, due_s: float, callback: Callable[..., Any], arguments: tuple[Any, ...], context: Context | None
    ) -> None:
        self.due_s = due_s
        self.callback: Callable[..., Any] | None = callback
        self.arguments = arguments
        self.context = copy_context() if context is None else context

    def __repr__(self) -> str:
        return f"<{self.callback!r} at {self.due_s} s>"

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()  # The timer may wait long: it holds nothing meanwhile.

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due_s
