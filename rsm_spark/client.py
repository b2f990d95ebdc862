"""The asyncio client of any service on a replicated log: commands and queries as bytes.

    async with await ServiceClient.connect("counters") as counters:
        reply = await counters.execute(b"visits")       # once, whatever fails meanwhile
        answer = await counters.query(b"visits")        # linearizable

The client finds the leader through ZooKeeper, follows it through failovers and sends a command again, with the same
number in its session, until it has the answer. Calls that are made together travel together. A call ends after
`timeout_s` at the latest, then with one of

    NoLeaderError         certainly not applied
    OutcomeUnknownError   perhaps applied: read before you write again
    InvalidCommandError   its records do not fit one entry of the log
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from ledger.ports import MetadataStore
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import InvalidCommandError, NoLeaderError, NotLeaderError, OutcomeUnknownError
from rsm_spark.grpc.codec import SESSION_BYTES
from rsm_spark.log.discovery import Discovery
from rsm_spark.store.core.command_stream import CommandStream
from rsm_spark.store.core.operation import Ending, Operation, StreamLimits
from rsm_spark.store.leader_finder import FoundReplica, LeaderFinder
from rsm_spark.store.leader_link import LeaderLink

__all__ = ["TIMEOUT_S", "Reply", "ServiceClient", "check_ended"]

TIMEOUT_S = 30.0
"""Long enough for any failover: a session timeout, an election and a recovery."""


class Reply(NamedTuple):
    """What a service said, and the revision of the state that it shows."""

    payload: bytes
    revision: int


class ServiceClient:
    """A client of one service; see the module. For one event loop; any number of tasks may use it at once.

    Args:
        finder: Names the replica to send to.
        log: Name of the log.
        limits: Of messages.
        timeout_s: Time limit of a call that names none.

    """

    def __init__(
        self,
        finder: LeaderFinder,
        log: str,
        *,
        limits: StreamLimits | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._log = log
        self._timeout_s = timeout_s
        stream = CommandStream(lambda: os.urandom(SESSION_BYTES), limits)
        self._link = LeaderLink(stream, finder, log)
        self._store: MetadataStore | None = None

    @classmethod
    async def connect(
        cls,
        log: str,
        metadata_uri: str | None = None,
        *,
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
    ) -> Self:
        """Return a client of the service whose log has this name.

        Args:
            log: Name of the log.
            metadata_uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
            rsm_root: Root of the logs in ZooKeeper.
            timeout_s: Time limit of every call that names none.

        Raises:
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        from ledger.zk.session import connect  # noqa: PLC0415 - kazoo only where it is used
        from ledger.zk.uri import MetadataUri  # noqa: PLC0415

        store = await connect(MetadataUri.of(metadata_uri).hosts)
        client = cls(FoundReplica(Discovery(store, log, rsm_root)), log, timeout_s=timeout_s)
        client._store = store
        return client

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Give up what is still waiting, and disconnect."""
        await self._link.close()
        if self._store is not None:
            await self._store.close()

    @property
    def address(self) -> str:
        """Address of the replica in use; "" while not connected."""
        return self._link.address

    async def execute(self, command: bytes, *, timeout_s: float | None = None) -> Reply:
        """Execute a command, once; return what the machine replied."""
        return self._reply(await self._link.submit(command, self._limit_s(timeout_s), is_query=False))

    async def execute_many(self, commands: Iterable[bytes], *, timeout_s: float | None = None) -> list[Reply]:
        """Execute commands in this order, pipelined; each is a command of its own.

        If it fails, some may have been applied: those before the first that was not, and possibly others.
        """
        operations = await self._link.submit_many(list(commands), self._limit_s(timeout_s), is_query=False)
        return [self._reply(operation) for operation in operations]

    async def query(self, query: bytes, *, timeout_s: float | None = None) -> Reply:
        """Return the answer to a read, linearizable."""
        return self._reply(await self._link.submit(query, self._limit_s(timeout_s), is_query=True))

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _reply(self, operation: Operation) -> Reply:
        check_ended(operation, self._log, self._link.trouble)
        return Reply(operation.payload, operation.revision)


def check_ended(operation: Operation, log: str, trouble: str) -> None:
    """Raise what an operation without an answer means.

    Args:
        operation: Ended.
        log: Name of the log.
        trouble: What kept it from being answered, as far as known.

    Raises:
        NoLeaderError, NotLeaderError, OutcomeUnknownError, InvalidCommandError: See the module.

    """
    if operation.outcome is Ending.ANSWERED:
        return
    what = "query" if operation.is_query else "command"
    why = f" ({trouble})" if trouble else ""
    match operation.outcome:
        case Ending.UNKNOWN:
            raise OutcomeUnknownError(
                f"log {log}: no answer to command {operation.sequence}; it may have been applied{why}. Read what it "
                "writes before sending it anew"
            )
        case Ending.NOT_LEADER:
            raise NotLeaderError(f"log {log}: the replica asked does not lead; the {what} was not applied")
        case Ending.TOO_LARGE:
            raise InvalidCommandError(f"log {log}: the command does not fit one entry of the log")
        case _:
            fate = "answered" if operation.is_query else "applied"
            raise NoLeaderError(f"log {log}: no leader answered in time; the {what} was not {fate}{why}")
