"""The asyncio client of any service on a replicated log: commands and queries as bytes.

    async with await ServiceClient.connect("counters") as counters:
        reply = await counters.execute(b"visits")       # once, whatever fails meanwhile
        answer = await counters.query(b"visits")        # linearizable, unless `read=` asks for less

    async with await ServiceClient.connect("bank") as bank:   # a `Service`: commands and queries are typed
        left = await bank.call(Bank.transfer, "ann", "bob", 5)
        quick = await bank.with_timeout(2.0).call(Bank.balance, "ann")

The client finds the leader through ZooKeeper, follows it through failovers and sends a command again, with the same
number in its session, until it has the answer. Calls that are made together travel together. A call ends after
`timeout_s` at the latest, then with one of

    NoLeaderError         certainly not applied
    DomainError           not applied: the service's own error, of its own class
    OutcomeUnknownError   perhaps applied: read before you write again
    OverloadedError       not applied: the queues are full
    InvalidCommandError   its records do not fit one entry of the log
    NotLeaderError        a command to one replica (`replica=`) that does not lead; it names the leader
    TooStaleError, NotReadyError   the replica that was asked is not fresh enough for this read
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, NamedTuple, Self, overload

from ledger.errors import UsageError
from ledger.ports import MetadataStore
from rsm_spark.client.leader_finder import FixedReplica, FoundReplica, refuse_other_machine
from rsm_spark.client.replica_connection import ReadFrom, ReplicaConnection
from rsm_spark.client.service_calls import TIMEOUT_S, ServiceCalls
from rsm_spark.client.watched_replicas import WatchedReplicas
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.freshness import Freshness
from rsm_spark.core.operation import Operation, StreamLimits
from rsm_spark.core.typed_calls import N, P, T, call_of
from rsm_spark.errors import RsmError
from rsm_spark.log.discovery import Discovery
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import Transport


class Reply(NamedTuple):
    """Reply of a service, and the revision of the state that it shows."""

    payload: bytes
    revision: int


class ServiceClient(ServiceCalls):
    """A client of one service; see the module. For one event loop; any number of tasks may use it at once.

    Args:
        link: Its connections; closed with it.
        timeout_s: Time limit of a call that names none.
        store: Closed with it; None = somebody else's.
        read: How fresh the answers to queries must be that do not say; None = linearizable.

    """

    def __init__(
        self,
        link: ReplicaConnection,
        *,
        timeout_s: float = TIMEOUT_S,
        store: MetadataStore | None = None,
        read: Freshness | None = None,
    ) -> None:
        super().__init__(link, timeout_s=timeout_s, store=store)
        self._read = read

    @property
    def revision(self) -> int:
        """Highest revision that any answer has named: what a session read is at least as new as."""
        return self._link.revision

    @property
    def steady_read(self) -> Freshness:
        """Freshness with which reads are answered by one replica, the same as long as it leads, or is the only one."""
        return self._link.steady_read

    @property
    def watched_replicas(self) -> WatchedReplicas:
        """Replicas that may tell this client of changes."""
        return self._link.watched_replicas

    @property
    def metadata(self) -> MetadataStore | None:
        """Session with the metadata store, which is closed with it; None = it knows replicas alone."""
        return self._store

    @classmethod
    async def connect(
        cls,
        log: str,
        metadata_uri: str | None = None,
        *,
        replica: str | None = None,
        read_from: ReadFrom = "leader",
        read: Freshness | None = None,
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
        limits: StreamLimits | None = None,
        security: Security | None = None,
        transport: Transport | None = None,
        machine: str | None = None,
    ) -> Self:
        """Return a client of the service whose log has this name.

        Args:
            log: Name of the log.
            metadata_uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
            replica: "host:port" of one replica to use instead of the leader; reads are then as of its own revision.
            read_from: "any": reads that need not be linearizable are spread over the followers. "followers": all
                reads without `read=` as well; a follower asks the leader how far the log is, and answers when it has
                come so far, so that these are as fresh as the leader's.
            rsm_root: Root of the logs in ZooKeeper.
            timeout_s: Time limit of every call that names none.
            read: How fresh the answers to queries must be that do not say, typed ones among them; None = linearizable.
            limits: Of messages.
            security: TLS and token; None = as the environment says.
            transport: "framed" = over a replica's framed port where it has one, else over gRPC; "grpc" = over gRPC;
                None = as the environment says (`RSM_STORE__TRANSPORT`), else "framed".
            machine: Name of the machine that the log has to be of; None = any.

        Raises:
            UsageError: A file of `security` cannot be used, or the log's leader serves another machine.
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        if replica is not None:
            link = ReplicaConnection(FixedReplica(replica), log, is_one_replica=True, limits=limits, security=security)
            return cls(link, timeout_s=timeout_s, read=read)
        from ledger.zookeeper.session import connect  # noqa: PLC0415 - kazoo only where it is used
        from ledger.zookeeper.uri import MetadataUri  # noqa: PLC0415

        store = await connect(MetadataUri.of(metadata_uri).hosts)
        try:
            discovery = Discovery(store, log, rsm_root)
            if machine is not None:
                await refuse_other_machine(discovery, log, machine)
            finder = FoundReplica(discovery)
            followers = None if read_from == "leader" else finder
            link = ReplicaConnection(
                finder,
                log,
                followers=followers,
                is_indexed=read_from == "followers",
                limits=limits,
                security=security,
                transport=transport,
            )
        except BaseException:
            await store.close()
            raise
        return cls(link, timeout_s=timeout_s, store=store, read=read)

    async def execute(self, command: bytes, *, timeout_s: float | None = None) -> Reply:
        """Execute a command, once; return what the machine replied."""
        return self._reply(await self._link.submit(command, self._limit_s(timeout_s), is_query=False))

    async def execute_many(self, commands: Iterable[bytes], *, timeout_s: float | None = None) -> list[Reply]:
        """Execute commands in this order, pipelined; each is a command of its own.

        If it fails, some may have been applied: those before the first that was not, and possibly others.
        """
        column = await self._link.submit_many(list(commands), self._limit_s(timeout_s), is_query=False)
        return list(map(Reply, self._link.answers_of(column), column.revisions))

    async def execute_each(
        self, commands: Iterable[bytes], *, timeout_s: float | None = None
    ) -> list[Reply | RsmError]:
        """Execute commands in this order, pipelined; return of each its reply, or why it has none."""
        column = await self._link.submit_many(list(commands), self._limit_s(timeout_s), is_query=False)
        replies: list[Reply | RsmError] = []
        for place, (answer, revision) in enumerate(zip(column.answers, column.revisions, strict=True)):
            try:
                self._link.check_at(column, place)
            except RsmError as error:
                replies.append(error)
            else:
                replies.append(Reply(answer, revision))
        return replies

    async def query(self, query: bytes, *, read: Freshness | None = None, timeout_s: float | None = None) -> Reply:
        """Return the answer to a read; linearizable unless `read`, here or of the client, is content with less."""
        wanted = self._read if read is None else read
        operation = await self._link.submit(query, self._limit_s(timeout_s), is_query=True, freshness=wanted)
        return self._reply(operation)

    @overload
    async def call(self, method: Callable[Concatenate[N, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def call(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def call(self, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Execute a typed command, once, or ask a typed query; return its value.

        Args:
            method: Of the service's class: `Bank.transfer`, or `Shop.bank.transfer` of a part.
            args: Its arguments.
            kwargs: Its arguments by name.

        Raises:
            DomainError: What the command raised, of the same class if this process knows it.
            InvalidCommandError: The arguments are not those of the method.

        """
        typed, path = call_of(method)
        sent = typed.encode(path, args, kwargs)
        reply = await (self.query(sent) if typed.is_query else self.execute(sent))
        return typed.decode_reply(reply.payload)

    def with_timeout(self, timeout_s: float) -> Self:
        """Return this client with another time limit of its calls: `await bank.with_timeout(2.0).call(…)`.

        A command that has no answer by then ends with `OutcomeUnknownError`, or with `NoLeaderError` if it certainly
        was not and will not be applied. It is never sent again, and applied once at most.

        Args:
            timeout_s: Time limit, above 0. Connections and session are this client's: close this one, not the other.

        Raises:
            UsageError: The time limit is none.

        """
        if not 0 < timeout_s < math.inf:
            raise UsageError(f"timeout_s {timeout_s!r}: expected seconds, above 0")
        limited = copy.copy(self)
        limited._timeout_s = timeout_s
        return limited

    def _reply(self, operation: Operation) -> Reply:
        self._link.check(operation)
        return Reply(operation.payload, operation.revision)
