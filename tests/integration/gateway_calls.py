"""Calls of a gateway over gRPC, as any program makes them from `logs.proto`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from rsm_spark.gateway import logs_pb2 as pb

_STREAMS = ("Read", "Tail")
_ANSWERS = {"Describe": pb.LogDescription}


class GatewayRpc:
    """A connection to one gateway.

    Args:
        address: Of its gRPC.
        token: Who calls; "" = nobody.
        credentials: Of TLS; None = in plain text.

    """

    def __init__(self, address: str, token: str = "", credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.channel.close()

    def call(self, method: str, **fields: Any) -> Any:
        """Call a method: to be awaited, or a stream of answers to iterate over."""
        return self.send(method, getattr(pb, f"{method}Request")(**fields).SerializeToString())

    def send(self, method: str, text: bytes) -> Any:
        """Send bytes as the request of a method."""
        channel: Any = self.channel  # Of bytes, which its types do not know.
        path, rest = f"/rsm.logs.v1.Logs/{method}", {"timeout": 60, "metadata": self._metadata}
        if method in _STREAMS:
            return channel.unary_stream(path, response_deserializer=pb.Records.FromString)(text, **rest)
        kind = _ANSWERS.get(method) or getattr(pb, f"{method}Answer")
        return channel.unary_unary(path, response_deserializer=kind.FromString)(text, **rest)

    async def append(self, log: str, producer: str, sequence: int, *texts: str, **more: Any) -> Any:
        """Append records of a producer."""
        records = [pb.NewRecord(payload=text.encode()) for text in texts]
        return await self.call("Append", log=log, producer=producer, sequence=sequence, records=records, **more)

    async def texts(self, log: str, **more: Any) -> list[str]:
        """Return the payloads of a page, as text."""
        return [one.payload.decode() async for piece in self.call("Read", log=log, **more) for one in piece.records]


def refusal(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    """Return the status of a refused call, and its reason."""
    return error.code().name, dict(error.trailing_metadata() or ()).get("rsm-reason", "")  # type: ignore[return-value]
