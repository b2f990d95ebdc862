"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

__all__ = ["LoopThread"]

Result = TypeVar("Result")


class LoopThread:
    """See the module. Any number of threads may use it."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rsm-map-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine and return its result; interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

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

    def close(self) -> None:
        """End the loop and the thread, and iterations that were left."""
        self.run(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
