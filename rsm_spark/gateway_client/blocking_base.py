"""The parts of the blocking client of gateways that are written by hand; the module `blocking` has the rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ledger.blocking_base import BlockingClient
from ledger.loop_thread import LoopThread, quickest_loop
from rsm_spark.gateway_client.client import LogGatewayClient


class BlockingGatewayBase(BlockingClient[LogGatewayClient]):
    """Thread and connections of the blocking client."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, LogGatewayClient]]) -> None:
        super().__init__(LoopThread("rsm-gateway-client", new_loop=quickest_loop), make)
