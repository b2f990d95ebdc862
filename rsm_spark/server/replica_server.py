"""One replica with its server: what a process of `rsm` runs, and what a program embeds.

settings = StoreSettings(log="orders", replica_id="a", data_dir=Path("/var/lib/orders"))
client = await LedgerClient.connect("zk+hierarchical://127.0.0.1:2181/ledgers")
async with StoreService(client, settings, machine=Orders()) as service:
    print(service.address)
    await service.wait_stopped()
"""

# Longer than 400 lines: it wires every service of a replica, and its settings stand beside it.

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError, UsageError
from ledger.http.routes import ProbePage
from ledger.options import SECONDS, Option
from ledger.rereads import Reread, on_reread
from ledger.rights.principal import Principal
from rsm_spark.core.commands import Audited
from rsm_spark.core.machine import StateMachine
from rsm_spark.core.records import AUDIT_LEVEL
from rsm_spark.errors import RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.discovery import Discovery
from rsm_spark.runtime.auditing import AuditTrail, no_audit
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.log_description import refuse_newer_log
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.server.probes import readiness
from rsm_spark.server.second_process import refuse_second_process
from rsm_spark.snapshots.checks import KEEP_MIN
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.transport.beat_client import GrpcBeats
from rsm_spark.transport.beat_service import BeatService
from rsm_spark.transport.connections import PORTS
from rsm_spark.transport.peer_client import GrpcPeers
from rsm_spark.transport.peer_service import PeerService
from rsm_spark.transport.reach import AuditWords, KeyScopes
from rsm_spark.transport.relay_service import RelayService
from rsm_spark.transport.request_admission import Backend
from rsm_spark.transport.security import Security
from rsm_spark.transport.server import CONNECTIONS_MAX, ReplicaServer
from rsm_spark.transport.tail_client import ReplicaTails
from rsm_spark.transport.tail_service import TailService
from rsm_spark.transport.watch_service import WatchService

_LOGGER = logging.getLogger(__name__)

SNAPSHOTS_FOLDER = "snapshots"
QUARANTINE_FOLDER = "quarantine"
PAST_FOLDER = "past"
"""For files without a name, of watches that ask for old values from long ago."""
_EVIDENCE_MAX = 1_000_000  # Nothing removes evidence but its reader.
_NAME_BYTES_MAX = 200
LEADS = "leader"
"""Condition of health checks over gRPC that holds on the replica that leads; "" holds where `/readyz` says 200."""
_DRAIN_S = 5.0
_SUCCESSOR_S_MAX = 1.0
_SUCCESSOR_POLL_S = 0.05
_ANY_ADDRESSES = frozenset({"0.0.0.0", "::"})

_ADVERTISED = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one replica and its server.

    Attributes:
        security: TLS and token, for its server and for what it asks of other replicas.
        replica: See `ReplicaSettings`.

    """

    log: Annotated[str, Option("Name of the log.", variables=("RSM_LOG",))]
    replica_id: Annotated[str, Option("Stable name of this replica.", shown="host and folder")] = ""
    data_dir: Annotated[Path, Option("The replica's own folder; snapshots lie in it.")]
    bind: Annotated[str, Option("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option("Port for clients over gRPC; 0 = any that is free.", ge=0, le=65535)] = 0
    framed_port: Annotated[
        int,
        Option("The same for our own clients in Python, which find it by themselves; -1 = none.", ge=-1, le=65535),
    ] = 0
    advertise: Annotated[
        str, Option("Address that clients are told.", metavar="HOST:PORT", shown="where it listens")
    ] = ""
    connections_max: Annotated[
        int,
        Option(
            "Most gRPC connections, if the limit of open files allows them. One address has half.",
            name="connections",
            ge=8,
        ),
    ] = CONNECTIONS_MAX
    ready_lag_ms_max: Annotated[
        int, Option("A follower that is further behind is not ready.", name="ready_lag_s", unit=SECONDS, ge=0)
    ] = 10_000
    security: Security = Security()
    keep_snapshots: Annotated[int, Option("Whole local snapshots to keep.", ge=3)] = KEEP_MIN
    replica: ReplicaSettings = ReplicaSettings()

    def __post_init__(self) -> None:
        """Refuse names that cannot be nodes and folders, and addresses that nobody can call.

        Raises:
            UsageError: A name is none.

        """
        if not self.replica_id:
            msgspec.structs.force_setattr(self, "replica_id", _default_id(self.data_dir))
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


def _default_id(data_dir: Path) -> str:
    """Return a name that the same folder on the same host gets again."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in f"{socket.gethostname()}-{data_dir.resolve()}")
    return plain.strip("-")[-120:]


