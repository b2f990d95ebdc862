"""Client of the leader for a caller that this replica has let in: all that is sent is within the caller's rights.

The leader sees this replica, which may do everything, and takes its word for what the caller may: a replica writes the
log. See docs/decisions/0051-rights-to-tables-go-by-their-names.md.
"""

from __future__ import annotations

from typing import Protocol

from rsm_spark.client.service_client import Reply
from rsm_spark.core.freshness import Freshness
from rsm_spark.sql.client.row_stream import RowService
from rsm_spark.sql.client.transaction import TransactionService
from rsm_spark.sql.table_rights import TableRights, within


class LeaderService(TransactionService, RowService, Protocol):
    """Part of a client of the leader that is needed; `ServiceClient` has it."""


class BoundedService:
    """See the module.

    Args:
        client: Of the leader.
        rights: Tables that the caller has; None = all.

    """

    def __init__(self, client: LeaderService, rights: TableRights | None) -> None:
        self._client = client
        self._rights = rights

    @property
    def steady_read(self) -> Freshness:
        """Freshness with which reads are answered by one replica."""
        return self._client.steady_read

    async def execute(self, command: bytes, *, timeout_s: float | None = None) -> Reply:
        """Execute a command, once; see `ServiceClient.execute`."""
        return await self._client.execute(within(self._rights, command), timeout_s=timeout_s)

    async def query(self, query: bytes, *, read: Freshness | None = None, timeout_s: float | None = None) -> Reply:
        """Return the answer to a query; see `ServiceClient.query`."""
        return await self._client.query(within(self._rights, query), read=read, timeout_s=timeout_s)
