"""Base of the generated blocking classes: the asynchronous object underneath, its thread, and its end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from ledger.loop_thread import LoopThread


class _Closable(Protocol):
    async def close(self) -> None: ...


Wrapped = TypeVar("Wrapped")
WrappedClient = TypeVar("WrappedClient", bound=_Closable)


class BlockingCalls(Generic[Wrapped]):
    """Base of all blocking classes.

    Attributes:
        thread: Where the coroutines run.
        asynchronous: What is called there. Its coroutines go through `thread.run`.

    """

    def __init__(self, thread: LoopThread, asynchronous: Wrapped) -> None:
        self.thread = thread
        self.asynchronous = asynchronous


class BlockingClient(BlockingCalls[WrappedClient]):
    """Base of the blocking clients: each has a thread of its own, which ends with it.

    Args:
        thread: The client's own.
        make: Makes the asynchronous client; called on that thread.

    """

    def __init__(self, thread: LoopThread, make: Callable[[], Coroutine[Any, Any, WrappedClient]]) -> None:
        try:
            super().__init__(thread, thread.run(make()))
        except BaseException:
            thread.close()
            raise
        self._is_closed = False

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Give up what still waits, and disconnect."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.thread.run(self._end())
        finally:
            self.thread.close()

    async def _end(self) -> None:
        await self.asynchronous.close()
