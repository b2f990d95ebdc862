"""The map's asyncio client.

    from rsm_spark.store.client import MapClient

    async with await MapClient.connect(log="orders") as orders:
        revision = await orders.put(b"order/1", b"new")
        found = await orders.get(b"order/1")            # MapValue(value=b"new", revision=1), or None
        done = await orders.compare_and_set(b"order/1", expected=b"new", value=b"paid")
        if not done.succeeded:                          # somebody was quicker; its revision is in `done`
            ...
        await orders.put_many((b"order/%d" % n, b"new") for n in range(2, 100))
        async for row in orders.scan(prefix=b"order/"):
            print(row.key, row.value, row.revision)
        await orders.delete(b"order/1")

The client finds the leader through ZooKeeper, follows it through failovers and sends a command again, with the same
number in its session, until it has the answer: it is applied once. Calls that are made together travel together:
`asyncio.gather` over many puts costs one message. Reads are linearizable; with `replica=` they are those of one
replica, at the revision that it has applied. A call ends after `timeout_s` at the latest, then with one of

    NoLeaderError         certainly not applied
    OutcomeUnknownError   perhaps applied: read before you write again
    InvalidCommandError   refused: an empty key, a value over 1 MiB
    NotLeaderError        a write to one replica (`replica=`) that does not lead
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import NamedTuple, Self

from ledger.ports import MetadataStore
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import InvalidCommandError
from rsm_spark.grpc.security import Security
from rsm_spark.log.discovery import Discovery
from rsm_spark.store.client_link import ClientLink, ReadFrom
from rsm_spark.store.core.operation import Operation, StreamLimits
from rsm_spark.store.kv import messages as m
from rsm_spark.store.leader_finder import FixedReplica, FollowerFinder, FoundReplica, LeaderFinder

__all__ = ["TIMEOUT_S", "CompareResult", "MapClient", "MapPage", "MapValue", "scan_range"]

TIMEOUT_S = 30.0
"""Long enough for any failover: a session timeout, an election and a recovery."""


class MapValue(NamedTuple):
    """A key's value and its mod revision: that of the record that last wrote it."""

    value: bytes
    revision: int


class CompareResult(NamedTuple):
    """What became of a compare-and-set.

    Attributes:
        succeeded: Whether the key was as expected, and was written.
        revision: Mod revision of the key after it: of this write, or of what was found instead; 0 = no such key.

    """

    succeeded: bool
    revision: int


class MapPage(NamedTuple):
    """Rows of a scan, all as of one revision.

    Attributes:
        rows: Ascending by key.
        revision: Of the state that they show.
        next_start: Start of the next page; None = there is none.

    """

    rows: list[m.KeyValue]
    revision: int
    next_start: bytes | None


