"""Sending of the map client's calls, and the meaning of their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rsm_spark.client.replica_connection import ReplicaConnection
from rsm_spark.client.service_calls import ServiceCalls
from rsm_spark.codecs.framing import PayloadCodec, decoded, encoded
from rsm_spark.codecs.places import value_place
from rsm_spark.core.freshness import Freshness
from rsm_spark.core.operation import Ending, Operation
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map import messages as m


class MapCalls(ServiceCalls):
    """Base of the map's client: values go through its codec.

    Args:
        link: To the replicas.
        log: Name of the log.
        timeout_s: Time limit of a call that names none.
        spreads_reads: Reads that need not be linearizable go to several replicas.
        codec: Encodes values before they are sent, and decodes those that come.

    """

    def __init__(
        self,
        link: ReplicaConnection,
        log: str,
        timeout_s: float,
        *,
        spreads_reads: bool = False,
        codec: PayloadCodec | None = None,
    ) -> None:
        super().__init__(link, timeout_s=timeout_s)
        self._log = log
        self._spreads_reads = spreads_reads
        self._codec = codec

    def _kept(self, key: bytes, value: bytes) -> bytes:
        """Return what is kept of a key's value."""
        checked_value(value)
        return value if self._codec is None else checked_value(encoded(self._codec, value, value_place(self._log, key)))

    def _value(self, key: bytes, kept: bytes) -> bytes:
        """Return a key's value.

        Raises:
            CodecError: It is not one of this client's codec.

        """
        return kept if self._codec is None else decoded(self._codec, kept, value_place(self._log, key))

    def _check_plain(self, what: str) -> None:
        """Refuse what the servers would have to read a value for.

        Raises:
            InvalidCommandError: There is a codec.

        """
        if self._codec is not None:
            raise InvalidCommandError(f"with a codec the servers cannot read values: {what}")

    def _sent(self, command: m.MapCommand, timeout_s: float | None) -> asyncio.Future[Operation]:
        """Return what `_reply` reads the reply to a command of."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return self._link.submit(m.encode(command), limit_s, is_query=False)

    def _asked(self, query: m.MapQuery, timeout_s: float | None, read: Freshness | None) -> asyncio.Future[Operation]:
        """Return what `_result` reads the result of a query of."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return self._link.submit(m.encode(query), limit_s, is_query=True, freshness=read)

    async def _command(self, command: m.MapCommand, timeout_s: float | None) -> tuple[m.MapReply, int]:
        """Return the reply to a command, and the revision of the map right after it."""
        operation = await self._sent(command, timeout_s)
        return self._reply(operation), operation.revision

    async def _query(
        self, query: m.MapQuery, timeout_s: float | None, read: Freshness | None
    ) -> tuple[m.MapResult, int]:
        """Return the result of a query, and the revision that it shows."""
        operation = await self._asked(query, timeout_s, read)
        return self._result(operation), operation.revision

    async def _commands(self, commands: Iterable[m.MapCommand], timeout_s: float | None) -> list[m.MapReply]:
        payloads = [m.encode(command) for command in commands]
        column = await self._link.submit_many(payloads, self._limit_s(timeout_s), is_query=False)
        return [_taken_reply(answer) for answer in self._link.answers_of(column)]

    async def _queries(
        self, queries: Iterable[m.MapQuery], timeout_s: float | None, read: Freshness | None
    ) -> list[m.MapResult]:
        payloads = [m.encode(query) for query in queries]
        column = await self._link.submit_many(payloads, self._limit_s(timeout_s), is_query=True, freshness=read)
        return [_taken_result(answer) for answer in self._link.answers_of(column)]

    def _reply(self, operation: Operation) -> m.MapReply:
        if operation.outcome is not Ending.ANSWERED:
            self._link.check(operation)
        return _taken_reply(operation.payload)

    def _result(self, operation: Operation) -> m.MapResult:
        if operation.outcome is not Ending.ANSWERED:
            self._link.check(operation)
        return _taken_result(operation.payload)


def _taken_reply(text: bytes) -> m.MapReply:
    reply = m.decode_reply(text)
    if type(reply) is m.MapRefused:
        raise InvalidCommandError(reply.reason)
    return reply


def _taken_result(text: bytes) -> m.MapResult:
    result = m.decode_result(text)
    if type(result) is m.MapRefused:
        raise InvalidCommandError(result.reason)
    return result


def checked_key(key: bytes) -> bytes:
    """Return a key that the map will take.

    Raises:
        InvalidCommandError: It will not.

    """
    if isinstance(key, bytes) and 0 < len(key) <= m.KEY_BYTES_MAX:
        return key
    if not isinstance(key, bytes):
        raise InvalidCommandError(f"a key is bytes, not {type(key).__name__}: encode it")
    raise InvalidCommandError(m.key_fault(key) or "")


def checked_value(value: bytes) -> bytes:
    """Return a value that the map will take.

    Raises:
        InvalidCommandError: It will not.

    """
    if isinstance(value, bytes) and len(value) <= m.VALUE_BYTES_MAX:
        return value
    if not isinstance(value, bytes):
        raise InvalidCommandError(f"a value is bytes, not {type(value).__name__}: encode it")
    raise InvalidCommandError(m.value_fault(value) or "")


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
