"""Logs that a gateway writes: it becomes the writer of a log when somebody appends, if no other gateway is.

Who writes a log is found in ZooKeeper: its chain names the last writer, whose member node lives as long as its session.
A gateway opens a log only where no writer is alive; two that open it at once depose one another by the log's own rules,
and the loser finds the winner. So at most one gateway's appends are confirmed, whatever any of them believes.

* `WrittenElsewhereError`   a `LogError`: another gateway writes the log
* `ForeignWriterError`      a `LogError`: a program writes the log
* `RouteError`              a `LogError`: an append names no partitions, and the log has some, or the other way round
* `TooMuchWaitsError`       a `LogError`: so much waits to be appended that more has to wait outside
"""

# Longer than 400 lines: bounds, taking over and letting go of one set of writers.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError
from rsm_spark.core.plain_log import LogEndedError
from rsm_spark.core.producers import RANGES_MAX, RecordSource
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, WriterMark
from rsm_spark.errors import LogError, NotLeaderError, OutcomeUnknownError, RsmError
from rsm_spark.gateway.settings import GatewaySettings
from rsm_spark.log.discovery import Discovery
from rsm_spark.logs.namespace import Logs
from rsm_spark.logs.partitioned_writer import PartitionedLogWriter
from rsm_spark.logs.record_writer import PlainLogWriter
from rsm_spark.logs.writer_place import WriterPlace

_A = TypeVar("_A")
_K = TypeVar("_K")
_LOGGER = logging.getLogger(__name__)
_TRIES = 3
_OPENING_MAX = 16
_CLOSE_S = 2.0
_SIZE = 64
"""Bytes that a record counts at least."""


class WrittenElsewhereError(LogError):
    """Another gateway writes the log.

    Args:
        message: For people.
        url: Of that gateway.
        grpc_address: The same over gRPC, "host:port"; "" = it does not serve it.

    """

    def __init__(self, message: str, url: str, grpc_address: str = "") -> None:
        super().__init__(message)
        self.url = url
        self.grpc_address = grpc_address


class ForeignWriterError(LogError):
    """A program has opened the log as its writer: a gateway does not fence it."""


class TooMuchWaitsError(LogError):
    """So much waits to be appended that more has to wait outside."""


class RouteError(LogError):
    """An append to a partitioned log has to name a partition, one to another log must not."""


class AppendRoute(NamedTuple):
    """Way of a producer's records into a partitioned log.

    Attributes:
        partition: Where they go.
        partition_count: By which number of partitions.

    """

    partition: int
    partition_count: int


class HeldLog:
    """One log that this gateway writes.

    Attributes:
        writer: Of it.
        used_s: Loop time of the last append.
        bytes: That wait to be confirmed.
        owners: The same by owner; none is 0.
        producers: Appends by producer and partition that wait; none is 0.

    """

    def __init__(self, writer: PlainLogWriter | PartitionedLogWriter, now_s: float) -> None:
        self.writer = writer
        self.used_s = now_s
        self.bytes = 0
        self.owners: Counter[str] = Counter()
        self.producers: Counter[tuple[str, int]] = Counter()

    @property
    def pieces(self) -> int:
        """Number of its partitions; 1 = it has none."""
        return self.writer.partition_count if isinstance(self.writer, PartitionedLogWriter) else 1

    async def produce(
        self,
        source: RecordSource,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        route: AppendRoute | None,
    ) -> list[int]:
        """Append records of a producer; see `PlainLogWriter.produce`, `PartitionedLogWriter.produce`.

        Raises:
            RouteError: The route is missing, or there must be none.
            RsmError, LedgerError: See there.

        """
        writer = self.writer
        if isinstance(writer, PlainLogWriter):
            if route is not None:
                raise RouteError(f"log {writer.log}: it is not partitioned: leave out partition and partitions")
            return await writer.produce(source, payloads, keys=keys)
        if route is None:
            raise RouteError(
                f"log {writer.log}: it is partitioned: name a partition, and how many partitions it was chosen by "
                f"(partition, partitions); it has {writer.partition_count}"
            )
        return await writer.produce(
            source, payloads, partition=route.partition, partition_count=route.partition_count, keys=keys
        )

    async def write_marked(
        self,
        mark: WriterMark,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        txids: Sequence[int] | None,
        owner: str,
    ) -> MarkedReply:
        """Append rows of a writer's batch; see `PlainLogWriter.write_marked`, `PartitionedLogWriter.write_marked`.

        Raises:
            RsmError, LedgerError: See there.

        """
        return await self.writer.write_marked(mark, payloads, keys=keys, txids=txids, owner=owner)

    @contextlib.contextmanager
    def waits(
        self, source: RecordSource, size: int, bytes_max: int, owner_max: int, partition: int = -1
    ) -> Iterator[None]:
        """Count an append while the block runs.

        Raises:
            TooMuchWaitsError: There is no room for it.

        """
        lane = source.producer, partition
        if self.producers[lane] >= RANGES_MAX:
            raise TooMuchWaitsError(f"{RANGES_MAX} appends of producer {source.producer!r} are under way: wait for one")
        if self.owners[source.owner] and self.owners[source.owner] + size > owner_max:
            raise TooMuchWaitsError("what waits to be appended for you fills your part of this log's room: send less")
        if self.bytes and self.bytes + size > bytes_max:
            raise TooMuchWaitsError("what waits to be appended fills this log's room: come again")
        self.bytes += size
        self.owners[source.owner] += size
        self.producers[lane] += 1
        try:
            yield
        finally:
            self.bytes -= size
            _less(self.owners, source.owner, size)
            _less(self.producers, lane, 1)


