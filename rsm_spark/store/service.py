"""One replica with its gRPC server: what `rsm store run` runs, and what a program embeds.

client = await LedgerClient.connect("zk+hierarchical://127.0.0.1:2181/ledgers")
async with StoreService(client, StoreSettings(log="orders", replica_id="a", data_dir=Path("/var/lib/orders"))) as store:
    print(store.address)
    await store.wait_stopped()
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError, UsageError
from rsm_spark.core.machine import StateMachine
from rsm_spark.errors import RsmError
from rsm_spark.grpc.peer_client import GrpcPeers
from rsm_spark.grpc.peer_service import PeerService
from rsm_spark.grpc.security import Security
from rsm_spark.grpc.server import ReplicaServer
from rsm_spark.grpc.watch_service import WatchService
from rsm_spark.log.discovery import Discovery
from rsm_spark.runtime import Replica, ReplicaSettings, Role
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.snapshots import SnapshotStore
from rsm_spark.snapshots.local import KEEP_MIN, LocalSnapshots
from rsm_spark.store.kv.machine import MapMachine

__all__ = [
    "QUARANTINE_FOLDER",
    "SNAPSHOTS_FOLDER",
    "StoreService",
    "StoreSettings",
    "advertised_address",
    "replica_status_json",
]

SNAPSHOTS_FOLDER = "snapshots"
QUARANTINE_FOLDER = "quarantine"
_EVIDENCE_MAX = 1_000_000  # Nothing removes evidence but its reader.
_NAME_BYTES_MAX = 200
_DRAIN_S = 5.0
_SUCCESSOR_S_MAX = 1.0
_SUCCESSOR_POLL_S = 0.05
_ANY_ADDRESSES = frozenset({"0.0.0.0", "::"})

_ADVERTISED = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica of the state store runs.

    Attributes:
        log: Name of its log: letters, digits, `.`, `_`, `-`.
        replica_id: Stable name of this replica within the log.
        data_dir: Its own folder; snapshots lie below it.
        bind: Address to listen on.
        port: 0 = the system chooses.
        advertise: "host" or "host:port" that clients use; "" = where it listens, and without a port that on which it
            listens. With TLS the certificate must name this host.
        security: TLS and token, for its server and for what it asks of other replicas.
        keep_snapshots: Whole local snapshots to keep.
        replica: See `ReplicaSettings`.

    """

    log: str
    replica_id: str
    data_dir: Path
    bind: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    security: Security = Security()
    keep_snapshots: int = KEEP_MIN
    replica: ReplicaSettings = ReplicaSettings()

    def __post_init__(self) -> None:
        """Refuse names that cannot be nodes and folders, and addresses that nobody can call.

        Raises:
            UsageError: A name is none.

        """
        for what, name in (("log", self.log), ("replica id", self.replica_id)):
            is_plain = name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum()
            if not is_plain or name.startswith(".") or len(name) > _NAME_BYTES_MAX:
                raise UsageError(
                    f"{what} {name!r}: use 1 to {_NAME_BYTES_MAX} letters, digits, '-', '_' and '.', not beginning "
                    "with '.'"
                )
        if self.bind in _ANY_ADDRESSES and not self.advertise:
            raise UsageError(f"--bind {self.bind} names no machine: tell clients what to call, --advertise HOST")
        if self.advertise and not _ADVERTISED.fullmatch(self.advertise):
            raise UsageError(f"--advertise {self.advertise!r}: expected HOST, or HOST:PORT")


