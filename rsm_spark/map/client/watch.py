"""Watching the map: every change of a range of keys from a revision on, each once, in order, none missing.

    async for change in client.watch(prefix=b"order/"):
        print(change.revision, change.kind, change.key, change.value)

To begin with what is there: read first, then watch from the revision behind it.

    async for page in client.scan_pages(prefix=b"order/"):
        ...
    watch = client.watch(prefix=b"order/", from_revision=page.revision + 1)

A watch goes on over lost connections, failovers and restarts of replicas. Only confirmed changes are told. All changes
of one command have one revision, the mod revision of their keys. To go on in another process, keep `watch.revision` and
begin at the one behind it, as long as the log holds it: it names no command before its last change is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from typing import Literal, NamedTuple, Self

import msgspec

from ledger.errors import LedgerError
from rsm_spark.client.consumers import ClientConsumers
from rsm_spark.client.told_attempts import ToldAttempts
from rsm_spark.client.watched_replicas import WatchedReplicas
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, MissingLogError, RsmError
from rsm_spark.map.client.calls import MapCalls, scan_range
from rsm_spark.map.client.results import MapValue
from rsm_spark.map.client.watch_place import WatchPlace
from rsm_spark.map.records import DELETED, EXPIRED, MAP_TABLE, PUT
from rsm_spark.map.rows import columns_of, entry_of, row_of, value_of
from rsm_spark.runtime.change_filter import TableChange
from rsm_spark.transport.watch_client import watch_replica
from rsm_spark.transport.watch_codec import ReceivedChanges, WatchRequest

PROGRESS_MS = 2_000
_SILENCE_PROGRESSES = 4
_SILENCE_S_MIN = 3.0
_REFUSALS_MAX = 6
_NO_CONSUMERS = "this client knows replicas alone, no metadata store: connect it without `replica` to hold the log"

ChangeKind = Literal["put", "deleted", "expired"]
_TYPES: dict[str, int] = {"put": PUT, "deleted": DELETED, "expired": EXPIRED}


class MapChange(NamedTuple):
    """A key was written or removed.

    Attributes:
        key: The key.
        value: What it holds now; None = it is gone.
        revision: Mod revision: that of the last record of its command, the same for all keys that the command changed.
            In what versions of the map before 4 have written each change has that of its own record.
        kind: "put"; "deleted" by a command; "expired": by time, or with its lease.
        logged_ms: Logged time, ms since 1970.
        create_revision: Of a key that was put: revision of the record that created it; 0 = a record of a version of
            the map before 3, which does not tell.
        version: Number of its writes since then, the first one included; 0 likewise.
        old: With `old_values`: what the key held before; None = it did not exist.
        is_last: There are no more changes of this revision in the watch. Who goes on behind the revision of another
            one misses the rest of its command.

    """

    key: bytes
    value: bytes | None
    revision: int
    kind: ChangeKind
    logged_ms: int
    create_revision: int = 0
    version: int = 0
    old: MapValue | None = None
    is_last: bool = True


class MapWatch:
    """A watch under way: iterate over it, once. Made by `MapWatches.watch`.

    Attributes:
        revision: All changes up to here have been given, the one in hand included; 0 before the first word of a
            replica. While a command has more changes to come it stands before the command.
        address: Of the replica that tells; "" while there is none.
        connections: Streams opened so far.

    """

    def __init__(
        self,
        replicas: WatchedReplicas,
        request: WatchRequest,
        patience_s: float | None,
        value: Callable[[bytes, bytes], bytes],
        begin: Callable[[int | None], Awaitable[int | None]] | None = None,
    ) -> None:
        self._begin = begin
        self._replicas = replicas
        self._request = request
        self._patience_s = patience_s
        self._value = value
        self._place = WatchPlace(request.from_revision, request.types)
        self.address = ""
        self.connections = 0
        self._changes = self._run()

    @property
    def revision(self) -> int:
        return self._place.revision

    def settled(self, revision: int) -> int:
        """Return up to where all is processed if all that was given up to a revision is; see `WatchPlace`."""
        return self._place.settled(revision)

    def __aiter__(self) -> Self:
        """Return the watch."""
        return self

    async def __anext__(self) -> MapChange:
        """Wait for the next change.

        Raises:
            MissingLogError: The log does not hold the next revision any more, or no replica remembers the old value of
                a change: its `last_revision` + 1 is the first that is there, or whose old value is known.
            NoLeaderError: No replica has said anything for `patience_s`.
            AccessDeniedError: Replicas refuse this caller, for some seconds.
            ConsumerError: The consumer cannot be registered.

        """
        return await anext(self._changes)

    async def aclose(self) -> None:
        """End the watch."""
        await self._changes.aclose()

    async def _run(self) -> AsyncGenerator[MapChange, None]:
        place = self._place
        if self._begin is not None:
            known = await self._begin(None if place.begins_now else place.revision)
            if known is not None:
                place.begin_behind(known)
        attempts, refusals = ToldAttempts(self._replicas, self._request.log, self._patience_s), 0
        while True:
            address = await attempts.pick()
            if address is not None:
                try:
                    framed = await self._replicas.find_framed(address)
                    async for received in self._stream(address, framed, place.next_revision):
                        is_of_use = bool(received.changes) or not refusals
                        attempts.heard(is_of_use=is_of_use)
                        if is_of_use:
                            refusals = 0
                        self._check_told(address, received)
                        if place.begins_now and self._begin is not None:
                            first = min((one.revision - 1 for one in received.changes), default=received.up_to)
                            place.begin_behind(await self._begin(first) or first)
                        for change, is_last in place.take(received):
                            yield self._told(change)._replace(is_last=is_last)
                except ConnectionLostError as error:
                    attempts.failed(error)
                except MissingLogError:
                    # Another replica may remember, or this one once its state is built anew.
                    refusals += 1
                    if not self._request.old_rows or refusals > _REFUSALS_MAX:
                        raise
                    attempts.number = refusals - 1
                finally:
                    self.address = ""
            await attempts.pause()

    def _check_told(self, address: str, received: ReceivedChanges) -> None:
        if self._request.old_rows and received.changes and not received.has_old_rows:
            raise ConnectionLostError(
                f"{address}: the replica is of a version that does not tell old values: upgrade it"
            )

    def _told(self, change: TableChange) -> MapChange:
        told = self._new(change)
        if not change.old_revision or change.old_row is None:
            return told
        value, *numbers = columns_of(entry_of(change.old_row, change.old_revision), counts=True)
        return told._replace(old=MapValue(self._value(told.key, value), *numbers))

    def _new(self, change: TableChange) -> MapChange:
        key = value_of(change.key)
        if change.row is None:
            return MapChange(
                key, None, change.mod_revision, "expired" if change.type == EXPIRED else "deleted", change.logged_ms
            )
        row = row_of(change.row)
        value = self._value(key, row.value)
        return MapChange(key, value, change.mod_revision, "put", change.logged_ms, row.create_revision, row.version)

    def _stream(self, address: str, framed: str, from_revision: int) -> AsyncIterator[ReceivedChanges]:
        self.address = address
        self.connections += 1
        request = msgspec.structs.replace(self._request, from_revision=from_revision)
        silence_s = max(_SILENCE_S_MIN, _SILENCE_PROGRESSES * request.progress_ms / 1000)
        return watch_replica(address, request, self._replicas.security, framed=framed, silence_s_max=silence_s)


class MapWatches(MapCalls):
    """The call that begins a watch."""

    _watched: WatchedReplicas
    _consumers: ClientConsumers | None = None
    _watching: dict[str, MapWatch]

    async def close(self) -> None:
        """Give up what is still waiting, and disconnect."""
        if self._consumers is not None:
            # The log stays held as it is: a little more than is needed.
            with contextlib.suppress(LedgerError, RsmError):
                await self._consumers.flush()
        await super().close()

    async def processed(self, consumer: str, revision: int) -> None:
        """Let go of what a consumer has processed: changes up to a revision, which may be trimmed then.

        It is written down at most once a second, and when the client is closed. After a restart `watch` with the same
        name goes on behind what was written down: it may give changes again that have been processed. A command of
        which not all changes have been given is not processed yet: after a restart it comes again as a whole.

            async for change in client.watch(prefix=b"order/", consumer="billing"):
                ...
                await client.processed("billing", change.revision)

        Args:
            consumer: Name of the consumer, as in `watch`.
            revision: Of the last change that need not be given again.

        Raises:
            ConsumerError: No watch of this client has that name; or another reader has it now, or an operator has
                removed it: the log is not held for it.
            MetadataError: The metadata store cannot be asked; the next call tries again.

        """
        if self._consumers is None:
            raise InvalidCommandError(_NO_CONSUMERS)
        watch = self._watching.get(consumer)
        await self._consumers.processed(consumer, revision if watch is None else watch.settled(revision))

    def watch(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        kinds: Collection[ChangeKind] = (),
        old_values: bool = False,
        from_revision: int | None = None,
        progress_ms: int = PROGRESS_MS,
        patience_s: float | None = None,
        consumer: str = "",
    ) -> MapWatch:
        """Return the changes of a range of keys, for ever.

            async for change in client.watch(prefix=b"order/"):
                print(change.revision, change.key, change.value)

        Args:
            prefix: Only keys that begin with it.
            start: First key, inclusive; not with `prefix`.
            end: Exclusive; not with `prefix`.
            kinds: Only changes of these kinds, chosen by the replica: "put", "deleted", "expired"; () = all.
            old_values: Each change says what the key held before. A replica remembers that of the last changes, 32 MiB
                of them. For a watch that begins further back it reads the nearest snapshot, its own or the lake's, and
                the log behind that, which takes seconds for a million keys. Where no replica has such a snapshot, and
                the log's beginning was trimmed, it is a `MissingLogError`.
            from_revision: First revision wanted, inclusive; it may be long ago, as long as the log holds it, or yet to
                come. None = what comes after the replica's present one.
            progress_ms: How often `MapWatch.revision` moves on though nothing in the range changes.
            patience_s: Give up when no replica has said anything for so long; None = never.
            consumer: Name under which the log is held for this watch, until `processed` lets go of it. Without
                `from_revision` the watch goes on where the consumer of this name stands. "" = nothing is held.

        """
        begin = None
        if consumer:
            consumers = self._consumers
            if consumers is None:
                raise InvalidCommandError(_NO_CONSUMERS)

            async def begin(revision: int | None) -> int | None:
                return await consumers.begin(consumer, revision)

        first, behind = scan_range(prefix, start, end)
        if from_revision is not None and from_revision < 1:
            raise InvalidCommandError(f"from_revision {from_revision}: the first revision of a log is 1")
        unknown = sorted(set(kinds) - _TYPES.keys())
        if unknown:
            raise InvalidCommandError(f"kinds {', '.join(unknown)}: a change is one of {', '.join(_TYPES)}")
        types = tuple(sorted(_TYPES[kind] for kind in set(kinds)))
        request = WatchRequest(self._log, MAP_TABLE, first, behind, from_revision or 0, progress_ms, types, old_values)
        watch = MapWatch(self._watched, request, patience_s, self._value, begin)
        if consumer:
            self._watching[consumer] = watch
        return watch
