"""etcd's API by its messages, for tests: calls that block, and watches."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc

from rsm_spark.map.etcd import etcd_pb2 as pb

CALL_S = 60.0


class EtcdFailure(NamedTuple):
    """What a refused call was told."""

    code: str
    text: str


_KINDS: dict[str, tuple[str, Any]] = {
    "Range": ("KV", pb.RangeResponse),
    "Put": ("KV", pb.PutResponse),
    "DeleteRange": ("KV", pb.DeleteRangeResponse),
    "Txn": ("KV", pb.TxnResponse),
    "Compact": ("KV", pb.CompactionResponse),
    "LeaseGrant": ("Lease", pb.LeaseGrantResponse),
    "LeaseRevoke": ("Lease", pb.LeaseRevokeResponse),
    "LeaseTimeToLive": ("Lease", pb.LeaseTimeToLiveResponse),
    "LeaseLeases": ("Lease", pb.LeaseLeasesResponse),
    "MemberList": ("Cluster", pb.MemberListResponse),
    "Status": ("Maintenance", pb.StatusResponse),
    "Alarm": ("Maintenance", pb.AlarmResponse),
    "Hash": ("Maintenance", pb.HashResponse),
    "HashKV": ("Maintenance", pb.HashKVResponse),
    "Defragment": ("Maintenance", pb.DefragmentResponse),
    "Authenticate": ("Auth", pb.AuthenticateResponse),
    "AuthStatus": ("Auth", pb.AuthStatusResponse),
    "UserAdd": ("Auth", pb.AuthStatusResponse),
    "MemberAdd": ("Cluster", pb.MemberListResponse),
    "Lock": ("v3lockpb.Lock", pb.LockResponse),
    "Unlock": ("v3lockpb.Lock", pb.UnlockResponse),
    "Campaign": ("v3electionpb.Election", pb.CampaignResponse),
    "Proclaim": ("v3electionpb.Election", pb.ProclaimResponse),
    "Resign": ("v3electionpb.Election", pb.ResignResponse),
    "Leader": ("v3electionpb.Election", pb.LeaderResponse),
}


class EtcdCalls:
    """A connection to one endpoint.

    Args:
        address: "host:port".
        token: Sent with each call, as etcd's clients do; "" = none.
        credentials: Of the channel; None = plain.

    """

    def __init__(self, address: str, token: str = "", credentials: grpc.ChannelCredentials | None = None) -> None:
        options = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._metadata = (("token", token),) if token else ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def call(self, method: str, request: Any) -> Any:
        """Return the answer, or an `EtcdFailure`."""
        try:
            return self.begin(method, request).result()
        except grpc.RpcError as error:
            return EtcdFailure(error.code().name, error.details() or "")

    def begin(self, method: str, request: Any) -> Any:
        """Return the call, under way: its `result` blocks, its `cancel` gives it up."""
        service, kind = _KINDS[method]
        call = self._channel.unary_unary(
            f"/{service if '.' in service else f'etcdserverpb.{service}'}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=kind.FromString,
        )
        return call.future(request, timeout=CALL_S, metadata=self._metadata)

    # ---- short forms

    def put(self, key: bytes, value: bytes, **more: Any) -> Any:
        return self.call("Put", pb.PutRequest(key=key, value=value, **more))

    def get(self, key: bytes, range_end: bytes = b"", **more: Any) -> Any:
        return self.call("Range", pb.RangeRequest(key=key, range_end=range_end, **more))

    def stream(self, key: bytes, range_end: bytes = b"", **more: Any) -> Any:
        """Read a range in parts; return them, or an `EtcdFailure`."""
        request = pb.RangeRequest(key=key, range_end=range_end, **more)
        try:
            return [part.range_response for part in self.begin_stream(request)]
        except grpc.RpcError as error:
            return EtcdFailure(error.code().name, error.details() or "")

    def begin_stream(self, request: pb.RangeRequest) -> Any:
        """Return the parts of a range as they come; its `cancel` gives it up."""
        call = self._channel.unary_stream(
            "/etcdserverpb.KV/RangeStream",
            request_serializer=pb.RangeRequest.SerializeToString,
            response_deserializer=pb.RangeStreamResponse.FromString,
        )
        return call(request, timeout=CALL_S, metadata=self._metadata)

    def delete(self, key: bytes, range_end: bytes = b"", **more: Any) -> Any:
        return self.call("DeleteRange", pb.DeleteRangeRequest(key=key, range_end=range_end, **more))

    def watch(self) -> EtcdWatches:
        """Open a stream of watches."""
        return EtcdWatches(self._channel, self._metadata)

    def keep_alive(self, leases: list[int]) -> list[Any]:
        """Keep leases; return the answers."""
        call = self._channel.stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=pb.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=pb.LeaseKeepAliveResponse.FromString,
        )
        asked = iter([pb.LeaseKeepAliveRequest(id=lease) for lease in leases])
        return list(call(asked, timeout=CALL_S, metadata=self._metadata))


class EtcdWatches:
    """A stream of watches: `send` requests, `receive` responses."""

    def __init__(self, channel: grpc.Channel, metadata: Any) -> None:
        self._requests: queue.Queue[Any] = queue.Queue()
        call = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )
        self._call = call(self._sent(), metadata=metadata)
        self._received: queue.Queue[Any] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _sent(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        try:
            for response in self._call:
                self._received.put(response)
        except grpc.RpcError as error:
            self._received.put(EtcdFailure(error.code().name, error.details() or ""))

    def create(self, key: bytes, range_end: bytes = b"", **more: Any) -> None:
        created = pb.WatchCreateRequest(key=key, range_end=range_end, **more)
        self._requests.put(pb.WatchRequest(create_request=created))

    def cancel(self, watch_id: int) -> None:
        self._requests.put(pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=watch_id)))

    def ask_progress(self) -> None:
        self._requests.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    def receive(self, timeout_s: float = CALL_S) -> Any:
        """Return the next response, or the failure that ended the stream."""
        return self._received.get(timeout=timeout_s)

    def events(self, count: int, timeout_s: float = CALL_S) -> list[Any]:
        """Return so many events, in order, of responses that hold some."""
        found: list[Any] = []
        while len(found) < count:
            response = self.receive(timeout_s)
            assert not isinstance(response, EtcdFailure), response
            assert not response.canceled, response
            found += response.events
        assert len(found) == count
        return found

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._reader.join(10)
