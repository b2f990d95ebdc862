"""An event loop on a thread of its own: how code that blocks calls coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for any number of threads. Its thread is a daemon: a process that ends does not wait for it.

    Args:
        name: Of the thread.
        closed: Error of who calls a loop that was closed.
        new_loop: Makes the loop. The default is safe where processes fork.

    """

    def __init__(
        self,
        name: str,
        *,
        closed: type[Exception] = RuntimeError,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self.loop = new_loop()
        self._closed = closed
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine; any thread may wait for its result."""
        if self.loop.is_closed():
            work.close()
            raise self._closed("the client is closed")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine and return its result. Ctrl-C in the caller cancels the coroutine."""
        return _result(self.start(work))

    def ask(self, function: Callable[[], Result]) -> Result:
        """Call a function on the loop's thread and return its result."""

        async def _ask() -> Result:
            return function()

        return self.run(_ask())

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have a function called soon on the loop's thread."""
        self.loop.call_soon_threadsafe(function)

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """Iterate over an asynchronous generator; one that is left early is closed."""

        async def _next() -> tuple[Result] | None:
            try:
                return (await anext(items),)
            except StopAsyncIteration:
                return None

        async def _close() -> None:
            await items.aclose()  # type: ignore[attr-defined]  # it is a generator

        try:
            while (item := self.run(_next())) is not None:
                yield item[0]
        finally:
            if not self.loop.is_closed():
                self.run(_close())

    @contextlib.contextmanager
    def enter(self, context: contextlib.AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        """Enter an asynchronous context for a block. One task enters and leaves it.

        If the block raises, the context is left as a task leaves it that is cancelled, and the block's error goes on.
        What the context itself raises meanwhile is told at the end of the block: nothing can interrupt the thread.
        """
        entered: Future[Result] = Future()
        leave = asyncio.Event()
        has_failed = False

        async def _hold() -> None:
            async with context as value:
                entered.set_result(value)
                await leave.wait()
                if has_failed:
                    raise asyncio.CancelledError

        held = self.start(_hold())
        try:
            either: list[Future[Any]] = [entered, held]
            wait(either, return_when=FIRST_COMPLETED)
            if not entered.done():
                held.result()
        except BaseException:
            held.cancel()
            raise
        try:
            yield entered.result()
        except BaseException:
            has_failed = True
            self.call_soon(leave.set)
            with contextlib.suppress(CancelledError):
                _result(held)
            raise
        self.call_soon(leave.set)
        _result(held)

    def close(self) -> None:
        """Cancel what still runs, close iterations that were left, and end the thread."""
        if not self.loop.is_closed():
            self.run(_wind_up(self.loop))
            self.stop()

    def stop(self) -> None:
        """End the thread; what still runs on it is abandoned."""
        if not self.loop.is_closed():
            self.call_soon(self.loop.stop)
            self._thread.join()
            self.loop.close()


def _result(future: Future[Result]) -> Result:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    await cancel_others()
    await loop.shutdown_asyncgens()


async def cancel_others() -> None:
    """Cancel all other tasks of the running loop and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def settled(source: asyncio.Future[Result]) -> Future[Result]:
    """Return a future that any thread can wait for, settled as a future of the loop is."""
    future: Future[Result] = Future()

    def _settle(source: asyncio.Future[Result]) -> None:
        if source.cancelled() or not future.set_running_or_notify_cancel():
            future.cancel()
        elif (error := source.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(source.result())

    source.get_loop().call_soon_threadsafe(source.add_done_callback, _settle)
    return future


def quickest_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop where it is installed, else one of asyncio."""
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
