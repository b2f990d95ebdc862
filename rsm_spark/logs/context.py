"""Context that the parts of one plain log's writer share."""

from __future__ import annotations

import random
from collections.abc import Callable

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import Leadership
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.settings import ReplicaSettings


class LogContext:
    """One plain log, as one process uses it.

    Args:
        client: Connected.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        me: Who writes; its incarnation is drawn anew for each writer.
        settings: Quorums, passwords, keys, limits.
        clock_ms: Wall clock, milliseconds since 1970.
        rng: For back-off.

    """

    def __init__(
        self,
        client: LedgerClient,
        log: str,
        log_id: str,
        *,
        me: Leadership,
        settings: ReplicaSettings,
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.client = client
        self.log = log
        self.log_id = log_id
        self.me = me
        self.settings = settings
        self.clock_ms = clock_ms
        self.rng = rng
        self.chains = ChainStore(client.store, log, settings.rsm_root)

    @property
    def log_extra(self) -> dict[str, object]:
        """Fields that every line about this log carries."""
        return {"log": self.log, "writer": self.me.replica_id}
