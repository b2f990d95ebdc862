"""Base of the clients of a service: connections to its replicas, a time limit, and their end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ledger.ports import MetadataStore
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.client.replica_connection import ReplicaConnection

TIMEOUT_S = 30.0
"""Long enough for any failover: a session timeout, an election and a recovery."""


class ServiceCalls:
    """Base of `ServiceClient` and of the map's client.

    Args:
        link: Its connections; closed with it.
        timeout_s: Time limit of a call that names none.
        store: Closed with it; None = somebody else's.

    """

    def __init__(
        self, link: ReplicaConnection, *, timeout_s: float = TIMEOUT_S, store: MetadataStore | None = None
    ) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._store = store

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Give up what is still waiting, and disconnect."""
        await self._link.close()
        if self._store is not None:
            await self._store.close()

    def keep_session(self, kept: KeptSession) -> None:
        """Send commands in a session that was kept, and keep it again at the end; before the first call."""
        self._link.keep_session(kept)

    @property
    def address(self) -> str:
        """Address of the replica in use; "" while not connected."""
        return self._link.address

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s
