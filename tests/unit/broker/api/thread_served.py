"""A server in a thread of its own, for clients that block; and the operations of its description."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from broker.api.app import create_app
from broker.api.edge import Edge
from broker.api.server import HttpServer
from broker.api.settings import HttpSettings
from ledger.http.origins import HostCheck
from tests.unit.broker.api.stand import StandIn, task

__all__ = ["OPERATIONS", "description", "serving_in_a_thread", "stand_in_serving"]

# A stream of events never ends by itself.
_ENDLESS = {"/api/v1/events"}


def _edge() -> Edge:
    return create_app(StandIn(), HttpSettings(), HostCheck("127.0.0.1", (), is_encrypted=False), None)


OPERATIONS = [
    f"{route.method} {route.path}"
    for route in _edge().table.routes
    if route.tag != "dashboard" and route.path not in _ENDLESS
]
"""Method and path of each."""


def description() -> bytes:
    """OpenAPI's JSON."""
    (route,) = [one for one in _edge().table.routes if one.path == "/api/v1/openapi.json"]
    answer: Any = asyncio.run(route.handler(None))  # type: ignore[arg-type]
    assert answer is not None
    return answer.body


@contextlib.contextmanager
def serving_in_a_thread(served: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[str]:
    """Run a server on a loop of its own; give its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = served()
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(120)
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(120)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@contextlib.asynccontextmanager
async def stand_in_serving() -> AsyncIterator[str]:
    """A server before a stand-in."""
    broker = StandIn()
    broker.tasks.update({number: task(number) for number in range(1, 50)})
    async with HttpServer(broker, HttpSettings()) as server:
        yield server.url
