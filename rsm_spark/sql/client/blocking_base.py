"""The hand-written part of the blocking client of SQL tables; `rsm_spark.sql.client.blocking` has the rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ledger.blocking_base import BlockingClient
from ledger.loop_thread import LoopThread, quickest_loop
from rsm_spark.sql.client.client import SqlClient


class BlockingSqlBase(BlockingClient[SqlClient]):
    """Thread and connection of the blocking client."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, SqlClient]]) -> None:
        super().__init__(LoopThread("rsm-sql-client", new_loop=quickest_loop), make)