class StoreService:
    """A replica of a machine, and its server. For the event loop on which it is made.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: See `StoreSettings`.
        lake: Snapshots to boot from when there is no local one.
        machine: The state, empty; used by nobody else.
        keys: Of that machine: looks into what clients ask whose scope is a part of the keys; None = principals with the
            role of a client are not served.
        audit_words: Of that machine: tells commands that are audited; None = none is.
        ports: Number of ports that share the open files of the process.

    Attributes:
        address: "host:port" that clients are told.
        http_address: "host:port" of the HTTP API beside it; "" = there is none.
        server: Its server; further services are added before `start`.
        replica: The replica; its role, revision, digest.
        backend: Takes the clients' requests: the replica, unless another one is set before `start`.
        audit: Who changes what, in its log.
        feed: What it has applied, for any number of readers.
        past: Rows as they were, for those watches.
        watches: The streams of those who watch it.
        describe: Returns what `status_json` shows beside the replica; set it before `start`.
        successor_http: Address of the HTTP API of the replica that leads instead, once this one is about to stop;
            "" = not known.
        successor_http_is_tls: Whether that is encrypted; None = its entry does not say.

    Raises:
        RsmError: The port is taken, or not on loopback.

    """

    def __init__(
        self,
        client: LedgerClient,
        settings: StoreSettings,
        *,
        lake: SnapshotStore | None = None,
        machine: StateMachine,
        keys: KeyScopes | None = None,
        audit_words: AuditWords | None = None,
        ports: int = PORTS,
    ) -> None:
        self._client = client
        self._settings = settings
        self._snapshots = LocalSnapshots(settings.data_dir / SNAPSHOTS_FOLDER, keep=settings.keep_snapshots)
        self.server = ReplicaServer(
            settings.log,
            bind=settings.bind,
            port=settings.port,
            framed_port=settings.framed_port,
            security=settings.security,
            keys=keys,
            audit_words=audit_words,
            connections_max=settings.connections_max,
            ports=ports,
        )
        self.address = self.server.near.address = advertised_address(settings.advertise, self.server.address)
        self.http_address = ""
        self.successor_http = ""
        self.successor_http_is_tls: bool | None = None
        self.describe: Callable[[], dict[str, Any]] = dict
        self._peers = GrpcPeers(
            settings.log,
            Discovery(client.store, settings.log, settings.replica.rsm_root),
            self._snapshots,
            settings.security,
        )
        self.replica = Replica(
            machine,
            log=settings.log,
            replica_id=settings.replica_id,
            client=client,
            snapshots=self._snapshots,
            lake=lake,
            quarantine=LocalSnapshots(settings.data_dir / QUARANTINE_FOLDER, keep=_EVIDENCE_MAX),
            peers=self._peers,
            beats=GrpcBeats(settings.log, settings.security),
            tails=ReplicaTails(settings.log, settings.security),
            advertised=self.address,
            settings=settings.replica,
        )
        self.backend: Backend = self.replica
        self.audit = AuditTrail(self.replica, settings.log)
        self.server.guard.on_refused = self._on_refused
        self._loop = asyncio.get_running_loop()
        self._rereads: set[asyncio.Task[None]] = set()
        self._end_rereads: Callable[[], None] = lambda: None
        self.replica.framed = advertised_address(_host_of(settings.advertise), self.server.framed_address)
        self.replica.is_tls = settings.security.tls_cert is not None
        self._serve_replicas()
        self._machine = machine
        self.feed = ChangeFeed.of(self.replica)
        row_before, said_revision = getattr(machine, "row_before", None), getattr(machine, "said_revision", None)
        self.past = PastRows.of(self.feed, settings.data_dir / PAST_FOLDER)
        self.watches = WatchService(
            settings.log, machine.description, self.feed, row_before, said_revision, past=self.past
        )
        self.watches.add_to(self.server)
        self.server.health.conditions.update({"": self._is_ready, LEADS: self._leads})

    def _serve_replicas(self) -> None:
        """Have the other replicas of the log served too."""
        settings, replica = self._settings, self.replica
        peers = PeerService(
            settings.log,
            settings.replica_id,
            self._snapshots,
            replica.report,
            replica.read_index,
            domain=settings.replica.domain,
        )
        peers.add_to(self.server)
        beats = BeatService(settings.log, replica.incarnation, settings.replica.beat_s, replica.hears)
        beats.add_to(self.server)
        self._tails = TailService(settings.log, replica.tell_entries)
        self._tails.add_to(self.server)
        self._relays = RelayService(
            settings.log, self.server, lambda: replica.leader_place, self._leads, settings.security, replica.relays
        )
        self._relays.add()

    def readiness(self) -> ProbePage:
        """Say whether clients should be sent here."""
        return readiness(self.replica.status(), lag_ms_max=self._settings.ready_lag_ms_max)

    def _is_ready(self) -> bool:
        return self.readiness().status == HTTPStatus.OK

    def _leads(self) -> bool:
        return self.replica.role is ReplicaRole.LEADER

    async def start(self) -> None:
        """Load the state, follow the log, serve.

        Raises:
            UsageError: A process serves under this replica's id already.
            RsmError: The state cannot be loaded: see `Replica.start`.
            LedgerError: Metadata store or bookies cannot be asked.

        """
        settings = self._settings
        discovery = Discovery(self._client.store, settings.log, settings.replica.rsm_root)
        try:
            await refuse_second_process(
                discovery, GrpcBeats(settings.log, settings.security), settings.log, settings.replica_id, self.address
            )
            await refuse_newer_log(self._client, self._settings.log, self._machine, self._settings.replica)
            await self.replica.start()
        except BaseException:
            await self.server.stop(0)
            raise
        await self.server.start(self.backend, self.status_json)
        self._end_rereads = on_reread(self._on_reread)
        await self._warn_of_no_audit()

    async def _warn_of_no_audit(self) -> None:
        settings = self._settings
        with contextlib.suppress(LedgerError, RsmError):  # It is said to `rsm audit` too.
            chain, _ = await ChainStore(self._client.store, settings.log, settings.replica.rsm_root).read()
            is_new = chain.leader_epoch == 0  # It begins with the level of a key, or of its machine.
            begins_audited = settings.replica.log_keys is not None or self.replica.level_needed >= AUDIT_LEVEL
            if chain.format_level < AUDIT_LEVEL and not (is_new and begins_audited):
                _LOGGER.warning("%s", no_audit(settings.log, chain.format_level))

    def status_json(self) -> bytes:
        """Return what `rsm status` shows of this replica, as JSON."""
        return replica_status_json(self.replica, self._snapshots, **self.describe())

    async def stop(self) -> None:
        """Leave in an orderly way: answer what was taken, lead no more, say who does instead, then stop serving."""
        self._end_rereads()
        for task in list(self._rereads):
            task.cancel()
        led = self.replica.role is ReplicaRole.LEADER
        naming = asyncio.get_running_loop().create_task(self._name_successor())
        try:
            await self.replica.stop()
            if led:
                await asyncio.wait([naming], timeout=_SUCCESSOR_S_MAX)
        finally:
            naming.cancel()
            self.watches.close()
            self._tails.close()
            self._relays.close()
            await self._peers.close()
            await self.server.stop(_DRAIN_S)

    async def _name_successor(self) -> None:
        """Tell clients who are turned away which replica leads now, as soon as another one does."""
        settings = self._settings
        discovery = Discovery(self._client.store, settings.log, settings.replica.rsm_root)
        while True:
            with contextlib.suppress(LedgerError, RsmError):
                found = await discovery.leader()
                if found is not None and found[1] is not None and found[0].incarnation != self.replica.incarnation:
                    self.successor_http, self.successor_http_is_tls = found[1].http, found[1].http_is_tls
                    self.server.name_successor(found[1].address)
                    return
            await asyncio.sleep(_SUCCESSOR_POLL_S)

    def _on_refused(self, principal: Principal | None, method: str, peer: str, why: str) -> None:
        name, role = ("", "") if principal is None else (principal.name, principal.role.value)
        audited = Audited(name, role, peer, method or "a method that is not served", "", why)
        self.audit.refused(audited, asyncio.get_running_loop().time())

    def _on_reread(self, found: Reread) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended: a thread of gRPC may still look at certificates.
            self._loop.call_soon_threadsafe(self._log_reread, found)

    def _log_reread(self, found: Reread) -> None:
        task = self._loop.create_task(self.audit.reread(found))
        self._rereads.add(task)
        task.add_done_callback(self._rereads.discard)

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


def _host_of(advertise: str) -> str:
    """Return what is advertised, without its port."""
    has_port = not advertise.endswith("]") and ":" in advertise
    return advertise.rpartition(":")[0] if has_port else advertise


def advertised_address(advertise: str, listens: str) -> str:
    """Return "host:port" for clients.

    Args:
        advertise: "host" or "host:port"; "" = where it listens.
        listens: "host:port"; "" = nowhere.

    """
    if not advertise or not listens:
        return listens
    is_whole = _host_of(advertise) != advertise
    return advertise if is_whole else f"{advertise}:{listens.rpartition(':')[2]}"


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
