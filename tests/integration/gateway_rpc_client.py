"""A program's client of gateways over gRPC: goes on through failovers, with the producer of the client over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from rsm_spark.gateway import logs_pb2 as pb
from rsm_spark.gateway_client.producer import GatewayProducer
from rsm_spark.gateway_client.shapes import AppendBody
from tests.integration.gateway_calls import GatewayRpc, refusal

_PAUSE_S = 0.1
_PASSING = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})
"""The same may be sent again, to any gateway: see docs/logs-grpc.md."""


class GatewayRpcClient:
    """Asks any of some gateways, and the one that writes a log for appends to it.

    Args:
        addresses: Of their gRPC.

    Attributes:
        resent_count: Calls that were sent again.
        sent_on_count: Calls that another gateway was named for.

    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)
        self._gateways = {address: GatewayRpc(address) for address in addresses}
        self._writer: str | None = None
        self._turn = 0
        self.resent_count = 0
        self.sent_on_count = 0

    async def close(self) -> None:
        for one in self._gateways.values():
            await one.channel.close()

    @property
    def _any(self) -> str:
        return self._addresses[self._turn % len(self._addresses)]

    async def _call(self, method: str, **fields: Any) -> Any:
        """Call a method until it is answered."""
        while True:
            asked = self._writer or self._any
            try:
                return await self._gateways[asked].call(method, **fields)
            except grpc.aio.AioRpcError as error:
                code, reason = refusal(error)
                if reason == "written-elsewhere":
                    self.sent_on_count += 1
                    writer = dict(error.trailing_metadata() or ()).get("rsm-grpc-writer")
                    self._writer = writer if writer in self._gateways and writer != asked else None
                elif code in _PASSING:
                    self.resent_count += 1
                    self._writer = None
                    self._turn += 1
                else:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def create(self, log: str, *, partitions: int | None = None) -> None:
        await self._call("Create", log=log, partitions=partitions or 0)

    def producer(self, log: str, name: str) -> GatewayProducer:
        async def send(body: AppendBody) -> list[int]:
            records = [pb.NewRecord(payload=one.payload or b"", key=one.key) for one in body.records]
            where = {} if body.partition is None else {"partition": body.partition, "partitions": body.partitions}
            answer = await self._call(
                "Append", log=log, producer=body.producer, sequence=body.sequence, records=records, **where
            )
            assert answer.WhichOneof("outcome") == "appended", "it does not grow"
            return list(answer.appended.positions)

        async def count_partitions() -> int | None:
            return (await self._call("Describe", log=log)).partition_count or None

        return GatewayProducer(name, send, count_partitions)

    async def tail(self, log: str, start: str) -> AsyncIterator[Any]:
        """Iterate over the records from a place on, without an end."""
        while True:
            turn = self._turn
            try:
                async for piece in self._gateways[self._any].call("Tail", log=log, start=start):
                    for record in piece.records:
                        yield record
                    start = piece.next
            except grpc.aio.AioRpcError as error:
                if error.code().name not in _PASSING:
                    raise
            self._turn += turn == self._turn  # Unless a call has gone on meanwhile.
            await asyncio.sleep(_PAUSE_S)
