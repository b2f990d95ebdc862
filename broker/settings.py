"""How one broker runs."""

from __future__ import annotations

from pathlib import Path

from ledger.errors import UsageError
from rsm_spark.store.service import StoreSettings

__all__ = ["DEFAULT_LOG", "BrokerSettings"]

DEFAULT_LOG = "broker"
_LEASE_S_MIN = 1.0


class BrokerSettings(StoreSettings, frozen=True, kw_only=True):
    """How one broker runs: as a replica (see `StoreSettings`), and beyond that.

    Attributes:
        log: Name of its log.
        http_port: Of the HTTP API; 0 = the system chooses; None = no HTTP.
        http_bind: Address that the HTTP API listens on; beyond loopback only with TLS and tokens.
        http_advertise: "host" or "host:port" that HTTP clients are sent to; "" = where it listens.
        tokens_file: Tokens of tenants and administrators (TOML); None = whoever reaches it is an administrator,
            on loopback only.
        ready_lag_ms: A follower whose state may be older than this is not ready.
        worker_lease_s: How long a worker whose stream is down keeps its runs.
        worker_ping_s: A worker that has said nothing for so long pings.

    """

    log: str = DEFAULT_LOG
    http_port: int | None = 0
    http_bind: str = "127.0.0.1"
    http_advertise: str = ""
    tokens_file: Path | None = None
    ready_lag_ms: int = 10_000
    worker_lease_s: float = 30.0
    worker_ping_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: A value is none.

        """
        super().__post_init__()
        if self.worker_lease_s < _LEASE_S_MIN or not 0.1 <= self.worker_ping_s <= self.worker_lease_s:
            raise UsageError(
                f"worker lease {self.worker_lease_s:g} s, ping {self.worker_ping_s:g} s: a lease has at least "
                f"{_LEASE_S_MIN:g} s, and workers ping at least once in it"
            )
