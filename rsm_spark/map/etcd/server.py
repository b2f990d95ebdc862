"""etcd's v3 API as a port of a replica of the map, `rsm store run --etcd-port 2379`, and as JSON on another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc

from ledger.errors import LedgerError
from ledger.rights.table import Right
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd import etcd_pb2 as pb
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import CallHandlers, abort, parsed
from rsm_spark.map.etcd.cluster_service import EtcdClusterService, not_served
from rsm_spark.map.etcd.election_service import EtcdElectionService
from rsm_spark.map.etcd.json_port import EtcdJsonPort
from rsm_spark.map.etcd.key_queue import KeyQueue
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.map.etcd.lease_service import EtcdLeaseService
from rsm_spark.map.etcd.lock_service import EtcdLockService
from rsm_spark.map.etcd.methods import EtcdMethod, EtcdStream
from rsm_spark.map.etcd.range_streams import EtcdRangeService
from rsm_spark.map.etcd.snapshot_service import EtcdSnapshotService
from rsm_spark.map.etcd.watch_service import EtcdWatchService
from rsm_spark.map.etcd.work_bounds import WorkBounds
from rsm_spark.map.scopes import MapScopes
from rsm_spark.transport.http2_port import Http2Port
from rsm_spark.transport.security import Security

_PACKAGE = "etcdserverpb"
_TOKEN_KEY = "token"  # noqa: S105 - the name of the metadata
_RECEIVED_BYTES_MAX = 4 * 1024 * 1024
_DRAIN_S = 2.0

_MEMBERS = ("MemberAdd", "MemberRemove", "MemberUpdate", "MemberPromote")
_USERS = (
    "AuthEnable", "AuthDisable", "UserAdd", "UserGet", "UserList", "UserDelete", "UserChangePassword", "UserGrantRole",
    "UserRevokeRole", "RoleAdd", "RoleGet", "RoleList", "RoleDelete", "RoleGrantPermission", "RoleRevokePermission",
)  # fmt: skip
_NOT_SERVED: dict[str, dict[str, str]] = {
    "Cluster": dict.fromkeys(_MEMBERS, "replicas come and go with their processes (rsm store run)"),
    "Maintenance": {
        "MoveLeader": "the choice of a leader",
        "Downgrade": "downgrades (rsm log raise-version tells of versions)",
    },
    "Auth": dict.fromkeys(_USERS, "users and roles stand in the file of principals (docs/security.md)"),
}


class EtcdServer:
    """See the module. The port is bound first; it serves from `start` on.

    Args:
        backend: The map.
        scopes: Of its keys.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS, token, principals.
        connections_max: At once.
        json_port: Of the JSON gateway; 0 = the system chooses, None = there is none.
        ports: Number of ports that share the open files of the process.
        folder: Of the replica's data: for files while they are needed.

    Attributes:
        address: "host:port".
        port: The port itself: its guard and its connections.
        gateway: The same as JSON over HTTP; None = it is not served.
        watches: The watches under way.
        ranges: The ranges that are told in parts.

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
        folder: Path,
        json_port: int | None = None,
    ) -> None:
        self._backend = backend
        self._folder = folder
        self.port = Http2Port(
            f"etcd's API of log {backend.log}",
            option="--etcd-port",
            bind=bind,
            port=port,
            security=security,
            connections_max=connections_max,
            ports=ports,
            received_bytes_max=_RECEIVED_BYTES_MAX,
            token_key=_TOKEN_KEY,
            open_methods=frozenset({f"/{_PACKAGE}.Auth/Authenticate"}),
        )
        self.address = self.port.address
        bounds = WorkBounds()
        self._handlers = CallHandlers(backend.log, scopes, self.port.guard, bounds)
        self.gateway = None
        if json_port is not None:
            self.gateway = EtcdJsonPort(
                backend, scopes, bounds, bind=bind, port=json_port, security=security, ports=ports,
                connections_max=connections_max,
            )  # fmt: skip
        self._kv = EtcdKvService(backend)
        self.ranges = EtcdRangeService(backend, self._kv)
        self._leases = EtcdLeaseService(backend)
        self.watches = EtcdWatchService(backend)
        self._queue = KeyQueue(backend, self._kv, self._leases)
        scheme = "http" if security.tls_cert is None else "https"
        self._cluster = EtcdClusterService(backend, self._kv, self.port.guard, scheme)
        self._add_keys()
        self._add_queues()
        self._add_cluster()

    async def start(self) -> None:
        """Take calls; the replica has its state."""
        await self._backend.start()
        await self.port.start()
        if self.gateway is not None:
            await self.gateway.start()

    async def stop(self) -> None:
        """Take nothing more in, and give up what is under way."""
        if self.gateway is not None:
            await self.gateway.stop()
        await self.port.stop(_DRAIN_S)
        self._queue.close()
        self._kv.close()
        await self._backend.stop()

    def _add_keys(self) -> None:
        kv, leases = self._kv, self._leases
        read, write = Right.STATE_READ, Right.STATE_WRITE
        streams = self.ranges.handler(f"/{_PACKAGE}.KV/RangeStream", self._handlers)
        self._add(
            "KV",
            {
                "Range": EtcdMethod(pb.RangeRequest, kv.range, read, ("kv/range",), kv.range_text),
                "Put": EtcdMethod(pb.PutRequest, kv.put, write, ("kv/put",)),
                "DeleteRange": EtcdMethod(pb.DeleteRangeRequest, kv.delete_range, write, ("kv/deleterange",)),
                # That it may write is looked at where it does.
                "Txn": EtcdMethod(pb.TxnRequest, kv.txn, read, ("kv/txn",), kv.txn_text),
                "Compact": EtcdMethod(pb.CompactionRequest, kv.compact, write, ("kv/compaction",)),
                # As etcd has it, over gRPC alone.
                "RangeStream": EtcdStream(pb.RangeRequest, pb.RangeStreamResponse, streams, read),
            },
        )
        keep = leases.keep_alive_handler(f"/{_PACKAGE}.Lease/LeaseKeepAlive", self._handlers)
        ttl = EtcdMethod(
            pb.LeaseTimeToLiveRequest, leases.time_to_live, read, ("lease/timetolive", "kv/lease/timetolive")
        )
        self._add(
            "Lease",
            {
                "LeaseGrant": EtcdMethod(pb.LeaseGrantRequest, leases.grant, write, ("lease/grant",)),
                "LeaseRevoke": EtcdMethod(
                    pb.LeaseRevokeRequest, leases.revoke, write, ("lease/revoke", "kv/lease/revoke")
                ),
                "LeaseTimeToLive": ttl,
                "LeaseLeases": EtcdMethod(
                    pb.LeaseLeasesRequest, leases.leases, read, ("lease/leases", "kv/lease/leases")
                ),
                "LeaseKeepAlive": EtcdStream(
                    pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse, keep, write, ("lease/keepalive",)
                ),
            },
        )
        watch = self.watches.handler(f"/{_PACKAGE}.Watch/Watch", self._handlers)
        self._add(
            "Watch", {"Watch": EtcdStream(pb.WatchRequest, pb.WatchResponse, watch, read, ("watch",), is_held=True)}
        )

    def _add_queues(self) -> None:
        read, write = Right.STATE_READ, Right.STATE_WRITE
        locks = EtcdLockService(self._queue, self._kv)
        self._add(
            "v3lockpb.Lock",
            {
                "Lock": EtcdMethod(pb.LockRequest, locks.lock, write, ("lock/lock",)),
                "Unlock": EtcdMethod(pb.UnlockRequest, locks.unlock, write, ("lock/unlock",)),
            },
        )
        elections = EtcdElectionService(self._backend, self._queue, self.watches)
        observe = elections.observe_handler("/v3electionpb.Election/Observe", self._handlers)
        self._add(
            "v3electionpb.Election",
            {
                "Campaign": EtcdMethod(pb.CampaignRequest, elections.campaign, write, ("election/campaign",)),
                "Proclaim": EtcdMethod(pb.ProclaimRequest, elections.proclaim, write, ("election/proclaim",)),
                "Resign": EtcdMethod(pb.ResignRequest, elections.resign, write, ("election/resign",)),
                "Leader": EtcdMethod(pb.LeaderRequest, elections.leader, read, ("election/leader",)),
                "Observe": EtcdStream(pb.LeaderRequest, pb.LeaderResponse, observe, read, ("election/observe",)),
            },
        )

    def _add_cluster(self) -> None:
        cluster, status = self._cluster, Right.STATUS
        members = EtcdMethod(pb.MemberListRequest, cluster.member_list, status, ("cluster/member/list",))
        self._add("Cluster", {"MemberList": members})
        service = EtcdSnapshotService(self._backend, self._kv, self._leases, self._folder)
        snapshots = service.handler(f"/{_PACKAGE}.Maintenance/Snapshot", self._handlers)
        self._add(
            "Maintenance",
            {
                "Alarm": EtcdMethod(pb.AlarmRequest, cluster.alarm, status, ("maintenance/alarm",)),
                "Status": EtcdMethod(pb.StatusRequest, cluster.status, status, ("maintenance/status",)),
                "Defragment": EtcdMethod(pb.DefragmentRequest, cluster.defragment, status, ("maintenance/defragment",)),
                "Hash": EtcdMethod(pb.HashRequest, cluster.hash, Right.STATE_READ, ("maintenance/hash",)),
                "HashKV": EtcdMethod(pb.HashKVRequest, cluster.hash_kv, Right.STATE_READ, ("maintenance/hashkv",)),
                "Snapshot": EtcdStream(
                    pb.SnapshotRequest, pb.SnapshotResponse, snapshots, Right.STATE_READ, ("maintenance/snapshot",)
                ),
            },
        )
        self._add(
            "Auth",
            {"AuthStatus": EtcdMethod(pb.AuthStatusRequest, cluster.auth_status, status, ("auth/status",))},
            {"Authenticate": grpc.unary_unary_rpc_method_handler(self._authenticate)},
        )
        if self.gateway is not None:
            self.gateway.edge.add_open("auth/authenticate", pb.AuthenticateRequest, cluster.authenticate)

    async def _authenticate(self, text: bytes, context: Any) -> bytes:
        try:
            return self._cluster.authenticate(parsed(pb.AuthenticateRequest, text)).SerializeToString()
        except (RsmError, LedgerError) as error:
            await abort(context, error)
            raise

    def _add(
        self,
        service: str,
        methods: Mapping[str, EtcdMethod | EtcdStream],
        more: Mapping[str, grpc.RpcMethodHandler[bytes, bytes]] = MappingProxyType({}),
    ) -> None:
        """Serve a service, over gRPC and as JSON, and refuse in words what it has no answers for."""
        name = service if "." in service else f"{_PACKAGE}.{service}"
        rights = {method: one.right for method, one in methods.items()}
        handlers = {
            method: self._handlers.unary(f"/{name}/{method}", one.kind, one.text_call or one.call)
            if isinstance(one, EtcdMethod)
            else one.handler
            for method, one in methods.items()
        }
        for method, why in _NOT_SERVED.get(service, {}).items():
            handlers[method], rights[method] = grpc.stream_stream_rpc_method_handler(_refusing(why)), Right.STATUS
        self.port.add_service(name, handlers | dict(more), rights)
        if self.gateway is not None:
            self.gateway.edge.add(name, methods)


def _refusing(what: str) -> Any:
    async def refuse(_requests: Any, context: Any) -> None:
        await abort(context, not_served(what))

    return refuse
