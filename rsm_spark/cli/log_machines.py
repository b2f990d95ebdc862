"""Machines of logs, as their first records say where no replica does."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError
from rsm_spark.core.chain import Leadership
from rsm_spark.errors import RsmError
from rsm_spark.logs.context import LogContext
from rsm_spark.logs.log_kind import machine_name
from rsm_spark.runtime.settings import ReplicaSettings

_READ_S = 3.0


class LogMachines:
    """See the module. What was read of a log stays so: it is remembered.

    Args:
        client: Connected.
        rsm_root: Root of the logs.

    """

    def __init__(self, client: LedgerClient, rsm_root: str) -> None:
        self._client = client
        self._root = rsm_root
        self._known: dict[str, str] = {}  # by id of the log

    async def name_of(self, log: str, log_id: str) -> str:
        """Return the name of a log's machine; "" = its records do not say, or cannot be read now."""
        known = self._known.get(log_id)
        if known is not None:
            return known
        context = LogContext(
            self._client, log, log_id, me=Leadership("", ""), settings=ReplicaSettings(rsm_root=self._root),
            clock_ms=lambda: time.time_ns() // 1_000_000, rng=random.Random(),  # noqa: S311 - guards nothing
        )  # fmt: skip
        try:
            async with asyncio.timeout(_READ_S):
                name = await machine_name(context)
        except (LedgerError, RsmError, TimeoutError):
            return ""
        if name:
            self._known[log_id] = name
        return name

    def forget_others(self, log_ids: Collection[str]) -> None:
        """Remember these logs alone."""
        self._known = {log_id: name for log_id, name in self._known.items() if log_id in log_ids}
