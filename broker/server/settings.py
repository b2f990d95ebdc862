"""Settings of one broker."""

from __future__ import annotations

from typing import Annotated

from broker.api.settings import HttpSettings
from broker.machine.limits import DEFAULT_LOG
from broker.machine.mapping import Mapper
from broker.machine.rules import BrokerRules
from ledger.errors import UsageError
from ledger.options import Option
from rsm_spark.server.replica_server import StoreSettings

WORKER_LEASE_S = 30.0
WORKER_PING_S = 10.0
_LEASE_S_MIN = 1.0
_PING_S_MIN = 0.1


class BrokerSettings(StoreSettings, frozen=True, kw_only=True):
    """Settings of one broker: those of a replica (see `StoreSettings`), and more.

    Attributes:
        http: Of the HTTP API; None = there is none.
        rules: How long things are kept, and the like.
        mapper: A user's function that sets group, priority and resources of tasks as they are submitted; None = none.

    """

    log: Annotated[str, Option("Name of the broker's log.")] = DEFAULT_LOG
    port: Annotated[int, Option("Port for workers; 0 = any that is free.", ge=0, le=65535)] = 0
    http: HttpSettings | None = HttpSettings()
    rules: BrokerRules = BrokerRules()
    mapper: Mapper | None = None
    worker_lease_s: Annotated[float, Option("For this time a worker without a connection keeps its tasks.")] = (
        WORKER_LEASE_S
    )
    worker_ping_s: Annotated[float, Option("A worker that has nothing else to send sends a ping after this time.")] = (
        WORKER_PING_S
    )

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