class StoreService:
    """A replica of the map, or of another machine, and its server. For the event loop on which it is made.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: See `StoreSettings`.
        lake: Snapshots to boot from when there is no local one.
        machine: The state, empty; None = the map.

    Attributes:
        address: "host:port" that clients are told.
        http_address: "host:port" of the HTTP API beside it; "" = there is none.
        server: Its gRPC server; further services are added before `start`.
        replica: The replica; its role, revision, digest.
        feed: What it has applied, for any number of readers.
        watches: The streams of those who watch it.
        describe: Returns what `status_json` shows beside the replica; set it before `start`.
        successor_http: Address of the HTTP API of the replica that leads instead, once this one is about to stop;
            "" = not known.

    Raises:
        RsmError: The port is taken, or not on loopback.

    """

    def __init__(
        self,
        client: LedgerClient,
        settings: StoreSettings,
        *,
        lake: SnapshotStore | None = None,
        machine: StateMachine | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._snapshots = LocalSnapshots(settings.data_dir / SNAPSHOTS_FOLDER, keep=settings.keep_snapshots)
        self.server = ReplicaServer(settings.log, bind=settings.bind, port=settings.port, security=settings.security)
        self.address = advertised_address(settings.advertise, self.server.address)
        self.http_address = ""
        self.successor_http = ""
        self.describe: Callable[[], dict[str, Any]] = dict
        machine = MapMachine() if machine is None else machine
        self.replica = Replica(
            machine,
            log=settings.log,
            replica_id=settings.replica_id,
            client=client,
            snapshots=self._snapshots,
            lake=lake,
            quarantine=LocalSnapshots(settings.data_dir / QUARANTINE_FOLDER, keep=_EVIDENCE_MAX),
            peers=GrpcPeers(
                settings.log,
                Discovery(client.store, settings.log, settings.replica.rsm_root),
                self._snapshots,
                settings.security,
            ),
            advertised=self.address,
            settings=settings.replica,
        )
        PeerService(
            settings.log, settings.replica_id, self._snapshots, self.replica.report, domain=settings.replica.domain
        ).add_to(self.server)
        self.feed = ChangeFeed.of(self.replica)
        self.watches = WatchService(settings.log, machine.description, self.feed)
        self.watches.add_to(self.server)

    async def start(self) -> None:
        """Load the state, follow the log, serve.

        Raises:
            RsmError: The state cannot be loaded: see `Replica.start`.
            LedgerError: Metadata store or bookies cannot be asked.

        """
        try:
            await self.replica.start()
        except BaseException:
            await self.server.stop(0)
            raise
        await self.server.start(self.replica, self.status_json)

    def status_json(self) -> bytes:
        """Return what `rsm status` shows of this replica, as JSON."""
        return replica_status_json(self.replica, self._snapshots, **self.describe())

    async def stop(self) -> None:
        """Leave in an orderly way: answer what was taken, lead no more, say who does instead, then stop serving."""
        led = self.replica.role is Role.LEADER
        naming = asyncio.get_running_loop().create_task(self._name_successor())
        try:
            await self.replica.stop()
            if led:
                await asyncio.wait([naming], timeout=_SUCCESSOR_S_MAX)
        finally:
            naming.cancel()
            self.watches.close()
            await self.server.stop(_DRAIN_S)

    async def _name_successor(self) -> None:
        """Tell clients who are turned away which replica leads now, as soon as another one does."""
        settings = self._settings
        discovery = Discovery(self._client.store, settings.log, settings.replica.rsm_root)
        while True:
            with contextlib.suppress(LedgerError, RsmError):
                found = await discovery.leader()
                if found is not None and found[1] is not None and found[0].incarnation != self.replica.incarnation:
                    self.successor_http = found[1].http
                    self.server.name_successor(found[1].address)
                    return
            await asyncio.sleep(_SUCCESSOR_POLL_S)

    async def wait_stopped(self) -> None:
        """Wait until the replica has stopped.

        Raises:
            RsmError: It stopped by itself: a corrupt log, a state that differs from the leader's.

        """
        await self.replica.wait_stopped()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop."""
        await asyncio.shield(self.stop())


def advertised_address(advertise: str, listens: str) -> str:
    """Return "host:port" for clients.

    Args:
        advertise: "host" or "host:port"; "" = where it listens.
        listens: "host:port".

    """
    if not advertise:
        return listens
    has_port = not advertise.endswith("]") and ":" in advertise
    return advertise if has_port else f"{advertise}:{listens.rpartition(':')[2]}"


def replica_status_json(replica: Replica, snapshots: LocalSnapshots, **more: Any) -> bytes:
    """Return what a replica says of itself, with its local snapshots and the damaged ones, and more by name."""
    status = msgspec.to_builtins(replica.status())
    known = snapshots.known()
    status["snapshots"] = [
        {"revision": one.revision, "rows": one.row_count, "created_ms": one.created_ms} for one in known.whole
    ]
    status["damaged_snapshots"] = [msgspec.to_builtins(one) for one in known.damaged]
    status.update(more)
    return msgspec.json.encode(status)
