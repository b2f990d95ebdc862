"""Writes of the map's client: put, delete, compare-and-set, increment, transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from rsm_spark.errors import InvalidCommandError
from rsm_spark.map import messages as m
from rsm_spark.map.client.calls import MapCalls, checked_key, scan_range
from rsm_spark.map.client.results import CompareResult, IncrementResult, RemovedKeys, TransactionResult


class MapWrites(MapCalls):
    """Calls that change the map, once, however often they have to be sent."""

    async def put(
        self, key: bytes, value: bytes, *, ttl_ms: int = 0, lease: int = 0, timeout_s: float | None = None
    ) -> int:
        """Write a key; return the revision that wrote it.

        Args:
            key: The key.
            value: Its value.
            ttl_ms: It goes by itself after so long; 0 = it stays until it is deleted, or as long as the lease.
            lease: It goes with this lease.
            timeout_s: Time limit.

        Raises:
            InvalidCommandError: There is no such lease, or the key and the value are not the map's.

        """
        command: m.Put | m.PutExpiring = m.Put(checked_key(key), self._kept(key, value))
        if ttl_ms or lease:
            command = m.PutExpiring(key, command.value, ttl_ms, lease)
        return _written(self._reply(await self._sent(command, timeout_s)))

    async def put_many(self, items: Iterable[tuple[bytes, bytes]], *, timeout_s: float | None = None) -> list[int]:
        """Write keys in this order, pipelined; return the revision of each. Each is a command of its own.

        If it fails, some may have been written: those before the first that was not, and possibly others.
        """
        commands = [m.Put(checked_key(key), self._kept(key, value)) for key, value in items]
        return [_written(reply) for reply in await self._commands(commands, timeout_s)]

    async def delete(self, key: bytes, *, timeout_s: float | None = None) -> int | None:
        """Remove a key; return the revision that removed it, or None if there was no such key."""
        reply, _ = await self._command(m.Delete(checked_key(key)), timeout_s)
        return reply.revision if isinstance(reply, m.Written) else None

    async def delete_range(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        timeout_s: float | None = None,
    ) -> RemovedKeys:
        """Remove all keys of a range at once.

        Args:
            prefix: Those that begin with it.
            start: First key, inclusive; not with `prefix`. All keys: `start=b""`.
            end: Exclusive; not with `prefix`.
            timeout_s: Time limit.

        Raises:
            InvalidCommandError: They are more than one command removes (10,000, or 3 MiB of keys); or no range is
                given.

        """
        if not prefix and start is None and end is None:
            raise InvalidCommandError('a range delete needs a range: start=b"" means all keys')
        reply, _ = await self._command(m.DeleteRange(*scan_range(prefix, start, end)), timeout_s)
        assert isinstance(reply, m.Removed)
        return RemovedKeys(reply.count, reply.revision)

    async def compare_and_set(
        self, key: bytes, *, expected: bytes | int | None, value: bytes | None, timeout_s: float | None = None
    ) -> CompareResult:
        """Write a key only if it is as expected.

        Args:
            key: The key.
            expected: Its value (bytes; not with a codec), its mod revision (int), or None: there is no such key.
            value: The new value; None removes the key.
            timeout_s: Time limit.

        """
        if isinstance(expected, bytes):
            self._check_plain("compare the mod revision")
        command = m.CompareAndSet(checked_key(key), expected, None if value is None else self._kept(key, value))
        reply, _ = await self._command(command, timeout_s)
        if isinstance(reply, m.Mismatched):
            return CompareResult(succeeded=False, revision=reply.revision)
        return CompareResult(succeeded=True, revision=_written(reply))

    async def increment(self, key: bytes, amount: int = 1, *, timeout_s: float | None = None) -> IncrementResult:
        """Add to the integer that a key holds as decimal digits; a key that does not exist counts as 0.

        Raises:
            InvalidCommandError: It holds something else, or the sum has more than 64 bits; or there is a codec.

        """
        self._check_plain("increment by a client without one")
        reply, _ = await self._command(m.Increment(checked_key(key), amount), timeout_s)
        assert isinstance(reply, m.Incremented)
        return IncrementResult(reply.value, reply.revision)

    async def transact(
        self,
        compares: Sequence[m.Compare] = (),
        then: Sequence[m.Operation] = (),
        orelse: Sequence[m.Operation] = (),
        *,
        timeout_s: float | None = None,
    ) -> TransactionResult:
        """If all comparisons hold, do the operations of `then`, else those of `orelse`: all of them or none.

        Args:
            compares: At most 256; without any, `then` is done.
            then: At most 256; each sees what those before it did.
            orelse: The same.
            timeout_s: Time limit.

        Raises:
            InvalidCommandError: An operation cannot be done (nothing was), or the answer would exceed 4 KiB: leave
                large values to `get`.

        """
        if any(compare.what == "value" for compare in compares):
            self._check_plain("compare revisions")
        command = m.MapTransaction(list(compares), self._operations(then), self._operations(orelse))
        reply, revision = await self._command(command, timeout_s)
        assert isinstance(reply, m.Executed)
        done = command.then if reply.succeeded else command.orelse
        results = [
            structs.replace(result, value=self._value(operation.key, result.value))
            if isinstance(result, m.Seen) and isinstance(operation, m.Read)
            else result
            for operation, result in zip(done, reply.results, strict=True)
        ]
        return TransactionResult(reply.succeeded, results, revision)

    def _operations(self, operations: Sequence[m.Operation]) -> list[m.Operation]:
        """Return operations with their values as they are kept."""
        if self._codec is None:
            return list(operations)
        kept: list[m.Operation] = []
        for operation in operations:
            if isinstance(operation, m.Increment):
                self._check_plain("increment by a client without one")
            if isinstance(operation, m.Put | m.PutExpiring):
                operation = structs.replace(operation, value=self._kept(operation.key, operation.value))  # noqa: PLW2901
            kept.append(operation)
        return kept


def _written(reply: m.MapReply) -> int:
    assert isinstance(reply, m.Written)
    return reply.revision
