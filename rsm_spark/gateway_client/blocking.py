"""The client of gateways of logs for programs without an event loop.

    from rsm_spark.gateway_client.blocking import BlockingLogGatewayClient

    with BlockingLogGatewayClient.connect(["http://127.0.0.1:8090"]) as client:
        client.producer("visits").append(b"page=/")
        for record in client.tail("visits", "begin"):
            print(record.place, record.payload)

Same calls, same errors as `rsm_spark.gateway_client.client.LogGatewayClient`; any number of threads may use one client
at once.

Written by tools/generate_blocking.py: `make blocking` writes it anew.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ledger.blocking_base import BlockingCalls
from ledger.tls import TlsSettings
from rsm_spark.core.writer_marks import MarkedReply, WriterMark
from rsm_spark.gateway_client.blocking_base import BlockingGatewayBase
from rsm_spark.gateway_client.client import TIMEOUT_S, LogGatewayClient, TailedRecord
from rsm_spark.gateway_client.producer import AppendedPlace, GatewayProducer
from rsm_spark.gateway_client.shapes import RecordsPage

__all__ = ["BlockingGatewayProducer", "BlockingLogGatewayClient"]


class BlockingGatewayProducer(BlockingCalls[GatewayProducer]):
    """`GatewayProducer` for code that blocks."""

    @property
    def producer(self) -> str:
        """The same."""
        return self.asynchronous.producer

    def append(self, payload: bytes, *, key: bytes | None = None) -> AppendedPlace:
        """Append a record; see `append_many`."""
        return self.thread.run(self.asynchronous.append(payload, key=key))

    def append_many(
        self, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = None
    ) -> list[AppendedPlace]:
        """Append records, in their order; return their places when they are in the log.

        See `GatewayProducer.append_many`.
        """
        return self.thread.run(self.asynchronous.append_many(payloads, keys=keys))

    def settle(self) -> None:
        """Send what is open until it is answered; see `append_many`."""
        self.thread.run(self.asynchronous.settle())


class BlockingLogGatewayClient(BlockingGatewayBase):
    """`LogGatewayClient` for code that blocks."""

    @classmethod
    def connect(
        cls,
        urls: Sequence[str],
        *,
        token: str = "",
        token_file: Path | str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | TlsSettings | None = None,
    ) -> Self:
        """Return a client. Nothing is sent before it is asked for something. See `LogGatewayClient.connect`."""
        return cls(
            lambda: LogGatewayClient.connect(urls, token=token, token_file=token_file, timeout_s=timeout_s, tls=tls)
        )

    def producer(self, log: str, producer: str = "") -> BlockingGatewayProducer:
        """Return a new producer of a log. See `LogGatewayClient.producer`."""
        return BlockingGatewayProducer(self.thread, self.thread.ask(lambda: self.asynchronous.producer(log, producer)))

    def write_marked(
        self,
        log: str,
        mark: WriterMark,
        payloads: Sequence[bytes] = (),
        *,
        keys: Sequence[bytes | None] | None = None,
        txids: Sequence[int] | None = None,
        timeout_s: float | None = None,
    ) -> MarkedReply:
        """Append rows of a writer's batch, once, however often they are sent; or end a batch that came in chunks.

        See `LogGatewayClient.write_marked`.
        """
        return self.thread.run(
            self.asynchronous.write_marked(log, mark, payloads, keys=keys, txids=txids, timeout_s=timeout_s)
        )

    def page(self, log: str, start: int | str = "begin", *, limit: int = 1_000, wait_s: float = 0.0) -> RecordsPage:
        """Return a page of records, and where the next one begins. See `LogGatewayClient.page`."""
        return self.thread.run(self.asynchronous.page(log, start, limit=limit, wait_s=wait_s))

    def tail(self, log: str, start: int | str = "end", *, behind: str = "") -> Iterator[TailedRecord]:
        """Iterate over the records of a log, and wait for those to come: each once, in order, through failovers.

        See `LogGatewayClient.tail`.
        """
        return self.thread.iterate(self.asynchronous.tail(log, start, behind=behind))

    def logs(self, prefix: str = "") -> list[str]:
        """Return the names of the logs that the caller may touch, ascending."""
        return self.thread.run(self.asynchronous.logs(prefix))

    def info(self, log: str) -> dict[str, Any]:
        """Return what is known of a log without reading it, as `rsm log info --json` shows it.

        See `LogGatewayClient.info`.
        """
        return self.thread.run(self.asynchronous.info(log))

    def create(
        self,
        log: str,
        *,
        retention_s: float | None = None,
        retention_bytes: int | None = None,
        until_read: bool = False,
        partitions: int | None = None,
    ) -> None:
        """Make a log, with limits of what it keeps; one that is there stays as it is. See `Logs.create`."""
        self.thread.run(
            self.asynchronous.create(
                log,
                retention_s=retention_s,
                retention_bytes=retention_bytes,
                until_read=until_read,
                partitions=partitions,
            )
        )

    def grow(self, log: str, partitions: int) -> None:
        """Give a partitioned log more partitions."""
        self.thread.run(self.asynchronous.grow(log, partitions))

    def truncate(self, log: str, position: int) -> None:
        """Let go of all records up to a position."""
        self.thread.run(self.asynchronous.truncate(log, position))

    def delete(self, log: str) -> None:
        """Delete a log with all that it holds. See `LogGatewayClient.delete`."""
        self.thread.run(self.asynchronous.delete(log))
