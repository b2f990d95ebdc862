"""The parts of the blocking client of services that are written by hand; `rsm_spark.client.blocking` has the rest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Self, overload

from ledger.blocking_base import BlockingClient
from ledger.loop_thread import LoopThread, quickest_loop
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.core.typed_calls import N, P, T


class BlockingServiceBase(BlockingClient[ServiceClient]):
    """Thread, connection and typed calls of the blocking client."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, ServiceClient]]) -> None:
        super().__init__(LoopThread("rsm-service-client", new_loop=quickest_loop), make)

    def with_timeout(self, timeout_s: float) -> Self:
        """Return this client with another time limit of its calls; see `ServiceClient.with_timeout`."""
        limited = copy.copy(self)
        limited.asynchronous = self.asynchronous.with_timeout(timeout_s)
        return limited

    @overload
    def call(self, method: Callable[Concatenate[N, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    def call(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def call(self, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Execute a typed command, once, or ask a typed query; see `ServiceClient.call`."""
        return self.thread.run(self.asynchronous.call(method, *args, **kwargs))
