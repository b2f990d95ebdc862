"""How one broker runs."""

from __future__ import annotations

from broker.core.mapping import Mapper
from broker.core.rules import BrokerRules
from broker.http.settings import HttpSettings
from ledger.errors import UsageError
from rsm_spark.store.service import StoreSettings

__all__ = ["DEFAULT_LOG", "WORKER_LEASE_S", "WORKER_PING_S", "BrokerSettings"]

DEFAULT_LOG = "broker"
WORKER_LEASE_S = 30.0
WORKER_PING_S = 10.0
_LEASE_S_MIN = 1.0
_PING_S_MIN = 0.1


class BrokerSettings(StoreSettings, frozen=True, kw_only=True):
    """How one broker runs: as a replica (see `StoreSettings`), and beyond that.

    Attributes:
        log: Name of its log.
        http: Of the HTTP API; None = there is none.
        rules: How long things are kept, and the like.
        mapper: A user's function that sets group, priority and resources of tasks as they are submitted; None = none.
        worker_lease_s: How long a worker whose stream is down keeps its runs.
        worker_ping_s: A worker that has said nothing for so long pings.

    """

    log: str = DEFAULT_LOG
    http: HttpSettings | None = HttpSettings()
    rules: BrokerRules = BrokerRules()
    mapper: Mapper | None = None
    worker_lease_s: float = WORKER_LEASE_S
    worker_ping_s: float = WORKER_PING_S

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: A value is none.

        """
        super().__post_init__()
        if self.worker_lease_s < _LEASE_S_MIN or not _PING_S_MIN <= self.worker_ping_s <= self.worker_lease_s:
            raise UsageError(
                f"worker lease {self.worker_lease_s:g} s, ping {self.worker_ping_s:g} s: a lease has at least "
                f"{_LEASE_S_MIN:g} s, and workers ping at least once in it"
            )
