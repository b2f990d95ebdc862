"""The client of any service for programs without an event loop.

    from rsm_spark.client.blocking import BlockingServiceClient

    with BlockingServiceClient.connect("bank") as bank:
        left = bank.call(Bank.transfer, "ann", "bob", 5)

Same calls, same errors as `rsm_spark.client.service_client.ServiceClient`; any number of threads may use one client at
once, and calls that wait together travel together.

Written by tools/generate_blocking.py: `make blocking` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from rsm_spark.client.blocking_base import BlockingServiceBase
from rsm_spark.client.replica_connection import ReadFrom
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.client.service_client import Reply, ServiceClient
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.freshness import Freshness
from rsm_spark.core.operation import StreamLimits
from rsm_spark.errors import RsmError
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import Transport

__all__ = ["BlockingServiceClient"]


class BlockingServiceClient(BlockingServiceBase):
    """`ServiceClient` for code that blocks."""

    @property
    def revision(self) -> int:
        """Highest revision that any answer has named: what a session read is at least as new as."""
        return self.asynchronous.revision

    @property
    def steady_read(self) -> Freshness:
        """Freshness with which reads are answered by one replica, the same as long as it leads, or is the only one."""
        return self.asynchronous.steady_read

    @classmethod
    def connect(
        cls,
        log: str,
        metadata_uri: str | None = None,
        *,
        replica: str | None = None,
        read_from: ReadFrom = "leader",
        read: Freshness | None = None,
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
        limits: StreamLimits | None = None,
        security: Security | None = None,
        transport: Transport | None = None,
        machine: str | None = None,
    ) -> Self:
        """Return a client of the service whose log has this name. See `ServiceClient.connect`."""
        return cls(
            lambda: ServiceClient.connect(
                log,
                metadata_uri,
                replica=replica,
                read_from=read_from,
                read=read,
                rsm_root=rsm_root,
                timeout_s=timeout_s,
                limits=limits,
                security=security,
                transport=transport,
                machine=machine,
            )
        )

    def execute(self, command: bytes, *, timeout_s: float | None = None) -> Reply:
        """Execute a command, once; return what the machine replied."""
        return self.thread.run(self.asynchronous.execute(command, timeout_s=timeout_s))

    def execute_many(self, commands: Iterable[bytes], *, timeout_s: float | None = None) -> list[Reply]:
        """Execute commands in this order, pipelined; each is a command of its own. See `ServiceClient.execute_many`."""
        return self.thread.run(self.asynchronous.execute_many(list(commands), timeout_s=timeout_s))

    def execute_each(self, commands: Iterable[bytes], *, timeout_s: float | None = None) -> list[Reply | RsmError]:
        """Execute commands in this order, pipelined; return of each its reply, or why it has none."""
        return self.thread.run(self.asynchronous.execute_each(list(commands), timeout_s=timeout_s))

    def query(self, query: bytes, *, read: Freshness | None = None, timeout_s: float | None = None) -> Reply:
        """Return the answer to a read; linearizable unless `read`, here or of the client, is content with less."""
        return self.thread.run(self.asynchronous.query(query, read=read, timeout_s=timeout_s))

    @property
    def address(self) -> str:
        """Address of the replica in use; "" while not connected."""
        return self.asynchronous.address
