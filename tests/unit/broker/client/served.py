"""A broker in memory on a thread of its own, for clients that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.unit.broker.client.stand_in import Answering, HttpStandIn, MemoryBroker


class ServedBroker:
    """`with ServedBroker() as served`: `served.url`, `served.broker`, `served.run(coroutine)`."""

    def __init__(self, answering: Answering | None = None) -> None:
        self.broker = MemoryBroker()
        self.server = HttpStandIn(answering or self.broker.answer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ServedBroker:  # noqa: PYI034
        self._thread.start()
        self.run(self.server.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.server.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return self.server.url

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
