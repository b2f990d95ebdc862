"""Ways into one map, for callers that keep what they asked and heard: the framed port, gRPC, and etcd's API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import grpc
import grpc.aio

from rsm_spark.errors import NoLeaderError, OutcomeUnknownError
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.etcd import errors as etcd_errors
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.testing.history import CallerCall, CallerReply, Kind

COUNTER = b"counter-"
"""Keys that begin so hold a number, as text."""
DOORS = ("framed", "grpc", "etcd")
_CONNECT_S = 1.0
_KV = "/etcdserverpb.KV/"


class MapDoor(Protocol):
    """Asks a map what a call says.

    Attributes:
        can_increment: Whether it knows that operation.

    """

    can_increment: bool

    async def ask(self, call: CallerCall, timeout_s: float) -> CallerReply:
        """Carry out a call.

        Raises:
            NoLeaderError, NotLeaderError: Certainly not applied.
            OutcomeUnknownError: Perhaps applied.

        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class ClientDoor:
    """The map's own client, over the framed port or over gRPC."""

    can_increment = True

    def __init__(self, client: MapClient) -> None:
        self.client = client

    async def close(self) -> None:
        await self.client.close()

    async def ask(self, call: CallerCall, timeout_s: float) -> CallerReply:
        client, key = self.client, cast("bytes", call.key)
        argument, expected = cast("Any", call.argument), cast("Any", call.expected)
        match call.kind:
            case Kind.PUT:
                return CallerReply(revision=await client.put(key, argument, timeout_s=timeout_s))
            case Kind.DELETE:
                revision = await client.delete(key, timeout_s=timeout_s)
                return CallerReply(done=revision is not None, revision=revision)
            case Kind.COMPARE_AND_SET:
                done = await client.compare_and_set(key, expected=expected, value=argument, timeout_s=timeout_s)
                return CallerReply(done=done.succeeded, revision=done.revision)
            case Kind.INCREMENT:
                value, revision = await client.increment(key, argument, timeout_s=timeout_s)
                return CallerReply(value=value, revision=revision)
        found = await client.get(key, timeout_s=timeout_s)
        return _absent() if found is None else CallerReply(value=_held(key, found.value), revision=found.revision)


class EtcdDoor:
    """etcd's API of any replica; it goes on to the next one when one does not answer.

    Args:
        addresses: Of the replicas.
        turn: Which of them is asked first.

    """

    can_increment = False

    def __init__(self, addresses: Sequence[str], turn: int) -> None:
        options = [("grpc.max_reconnect_backoff_ms", 500), ("grpc.use_local_subchannel_pool", 1)]
        credentials, token = _from_environment()
        make: Callable[[str], grpc.aio.Channel] = lambda address: (
            grpc.aio.insecure_channel(address, options)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options)
        )
        self._channels: list[Any] = [make(address) for address in addresses]
        self._metadata = (("token", token),) if token else ()
        self._turn = turn

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    async def ask(self, call: CallerCall, timeout_s: float) -> CallerReply:
        key = cast("bytes", call.key)
        match call.kind:
            case Kind.PUT:
                put = pb.PutRequest(key=key, value=_text(call.argument))
                return CallerReply(revision=(await self._call("Put", put, pb.PutResponse, timeout_s)).header.revision)
            case Kind.DELETE:
                delete = pb.DeleteRangeRequest(key=key)
                told = await self._call("DeleteRange", delete, pb.DeleteRangeResponse, timeout_s)
                return CallerReply(done=told.deleted == 1, revision=told.header.revision if told.deleted else None)
            case Kind.COMPARE_AND_SET:
                return _compared(await self._call("Txn", _compare(call, key), pb.TxnResponse, timeout_s))
        assert call.kind is Kind.GET
        told = await self._call("Range", pb.RangeRequest(key=key), pb.RangeResponse, timeout_s)
        if not told.kvs:
            return _absent()
        return CallerReply(value=_held(key, told.kvs[0].value), revision=told.kvs[0].mod_revision)

    async def _call(self, method: str, request: Any, kind: Any, timeout_s: float) -> Any:
        turn = self._turn
        channel = self._channels[turn % len(self._channels)]
        try:
            async with asyncio.timeout(_CONNECT_S):
                await channel.channel_ready()
        except TimeoutError:
            self._leave(turn)
            raise NoLeaderError(f"{method}: not sent: nobody listens") from None
        call = channel.unary_unary(_KV + method, type(request).SerializeToString, kind.FromString)
        try:
            return await call(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            self._leave(turn)
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise
            if error.details() == etcd_errors.NO_LEADER:
                raise NoLeaderError(f"{method}: {error.details()}") from None
            raise OutcomeUnknownError(f"{method}: {error.code().name} {error.details()}") from None

    def _leave(self, turn: int) -> None:
        self._turn = turn + 1


async def open_door(
    name: str,
    number: int,
    metadata_uri: str,
    log: str,
    *,
    read_from: str = "leader",
    etcd_addresses: Sequence[str] = (),
) -> MapDoor:
    """Return a caller's way to the map."""
    if name == "etcd":
        return EtcdDoor(etcd_addresses, number)
    ways: Any = read_from, name
    return ClientDoor(await MapClient.connect(log, metadata_uri, read_from=ways[0], transport=ways[1]))


def _absent() -> CallerReply:
    return CallerReply(value=None, revision=0)


def _held(key: bytes, text: bytes) -> bytes | int:
    return int(text) if key.startswith(COUNTER) else text


def _text(value: Any) -> bytes:
    return b"%d" % value if isinstance(value, int) else value


def _compare(call: CallerCall, key: bytes) -> Any:
    """Return a compare-and-set as a transaction, which tells what it found instead."""
    if call.expected is None:
        compare = pb.Compare(key=key, result=pb.Compare.EQUAL, target=pb.Compare.CREATE, create_revision=0)
    elif call.by_revision:
        revision = cast("int", call.expected)
        compare = pb.Compare(key=key, result=pb.Compare.EQUAL, target=pb.Compare.MOD, mod_revision=revision)
    else:
        value = _text(call.expected)
        compare = pb.Compare(key=key, result=pb.Compare.EQUAL, target=pb.Compare.VALUE, value=value)
    if call.argument is None:
        change = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
    else:
        change = pb.RequestOp(request_put=pb.PutRequest(key=key, value=_text(call.argument)))
    found = pb.RequestOp(request_range=pb.RangeRequest(key=key))
    return pb.TxnRequest(compare=[compare], success=[change], failure=[found])


def _compared(told: Any) -> CallerReply:
    (answer,) = told.responses
    if not told.succeeded:
        found = answer.response_range.kvs
        return CallerReply(done=False, revision=found[0].mod_revision if found else 0)
    is_changed = answer.WhichOneof("response") == "response_put" or answer.response_delete_range.deleted > 0
    return CallerReply(revision=told.header.revision if is_changed else 0)


def _from_environment() -> tuple[grpc.ChannelCredentials | None, str]:
    """Return credentials and token, as the map's own client finds them."""
    authority, token = os.environ.get("RSM_STORE__TLS_CA"), os.environ.get("RSM_STORE__TOKEN_FILE")
    credentials = grpc.ssl_channel_credentials(Path(authority).read_bytes()) if authority else None
    return credentials, Path(token).read_text().strip() if token else ""