class HeldLogs:
    """See the module. For one event loop.

    Args:
        client: Connected.
        logs: The same cluster's.
        place: Where clients reach this gateway.
        settings: See `GatewaySettings`.

    Attributes:
        appended: Records that were appended.
        opened: Writers that were opened.
        lost: Writers that another one deposed.

    """

    def __init__(self, client: LedgerClient, logs: Logs, place: WriterPlace, settings: GatewaySettings) -> None:
        self.appended = 0
        self.opened = 0
        self.lost = 0
        self._client = client
        self._logs = logs
        self._place = place
        self._settings = settings
        self._held: dict[str, HeldLog] = {}
        self._opening: dict[str, asyncio.Task[HeldLog]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_OPENING_MAX)
        self._is_closed = False

    @property
    def count(self) -> int:
        """Number of logs that it writes."""
        return len(self._held)

    @property
    def pieces(self) -> int:
        """Number of logs that it writes; a partitioned one counts as its partitions."""
        return sum(held.pieces for held in self._held.values())

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be confirmed."""
        return sum(held.bytes for held in self._held.values())

    def confirmed(self, log: str) -> int:
        """Return up to which position a log is confirmed, as far as this gateway writes it; 0 = it does not.

        Of a partitioned log 0, too: a reader of all its partitions reads until it knows that no more is there.
        """
        held = self._held.get(log)
        return held.writer.last_position if held is not None and isinstance(held.writer, PlainLogWriter) else 0

    async def append(
        self,
        log: str,
        source: RecordSource,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        route: AppendRoute | None = None,
    ) -> list[int]:
        """Append records of a producer, each once, and return their positions; in the partition that a route names.

        Raises:
            WrittenElsewhereError, ForeignWriterError, TooMuchWaitsError, RouteError: See there.
            ProducerError, PlainLogError, NoSuchLogError: See `PlainLogWriter.produce`, `Logs.open_writer`.
            TimeoutError: It is not known whether they are in the log: send them again.
            RsmError, LedgerError: It cannot be done now.

        """
        size = sum(map(len, payloads)) + _SIZE * len(payloads)
        partition = -1 if route is None else route.partition
        positions = await self._by_writer(
            log, source, size, partition, lambda held: held.produce(source, payloads, keys, route)
        )
        self.appended += len(positions)
        return positions

    async def write_marked(
        self,
        log: str,
        owner: str,
        mark: WriterMark,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        txids: Sequence[int] | None = None,
    ) -> MarkedReply:
        """Append rows of a writer's batch, once; see `PlainLogWriter.write_marked`.

        Raises:
            WrittenElsewhereError, ForeignWriterError, TooMuchWaitsError: See there.
            PlainLogError, NoSuchLogError: See `PlainLogWriter.write_marked`, `Logs.open_writer`.
            TimeoutError: It is not known whether they are in the log: send them again.
            RsmError, LedgerError: It cannot be done now.

        """
        lane = RecordSource(f"writer {mark.writer}", owner, 1)
        size = sum(map(len, payloads)) + _SIZE * (len(payloads) + 1)
        reply = await self._by_writer(
            log, lane, size, mark.part, lambda held: held.write_marked(mark, payloads, keys, txids, owner)
        )
        self.appended += len(payloads) if reply.status is MarkedStatus.APPLIED else 0
        return reply

    async def _by_writer(
        self, log: str, source: RecordSource, size: int, lane: int, act: Callable[[HeldLog], Awaitable[_A]]
    ) -> _A:
        """Have the log's writer do something, within bounds; another one that this gateway opens, if it is deposed."""
        settings = self._settings
        owner_max = int(settings.log_bytes_max * settings.owner_part)
        async with asyncio.timeout(settings.append_s):
            for left in range(_TRIES - 1, -1, -1):
                held = await self.hold(log)
                with held.waits(source, size, settings.log_bytes_max, owner_max, lane):
                    held.used_s = asyncio.get_running_loop().time()
                    try:
                        return await act(held)
                    except (NotLeaderError, OutcomeUnknownError):
                        self._forget(log, held)  # Whoever writes now knows what is in the log.
                        if not left:
                            raise
                    except LogEndedError:
                        self._forget(log, held)  # A program has ended it: nobody writes it any more.
                        raise
        raise AssertionError("the last try returns or raises")

    async def hold(self, log: str) -> HeldLog:
        """Return a log that this gateway writes; take it over if nobody writes it.

        Raises:
            WrittenElsewhereError, ForeignWriterError: Somebody does.
            NoSuchLogError, LogEndedError, PlainLogError: See `Logs.open_writer`.
            TooMuchWaitsError: This gateway writes as many logs as it may.
            RsmError, LedgerError, TimeoutError: It cannot be done now.

        """
        held = self._held.get(log)
        if held is not None:
            return held
        task = self._opening.get(log)
        if task is None:
            task = self._opening[log] = asyncio.get_running_loop().create_task(self._open(log))
            task.add_done_callback(lambda done: self._opened(log, done))
        return await asyncio.shield(task)

    def _opened(self, log: str, task: asyncio.Task[HeldLog]) -> None:
        self._opening.pop(log, None)
        if not task.cancelled():
            task.exception()  # Whoever waited for it may have gone.

    async def _open(self, log: str) -> HeldLog:
        settings = self._settings
        async with self._turns, asyncio.timeout(settings.open_s):
            await self.find(log)
            if self.pieces >= settings.logs_max and not await self._let_one_go():
                raise TooMuchWaitsError(f"this gateway writes {self.count} logs, no more go: ask another one")
            writer: PlainLogWriter | PartitionedLogWriter
            if await self._logs.is_partitioned(log):
                writer = await self._logs.open_partitioned_writer(log, producers=True, place=self._place)
            else:
                writer = await self._logs.open_writer(log, producers=True, place=self._place)
        if self._is_closed:
            await writer.abort()
            raise NotLeaderError("the gateway stops")
        self.opened += 1
        held = self._held[log] = HeldLog(writer, asyncio.get_running_loop().time())
        return held

    async def find(self, log: str) -> None:
        """Return if nobody but this gateway writes a log.

        Raises:
            WrittenElsewhereError, ForeignWriterError: Somebody does.
            NoSuchLogError: There is no log of this name.
            MetadataError: ZooKeeper cannot be asked.

        """
        if await self._logs.is_partitioned(log):
            member = await self._logs.partitioned_writer(log)
        else:
            found = await Discovery(self._client.store, log, self._logs.settings.rsm_root).leader()
            member = None if found is None else found[1]
        if member is None or member.http == self._place.http:
            return
        if not member.http:
            raise ForeignWriterError(
                f"log {log}: the program {member.replica_id} writes it: end that, then a gateway takes it over"
            )
        url = f"{'https' if member.http_is_tls else 'http'}://{member.http}"
        raise WrittenElsewhereError(f"log {log}: the gateway at {url} writes it", url, member.gateway_grpc)

    def _forget(self, log: str, held: HeldLog) -> None:
        if self._held.get(log) is not held:
            return
        del self._held[log]
        self.lost += 1
        # One that is deposed in one partition has others open, and says that it writes the log.
        ending = asyncio.get_running_loop().create_task(held.writer.abort())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    # ---- letting go

    async def let_go(self, log: str) -> None:
        """Close the writer of a log, if this gateway has it: what is under way is confirmed before."""
        held = self._held.pop(log, None)
        if held is not None:
            await _close(held)
        if self._ending:
            await asyncio.wait(frozenset(self._ending))  # One of them may be of this log.

    async def _let_one_go(self) -> bool:
        """Let go of the log that was used least lately, of those to which nothing is being appended."""
        idle = [(held.used_s, log) for log, held in self._held.items() if not held.bytes]
        if not idle:
            return False
        await self.let_go(min(idle)[1])
        return True

    async def run(self) -> None:
        """Let go of what nobody uses, until cancelled."""
        idle_s = self._settings.idle_s
        while True:
            await asyncio.sleep(idle_s / 4)
            now_s = asyncio.get_running_loop().time()
            for log, held in list(self._held.items()):
                if not held.bytes and now_s - held.used_s > idle_s:
                    await self.let_go(log)

    async def close(self) -> None:
        """Let go of all of them: other gateways may have them at once."""
        self._is_closed = True
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._ending, *map(self.let_go, list(self._held)), return_exceptions=True)


async def _close(held: HeldLog) -> None:
    try:
        async with asyncio.timeout(_CLOSE_S):
            await held.writer.close()
    except (RsmError, LedgerError, TimeoutError) as error:
        _LOGGER.info("a writer did not end in good order: %s", error, extra={"log": held.writer.log})


def _less(counts: Counter[_K], key: _K, amount: int) -> None:
    counts[key] -= amount
    if not counts[key]:
        del counts[key]