class MapClient:
    """A client of one replicated map; see the module. For one event loop; any number of tasks may use it at once.

    Args:
        finder: Names the replica to send to.
        log: Name of the log.
        is_stale: Read from that replica whether it leads or not.
        followers: Names the replicas that answer reads which need not be linearizable; None = the leader does.
        limits: Of messages.
        timeout_s: Time limit of a call that names none.
        security: TLS and token; None = as the environment says.

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
        limits: StreamLimits | None = None,
        timeout_s: float = TIMEOUT_S,
        security: Security | None = None,
    ) -> None:
        self._log = log
        self._timeout_s = timeout_s
        self._link = ClientLink(
            finder, log, is_one_replica=is_stale, followers=followers, limits=limits, security=security
        )
        self._store: MetadataStore | None = None

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
    ) -> Self:
        """Return a client of the map that lives in the log of this name.

        Args:
            log: Name of the log.
            metadata_uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
            replica: "host:port" of one replica to use instead of the leader; reads are then as of its own revision.
            read_from: "any": reads that need not be linearizable are spread over the followers.
            rsm_root: Root of the logs in ZooKeeper.
            timeout_s: Time limit of every call that names none.
            limits: Of messages.
            security: TLS and token; None = as the environment says (`RSM_STORE__TLS_CA`, `RSM_STORE__TOKEN_FILE`, …).

        Raises:
            UsageError: A file of `security` cannot be used.
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        if replica is not None:
            return cls(FixedReplica(replica), log, is_stale=True, limits=limits, timeout_s=timeout_s, security=security)
        from ledger.zk.session import connect  # noqa: PLC0415 - kazoo only where it is used
        from ledger.zk.uri import MetadataUri  # noqa: PLC0415

        store = await connect(MetadataUri.of(metadata_uri).hosts)
        finder = FoundReplica(Discovery(store, log, rsm_root))
        try:
            followers = finder if read_from == "any" else None
            client = cls(finder, log, followers=followers, limits=limits, timeout_s=timeout_s, security=security)
        except BaseException:
            await store.close()
            raise
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

    async def put(self, key: bytes, value: bytes, *, timeout_s: float | None = None) -> int:
        """Write a key; return the revision that wrote it."""
        reply = await self._command(m.Put(_key(key), _value(value)), timeout_s)
        assert isinstance(reply, m.Written)
        return reply.revision

    async def put_many(self, items: Iterable[tuple[bytes, bytes]], *, timeout_s: float | None = None) -> list[int]:
        """Write keys in this order, pipelined; return the revision of each. Each is a command of its own.

        If it fails, some may have been written: those before the first that was not, and possibly others.
        """
        payloads = [m.encode(m.Put(_key(key), _value(value))) for key, value in items]
        operations = await self._link.submit_many(payloads, self._limit_s(timeout_s), is_query=False)
        return [_written(self._reply(operation)) for operation in operations]

    async def delete(self, key: bytes, *, timeout_s: float | None = None) -> int | None:
        """Remove a key; return the revision that removed it, or None if there was no such key."""
        reply = await self._command(m.Delete(_key(key)), timeout_s)
        return reply.revision if isinstance(reply, m.Written) else None

    async def compare_and_set(
        self, key: bytes, *, expected: bytes | int | None, value: bytes | None, timeout_s: float | None = None
    ) -> CompareResult:
        """Write a key only if it is as expected.

        Args:
            key: The key.
            expected: Its value (bytes), its mod revision (int), or None: there is no such key.
            value: The new value; None removes the key.
            timeout_s: Time limit.

        """
        reply = await self._command(
            m.CompareAndSet(_key(key), expected, None if value is None else _value(value)), timeout_s
        )
        if isinstance(reply, m.Mismatched):
            return CompareResult(succeeded=False, revision=reply.revision)
        return CompareResult(succeeded=True, revision=_written(reply))

    async def get(self, key: bytes, *, timeout_s: float | None = None) -> MapValue | None:
        """Return a key's value, or None if there is no such key."""
        query = m.encode(m.Get(_key(key)))
        return _found(self._result(await self._link.submit(query, self._limit_s(timeout_s), is_query=True)))

    async def get_many(self, keys: Iterable[bytes], *, timeout_s: float | None = None) -> list[MapValue | None]:
        """Return the values of many keys, each on its own linearizable, in the order asked."""
        payloads = [m.encode(m.Get(_key(key))) for key in keys]
        operations = await self._link.submit_many(payloads, self._limit_s(timeout_s), is_query=True)
        return [_found(self._result(operation)) for operation in operations]

    async def scan_page(
        self,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int = m.SCAN_LIMIT_MAX,
        timeout_s: float | None = None,
    ) -> MapPage:
        """Return rows with start <= key < end, all as of one revision: as many as fit a page, at most `limit`."""
        if limit < 1:
            raise InvalidCommandError(f"limit {limit}: a scan returns at least one row")
        query = m.encode(m.Scan(start, end, min(limit, m.SCAN_LIMIT_MAX)))
        operation = await self._link.submit(query, self._limit_s(timeout_s), is_query=True)
        page = self._result(operation)
        assert isinstance(page, m.Page)
        return MapPage(page.entries, operation.revision, page.next_start)

    async def scan(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[m.KeyValue]:
        """Iterate over rows in order of their keys.

        A page (10,000 rows or 2 MiB) shows one revision; a scan of several pages shows the map as it was while each
        was read. Use `scan_page` to see their revisions.

        Args:
            prefix: Only keys that begin with it.
            start: First key, inclusive; not with `prefix`.
            end: Exclusive; not with `prefix`.
            limit: Most rows wanted.
            timeout_s: Time limit of each page.

        """
        at, behind = scan_range(prefix, start, end)
        left = limit
        while at is not None and left != 0:
            page = await self.scan_page(
                at, behind, limit=left if left is not None else m.SCAN_LIMIT_MAX, timeout_s=timeout_s
            )
            for row in page.rows:
                yield row
            at = page.next_start
            left = None if left is None else left - len(page.rows)

    async def _command(self, command: m.MapCommand, timeout_s: float | None) -> m.MapReply:
        operation = await self._link.submit(m.encode(command), self._limit_s(timeout_s), is_query=False)
        return self._reply(operation)

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _reply(self, operation: Operation) -> m.MapReply:
        self._link.check(operation)
        reply = m.decode_reply(operation.payload)
        if isinstance(reply, m.Refused):
            raise InvalidCommandError(reply.reason)
        return reply

    def _result(self, operation: Operation) -> m.MapResult:
        self._link.check(operation)
        result = m.decode_result(operation.payload)
        if isinstance(result, m.Refused):
            raise InvalidCommandError(result.reason)
        return result


def _key(key: bytes) -> bytes:
    if not isinstance(key, bytes):
        raise InvalidCommandError(f"a key is bytes, not {type(key).__name__}: encode it")
    fault = m.key_fault(key)
    if fault is not None:
        raise InvalidCommandError(fault)
    return key


def _value(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidCommandError(f"a value is bytes, not {type(value).__name__}: encode it")
    fault = m.value_fault(value)
    if fault is not None:
        raise InvalidCommandError(fault)
    return value


def _written(reply: m.MapReply) -> int:
    assert isinstance(reply, m.Written)
    return reply.revision


def _found(result: m.MapResult) -> MapValue | None:
    return MapValue(result.value, result.revision) if isinstance(result, m.Found) else None


def scan_range(prefix: bytes, start: bytes | None, end: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Return first key (inclusive) and end (exclusive, None = none) of a scan.

    Raises:
        InvalidCommandError: A prefix and bounds were given.

    """
    if not prefix:
        return start or b"", end
    if start is not None or end is not None:
        raise InvalidCommandError("a scan takes a prefix, or start and end, not both")
    return prefix, m.prefix_end(prefix)
