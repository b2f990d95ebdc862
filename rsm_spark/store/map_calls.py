"""What all calls of the map's client share: how they are sent, and what their ends mean."""

from __future__ import annotations

from collections.abc import Iterable

from rsm_spark.core.freshness import Freshness
from rsm_spark.errors import InvalidCommandError
from rsm_spark.store.client_link import ClientLink
from rsm_spark.store.core.operation import Operation
from rsm_spark.store.kv import messages as m

__all__ = ["MapCalls", "checked_key", "checked_value", "scan_range"]


class MapCalls:
    """Base of the client: a link, and a time limit.

    Args:
        link: To the replicas.
        log: Name of the log.
        timeout_s: Time limit of a call that names none.
        spreads_reads: Reads that need not be linearizable go to several replicas.

    """

    def __init__(self, link: ClientLink, log: str, timeout_s: float, *, spreads_reads: bool = False) -> None:
        self._link = link
        self._log = log
        self._timeout_s = timeout_s
        self._spreads_reads = spreads_reads

    async def _command(self, command: m.MapCommand, timeout_s: float | None) -> tuple[m.MapReply, int]:
        """Return the reply to a command, and the revision of the map right after it."""
        operation = await self._link.submit(m.encode(command), self._limit_s(timeout_s), is_query=False)
        return self._reply(operation), operation.revision

    async def _query(
        self, query: m.MapQuery, timeout_s: float | None, read: Freshness | None
    ) -> tuple[m.MapResult, int]:
        """Return the result of a query, and the revision that it shows."""
        payload = m.encode(query)
        operation = await self._link.submit(payload, self._limit_s(timeout_s), is_query=True, freshness=read)
        return self._result(operation), operation.revision

    async def _commands(self, commands: Iterable[m.MapCommand], timeout_s: float | None) -> list[m.MapReply]:
        payloads = [m.encode(command) for command in commands]
        operations = await self._link.submit_many(payloads, self._limit_s(timeout_s), is_query=False)
        return [self._reply(operation) for operation in operations]

    async def _queries(
        self, queries: Iterable[m.MapQuery], timeout_s: float | None, read: Freshness | None
    ) -> list[m.MapResult]:
        payloads = [m.encode(query) for query in queries]
        operations = await self._link.submit_many(payloads, self._limit_s(timeout_s), is_query=True, freshness=read)
        return [self._result(operation) for operation in operations]

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


def checked_key(key: bytes) -> bytes:
    """Return a key that the map will take.

    Raises:
        InvalidCommandError: It will not.

    """
    if not isinstance(key, bytes):
        raise InvalidCommandError(f"a key is bytes, not {type(key).__name__}: encode it")
    fault = m.key_fault(key)
    if fault is not None:
        raise InvalidCommandError(fault)
    return key


def checked_value(value: bytes) -> bytes:
    """Return a value that the map will take.

    Raises:
        InvalidCommandError: It will not.

    """
    if not isinstance(value, bytes):
        raise InvalidCommandError(f"a value is bytes, not {type(value).__name__}: encode it")
    fault = m.value_fault(value)
    if fault is not None:
        raise InvalidCommandError(fault)
    return value


def scan_range(prefix: bytes, start: bytes | None, end: bytes | None) -> tuple[bytes, bytes | None]:
    """Return first key (inclusive) and end (exclusive, None = none) of a range.

    Raises:
        InvalidCommandError: A prefix and bounds were given.

    """
    if not prefix:
        return start or b"", end
    if start is not None or end is not None:
        raise InvalidCommandError("a range is a prefix, or start and end, not both")
    return prefix, m.prefix_end(prefix)
