"""etcd's v3 API as a port of a replica of the map: `rsm store run --etcd-port 2379`."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from ledger.errors import LedgerError
from ledger.rights.table import Right
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import Call, CallHandlers, abort, parsed
from rsm_spark.map.etcd.cluster_service import EtcdClusterService, not_served
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.map.etcd.lease_service import EtcdLeaseService
from rsm_spark.map.etcd.ranges import ANSWER_BYTES_MAX
from rsm_spark.map.etcd.watch_service import EtcdWatchService
from rsm_spark.map.etcd.work_bounds import WorkBounds
from rsm_spark.map.scopes import MapScopes
from rsm_spark.transport.guarded_port import GuardedPort
from rsm_spark.transport.security import Security

_PACKAGE = "etcdserverpb"
_TOKEN_KEY = "token"  # noqa: S105 - the name of the metadata
_RECEIVED_BYTES_MAX = 4 * 1024 * 1024
_SENT_BYTES_MAX = 2 * ANSWER_BYTES_MAX
_DRAIN_S = 2.0

_MEMBERS = ("MemberAdd", "MemberRemove", "MemberUpdate", "MemberPromote")
_USERS = (
    "AuthEnable", "AuthDisable", "UserAdd", "UserGet", "UserList", "UserDelete", "UserChangePassword", "UserGrantRole",
    "UserRevokeRole", "RoleAdd", "RoleGet", "RoleList", "RoleDelete", "RoleGrantPermission", "RoleRevokePermission",
)  # fmt: skip
_NOT_SERVED: dict[str, dict[str, str]] = {
    "KV": {"RangeStream": "streams of ranges"},
    "Cluster": dict.fromkeys(_MEMBERS, "replicas come and go with their processes (rsm store run)"),
    "Maintenance": {
        "Snapshot": "a file of etcd's own storage (rsm backup create makes a copy)",
        "MoveLeader": "the choice of a leader",
        "Downgrade": "downgrades (rsm log raise-version tells of versions)",
    },
    "Auth": dict.fromkeys(_USERS, "users and roles stand in the file of principals (docs/security.md)"),
}


class _Served(NamedTuple):
    kind: type[Message]
    call: Call
    right: Right


class EtcdServer:
    """See the module. The port is bound first; it serves from `start` on.

    Args:
        backend: The map.
        scopes: Of its keys.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS, token, principals.
        connections_max: At once.
        ports: Number of ports that share the open files of the process.

    Attributes:
        address: "host:port".
        port: The port itself: its guard and its connections.
        watches: The watches under way.

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file of theirs cannot be used.
        RsmError: The port is taken.

    """

    def __init__(
        self,
        backend: EtcdBackend,
        scopes: MapScopes,
        *,
        bind: str,
        port: int,
        security: Security,
        connections_max: int,
        ports: int,
    ) -> None:
        self._backend = backend
        self.port = GuardedPort(
            f"etcd's API of log {backend.log}",
            option="--etcd-port",
            bind=bind,
            port=port,
            security=security,
            connections_max=connections_max,
            ports=ports,
            received_bytes_max=_RECEIVED_BYTES_MAX,
            sent_bytes_max=_SENT_BYTES_MAX,
            token_key=_TOKEN_KEY,
            open_methods=frozenset({f"/{_PACKAGE}.Auth/Authenticate"}),
        )
        self.address = self.port.address
        self._handlers = CallHandlers(backend.log, scopes, self.port.guard, WorkBounds())
        self._kv = EtcdKvService(backend)
        self._leases = EtcdLeaseService(backend)
        self.watches = EtcdWatchService(backend)
        self._cluster = EtcdClusterService(backend, self.port.guard, "http" if security.tls_cert is None else "https")
        self._add_keys()
        self._add_cluster()

    async def start(self) -> None:
        """Take calls; the replica has its state."""
        await self._backend.start()
        await self.port.start()

    async def stop(self) -> None:
        """Take nothing more in, and give up what is under way."""
        await self.port.stop(_DRAIN_S)
        await self._backend.stop()

    def _add_keys(self) -> None:
        kv, leases = self._kv, self._leases
        read, write = Right.STATE_READ, Right.STATE_WRITE
        self._add(
            "KV",
            {
                "Range": _Served(pb.RangeRequest, kv.range, read),
                "Put": _Served(pb.PutRequest, kv.put, write),
                "DeleteRange": _Served(pb.DeleteRangeRequest, kv.delete_range, write),
                "Txn": _Served(pb.TxnRequest, kv.txn, read),  # That it may write is looked at where it does.
                "Compact": _Served(pb.CompactionRequest, kv.compact, write),
            },
        )
        keep = f"/{_PACKAGE}.Lease/LeaseKeepAlive"
        self._add(
            "Lease",
            {
                "LeaseGrant": _Served(pb.LeaseGrantRequest, leases.grant, write),
                "LeaseRevoke": _Served(pb.LeaseRevokeRequest, leases.revoke, write),
                "LeaseTimeToLive": _Served(pb.LeaseTimeToLiveRequest, leases.time_to_live, read),
                "LeaseLeases": _Served(pb.LeaseLeasesRequest, leases.leases, read),
            },
            {"LeaseKeepAlive": (leases.keep_alive_handler(keep, self._handlers), write)},
        )
        watch = f"/{_PACKAGE}.Watch/Watch"
        self._add("Watch", {}, {"Watch": (self.watches.handler(watch, self._handlers), read)})

    def _add_cluster(self) -> None:
        cluster = self._cluster
        self._add("Cluster", {"MemberList": _Served(pb.MemberListRequest, cluster.member_list, Right.STATUS)})
        self._add(
            "Maintenance",
            {
                "Alarm": _Served(pb.AlarmRequest, cluster.alarm, Right.STATUS),
                "Status": _Served(pb.StatusRequest, cluster.status, Right.STATUS),
                "Defragment": _Served(pb.DefragmentRequest, cluster.defragment, Right.STATUS),
                "Hash": _Served(pb.HashRequest, cluster.hash, Right.STATE_READ),
                "HashKV": _Served(pb.HashKVRequest, cluster.hash_kv, Right.STATE_READ),
            },
        )
        self._add(
            "Auth",
            {"AuthStatus": _Served(pb.AuthStatusRequest, cluster.auth_status, Right.STATUS)},
            {"Authenticate": (grpc.unary_unary_rpc_method_handler(self._authenticate), Right.STATUS)},
        )

    async def _authenticate(self, text: bytes, context: Any) -> bytes:
        try:
            return self._cluster.authenticate(parsed(pb.AuthenticateRequest, text)).SerializeToString()
        except (RsmError, LedgerError) as error:
            await abort(context, error)
            raise

    def _add(
        self,
        service: str,
        served: dict[str, _Served],
        streams: dict[str, tuple[grpc.RpcMethodHandler[bytes, bytes], Right]] | None = None,
    ) -> None:
        """Serve a service: calls, streams, and in words what it has no answers for."""
        name = f"{_PACKAGE}.{service}"
        handlers = {
            method: self._handlers.unary(f"/{name}/{method}", one.kind, one.call) for method, one in served.items()
        }
        rights = {method: one.right for method, one in served.items()}
        for method, (handler, right) in (streams or {}).items():
            handlers[method], rights[method] = handler, right
        for method, why in _NOT_SERVED.get(service, {}).items():
            handlers[method], rights[method] = grpc.stream_stream_rpc_method_handler(_refusing(why)), Right.STATUS
        self.port.add_service(name, handlers, rights)


def _refusing(what: str) -> Any:
    async def refuse(_requests: Any, context: Any) -> None:
        await abort(context, not_served(what))

    return refuse
