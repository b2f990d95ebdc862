"""The map's asyncio client.

    from rsm_spark.map.client.client import Compare, MapClient, Put

    async with await MapClient.connect(log="orders") as orders:
        revision = await orders.put(b"order/1", b"new")
        found = await orders.get(b"order/1")            # MapValue(value=b"new", revision=1), or None
        done = await orders.compare_and_set(b"order/1", expected=b"new", value=b"paid")
        if not done.succeeded:                          # somebody was quicker; its revision is in `done`
            ...
        await orders.put_many((b"order/%d" % n, b"new") for n in range(2, 100))
        async for row in orders.scan(prefix=b"order/"):             # all rows as of one revision
            print(row.key, row.value, row.revision)
        await orders.delete(b"order/1")

        number = (await orders.increment(b"orders")).value
        result = await orders.transact(
            [Compare(b"order/2", "value", "=", b"new")], then=[Put(b"order/2", b"paid"), Put(b"paid/2", b"")]
        )
        await orders.put(b"session/7", b"...", ttl_ms=60_000)
        async with orders.holding_lease(10_000) as lease:           # kept alive in the background
            await orders.put(b"worker/1", b"10.0.0.1", lease=lease)
        async for change in orders.watch(prefix=b"order/", from_revision=revision):
            print(change.revision, change.kind, change.key, change.value)

The client finds the leader through ZooKeeper, follows it through failovers and sends a command again, with the same
number in its session, until it has the answer: it is applied once. Calls that are made together travel together:
`asyncio.gather` over many puts costs one message. Reads are linearizable, unless `read=` asks for less; with
`replica=` they are those of one replica, at the revision that it has applied. A call ends after `timeout_s` at the
latest, then with one of

    NoLeaderError         certainly not applied
    OutcomeUnknownError   perhaps applied: read before you write again
    InvalidCommandError   refused: an empty key, a value over 1 MiB, a transaction that cannot be done
    NotLeaderError        a write to one replica (`replica=`) that does not lead
"""

from __future__ import annotations

from typing import Self

from rsm_spark.client.consumers import ClientConsumers
from rsm_spark.client.leader_finder import (
    FixedReplica,
    FollowerFinder,
    FoundReplica,
    LeaderFinder,
    refuse_other_machine,
)
from rsm_spark.client.replica_connection import ReadFrom, ReplicaConnection
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.client.watched_replicas import WatchedReplicas
from rsm_spark.codecs.framing import PayloadCodec
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.operation import StreamLimits
from rsm_spark.log.discovery import Discovery
from rsm_spark.map.client.barriers import MapBarriers
from rsm_spark.map.records import MAP_DESCRIPTION
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import Transport


class MapClient(MapBarriers):
    """A client of one replicated map; see the module. For one event loop; any number of tasks may use it at once.

    Args:
        finder: Names the replica to send to.
        log: Name of the log.
        is_stale: Read from that replica whether it leads or not.
        followers: Names the replicas that answer reads which need not be linearizable; None = the leader does.
        is_indexed: They answer reads that do not say how fresh they are to be, too, as fresh as the leader's are.
        limits: Of messages.
        timeout_s: Time limit of a call that names none.
        security: TLS and token; None = as the environment says.
        codec: Encodes values before they are sent, and decodes those that come; see `rsm_spark.codecs`.
        transport: See `connect`.

    Raises:
        UsageError: A file of `security` cannot be used.

    """

    def __init__(
        self,
        finder: LeaderFinder,
        log: str,
        *,
        is_stale: bool = False,
        followers: FollowerFinder | None = None,
        is_indexed: bool = False,
        limits: StreamLimits | None = None,
        timeout_s: float = TIMEOUT_S,
        security: Security | None = None,
        codec: PayloadCodec | None = None,
        transport: Transport | None = None,
    ) -> None:
        link = ReplicaConnection(
            finder,
            log,
            is_one_replica=is_stale,
            followers=followers,
            is_indexed=is_indexed,
            limits=limits,
            security=security,
            transport=transport,
        )
        super().__init__(link, log, timeout_s, spreads_reads=followers is not None, codec=codec)
        self._watched = WatchedReplicas(finder, followers, security or Security.from_environment(), transport)
        self._watching = {}

    @classmethod
    async def connect(
        cls,
        log: str,
        metadata_uri: str | None = None,
        *,
        replica: str | None = None,
        read_from: ReadFrom = "leader",
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
        limits: StreamLimits | None = None,
        security: Security | None = None,
        codec: PayloadCodec | None = None,
        transport: Transport | None = None,
    ) -> Self:
        """Return a client of the map that lives in the log of this name.

        Args:
            log: Name of the log.
            metadata_uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
            replica: "host:port" of one replica to use instead of the leader; reads are then as of its own revision.
            read_from: "any": reads that need not be linearizable are spread over the followers. "followers": all
                reads without `read=` as well; a follower asks the leader how far the log is, and answers when it has
                come so far, so that these are as fresh as the leader's.
            rsm_root: Root of the logs in ZooKeeper.
            timeout_s: Time limit of every call that names none.
            limits: Of messages.
            security: TLS and token; None = as the environment says (`RSM_STORE__TLS_CA`, `RSM_STORE__TOKEN_FILE`, …).
            codec: Encodes values before they are sent, and decodes those that come; see `rsm_spark.codecs`.
            transport: "framed" = over a replica's framed port where it has one, else over gRPC; "grpc" = over gRPC;
                None = as the environment says (`RSM_STORE__TRANSPORT`), else "framed".

        Raises:
            UsageError: A file of `security` cannot be used, or the log's leader serves another machine.
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        if replica is not None:
            return cls(
                FixedReplica(replica),
                log,
                is_stale=True,
                limits=limits,
                timeout_s=timeout_s,
                security=security,
                codec=codec,
            )
        from ledger.zookeeper.session import connect  # noqa: PLC0415 - kazoo only where it is used
        from ledger.zookeeper.uri import MetadataUri  # noqa: PLC0415

        store = await connect(MetadataUri.of(metadata_uri).hosts)
        discovery = Discovery(store, log, rsm_root)
        finder = FoundReplica(discovery)
        try:
            await refuse_other_machine(discovery, log, MAP_DESCRIPTION.name)
            followers = None if read_from == "leader" else finder
            client = cls(
                finder,
                log,
                followers=followers,
                is_indexed=read_from == "followers",
                limits=limits,
                timeout_s=timeout_s,
                security=security,
                codec=codec,
                transport=transport,
            )
        except BaseException:
            await store.close()
            raise
        client._store = store
        client._consumers = ClientConsumers(store, log, rsm_root)
        return client
