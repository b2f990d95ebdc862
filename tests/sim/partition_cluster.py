"""Programs that write, grow and read one partitioned log, on simulated hosts; as replicas to the nemesis."""

# Longer than 400 lines: each kind of host is a method of the one cluster that all of them are in.

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from functools import partial
from types import SimpleNamespace

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from rsm_spark.core.plain_log import LogEndedError
from rsm_spark.core.producers import PartitionsChangedError, ProducerError, RecordSource
from rsm_spark.errors import (
    CorruptLogError,
    ForkedLogError,
    MissingLogError,
    NotLeaderError,
    OutcomeUnknownError,
    RsmError,
)
from rsm_spark.logs import (
    Logs,
    PartitionedLogReader,
    PartitionedLogWriter,
    PartitionPosition,
    PartitionRecord,
    partition_log,
    partition_of,
)
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from tests.sim.batch_runs import BatchRuns
from tests.sim.finished_parts import FinishedPartsTruth
from tests.sim.log_cluster import _Shown
from tests.sim.partition_truth import PartitionedRun, PartitionTruth

PARTITIONS_MAX = 7
_KEYS = 5
_WRITERS = 2
_PRODUCERS = 2
_MEMBERS = 2
_BATCHERS = 2
_FINISHED = 2
_ENDED_S = 20.0
_PATIENCE_S = 3.0
"""A producer waits so long for an answer before it sends a record again."""


class PartitionCluster:
    """Hosts with a program each: writers that depose each other and grow the log, one that orders it to grow, readers.

    Attributes:
        hosts: All of them.
        clients: Ledger clients of the running ones, by host name.
        replicas: What the nemesis asks for the phase of a take-over, by host name.
        writers: Those that are open, by host name: producers call them.
        produced: Batches of producers that were acknowledged.
        batches: Writers of batches.
        truth: What they have said and seen.
        finished: What readers of finished batches have seen.
        is_over: Writers stop.
        ends_from_s: From when on, in simulated seconds, a writer may end the log for ever.

    """

    def __init__(
        self,
        simulation: Simulation,
        world: LedgerWorld,
        settings: ReplicaSettings,
        *,
        has_producers: bool = False,
        has_members: bool = False,
        has_batches: bool = False,
        has_finished: bool = False,
    ) -> None:
        self.simulation = simulation
        self._has_producers = has_producers or has_batches
        self.world = world
        self.settings = settings
        self.truth = PartitionTruth()
        self.finished = FinishedPartsTruth(self.truth)
        self.clients: dict[str, TwinClient] = {}
        self.replicas: dict[str, SimpleNamespace] = {}
        self.snapshots: dict[str, object] = {}
        self.is_over = False
        self.ends_from_s = math.inf
        self.writers: dict[str, PartitionedLogWriter] = {}
        self.produced = 0
        self.writers_opened = 0
        self.truncations = 0
        self._rng = simulation.random("cluster")
        self._boots = 0
        self.hosts = [simulation.host(f"writer-{i}", self._write) for i in range(_WRITERS)]
        self.hosts += [simulation.host("grower", self._order), simulation.host("reader-0", self._read)]
        self.hosts += [simulation.host("reader-1", self._read), simulation.host("subscriber", self._subscribe)]
        if has_producers:
            self.hosts += [simulation.host(f"producer-{i}", self._produce) for i in range(_PRODUCERS)]
        self.batches = BatchRuns(self, _keyed_row, self._rng)
        if has_batches:
            self.hosts += [simulation.host(f"batch-{i}", self.batches.write) for i in range(_BATCHERS)]
        if has_finished:
            self.hosts += [simulation.host(f"finished-{i}", self._read_finished) for i in range(_FINISHED)]
        if has_members:
            self.hosts += [simulation.host(f"member-{i}", partial(self._share, i)) for i in range(_MEMBERS)]
        for host in self.hosts:
            host.on_exit.append(self._on_exit)

    @property
    def leader(self) -> str | None:
        """Host whose writer takes appends."""
        return next((name for name, one in self.replicas.items() if one.driver.protocol.leading), None)

    def start(self) -> None:
        for host in self.hosts:
            host.start()

    def _on_exit(self, host: SimHost) -> None:
        self.clients.pop(host.name, None)
        self.replicas.pop(host.name, None)
        self.writers.pop(host.name, None)
        reason = host.exits[-1]
        if isinstance(reason, BaseException):
            self.simulation.loop.fail(reason)
        if reason != "done":
            self.simulation.after(self._rng.uniform(0.1, 3.0), self._restart, host)

    def _restart(self, host: SimHost) -> None:
        if not host.is_up:
            host.start()

    async def connect(self, host: SimHost | None = None) -> Logs:
        """Return the logs as one process sees them."""
        client = TwinClient(self.world, await self.simulation.metadata.connect(session_timeout_ms=4000))
        self._boots += 1
        name = "judge" if host is None else host.name
        if host is not None:
            self.clients[host.name] = client
        rng = random.Random(f"{self.simulation.seed}.{name}.{self._boots}")
        clock_ms = self.hosts[0].clock_ms if host is None else host.clock_ms
        return Logs(client, self.settings, name=name, rng=rng, clock_ms=clock_ms)  # type: ignore[arg-type]

    # ---- writers

    async def _write(self, host: SimHost) -> None:
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while not self.is_over:
            await asyncio.sleep(rng.uniform(0.0, 2.0))
            try:
                await logs.create(LOG, partitions=2, exist_ok=True)
                if rng.random() < 0.1:
                    await self._truncate(logs, rng)
                writer = await logs.open_partitioned_writer(LOG, producers=self._has_producers)
            except (CorruptLogError, ForkedLogError) as error:
                self.truth.fail("one-log", f"{host.name} cannot open the log: {error}")
            except (LedgerError, RsmError):
                continue
            self.writers_opened += 1
            driver = writer._parts[0]._driver
            self.replicas[host.name] = SimpleNamespace(driver=driver, _context=_Shown(driver))
            self.writers[host.name] = writer
            try:
                await self._append(writer, rng)
            except (CorruptLogError, ForkedLogError) as error:
                self.truth.fail("one-log", f"{host.name} cannot write the log: {error}")
            except (LedgerError, RsmError):
                pass
            self.writers.pop(host.name, None)
            with contextlib.suppress(LedgerError, RsmError):
                await (writer.close() if rng.random() < 0.5 else writer.abort())

    async def _append(self, writer: PartitionedLogWriter, rng: random.Random) -> None:
        """Append in bursts, and grow the log while records are on their way, until deposed or tired."""
        for _ in range(rng.choice((1, 5, 40))):
            if self.is_over:
                return
            growing = None
            for _ in range(rng.choice((1, 3, 15))):
                key = b"k%d" % rng.randrange(_KEYS)
                payloads = [self.truth.new_payload(key) for _ in range(rng.choice((1, 1, 2)))]
                place = writer.append_many(payloads, key=key)
                place.add_done_callback(partial(self._appended, payloads))
                count = writer.partition_count
                if growing is None and count < PARTITIONS_MAX and rng.random() < 0.05:
                    growing = asyncio.get_running_loop().create_task(self._grow(writer, count + rng.choice((1, 2, 3))))
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.uniform(0.0, 0.01))
            if growing is not None:
                await growing
            if rng.random() < 0.5:
                await writer.flush()
            if self.simulation.loop.time() > self.ends_from_s and rng.random() < 0.2:
                await self.batches.ending.wait()
                await asyncio.sleep(rng.choice((0.0, 0.001, rng.uniform(0.0, 0.03))))
                await writer.mark_end()
            await asyncio.sleep(rng.choice((0.0, 0.002, 0.1)))
            if self._has_producers and rng.random() < 0.1:  # Who appends nothing does not hear that it is deposed.
                await asyncio.sleep(rng.uniform(0.0, 10.0))

    async def _grow(self, writer: PartitionedLogWriter, count: int) -> None:
        with contextlib.suppress(LedgerError, RsmError):
            await writer.grow(count)
            self.truth.growths += 1

    def _appended(self, payloads: list[bytes], appended: asyncio.Future[PartitionPosition]) -> None:
        error = None if appended.cancelled() else appended.exception()
        if appended.cancelled() or isinstance(error, OutcomeUnknownError):
            return
        for behind, payload in enumerate(reversed(payloads)):
            if error is None:
                place = appended.result()
                self.truth.acknowledge(payload, place._replace(position=place.position - behind))
            elif isinstance(error, NotLeaderError):
                self.truth.deny(payload)

    async def _truncate(self, logs: Logs, rng: random.Random) -> None:
        partition = rng.choice([*self.truth.parts, 0])
        seen = self.truth.part(partition).seen
        if seen:
            await logs.truncate(partition_log(LOG, partition), rng.randrange(max(seen) + 1))
            self.truncations += 1

    async def _order(self, host: SimHost) -> None:
        """Order the log to grow, whoever writes it."""
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while not self.is_over:
            await asyncio.sleep(rng.uniform(0.0, 15.0))
            with contextlib.suppress(LedgerError, RsmError):
                count = len((await logs.partitions(LOG)).partitions)
                if count < PARTITIONS_MAX:
                    await logs.grow(LOG, count + 1)
                    self.truth.growths += 1

    # ---- producers

    async def _produce(self, host: SimHost) -> None:
        """Be one producer after the other, each with keys of its own."""
        rng = random.Random(self._rng.random())
        while not self.is_over:
            name = f"{host.name}.{rng.getrandbits(32):08x}"
            await self._produce_as(ProducerLanes(name, rng.choice((1, 2))), rng, rng.choice((1, 5, 40)))
            await asyncio.sleep(rng.uniform(0.0, 0.5))

    async def _produce_as(self, lanes: ProducerLanes, rng: random.Random, batches: int) -> None:
        for _ in range(batches):
            key = f"of-{lanes.producer}-{rng.randrange(2)}".encode()
            payloads = [self.truth.new_payload(key) for _ in range(rng.choice((1, 1, 3)))]
            while payloads and not self.is_over:
                open_ones = sorted(self.writers)
                if open_ones:
                    payloads = await self._send(self.writers[rng.choice(open_ones)], lanes, key, payloads, rng)
                await asyncio.sleep(rng.choice((0.0, 0.01, 0.3)))

    async def _send(
        self, writer: PartitionedLogWriter, lanes: ProducerLanes, key: bytes, payloads: list[bytes], rng: random.Random
    ) -> list[bytes]:
        """Send records of a key to a writer; return those that have no answer. Some answers are lost."""
        partition, source = lanes.next(key)
        count, keys = lanes.partition_count, [key] * len(payloads)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                positions = await writer.produce(
                    source, payloads, partition=partition, partition_count=count, keys=keys
                )
        except PartitionsChangedError as error:
            positions = error.positions
            lanes.partition_count = error.partition_count
        except ProducerError as error:
            self.truth.fail("producer-known", str(error))
        except (RsmError, LedgerError, TimeoutError):
            return payloads
        for payload, position in zip(payloads, positions, strict=False):
            self.truth.acknowledge(payload, PartitionPosition(partition, position))
        if lanes.partition_count == count and rng.random() < 0.2:
            await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 20.0))))  # The log may grow meanwhile.
            return payloads  # Lost on its way back.
        lanes.took(partition, len(positions))
        self.produced += 1
        return payloads[len(positions) :]

    # ---- readers

    async def _read(self, host: SimHost) -> None:
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while True:
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            start = {p: rng.choice([1, *part.seen]) for p, part in self.truth.parts.items() if rng.random() < 0.5}
            try:
                reader = await logs.partitioned_reader(LOG, rng.choice((start, "begin")), follow=rng.random() < 0.8)
            except (LedgerError, RsmError):
                continue
            await self._hand_out(reader, rng, limit=rng.choice((5, 1000)))

    async def _read_finished(self, host: SimHost) -> None:
        """Read finished batches only, from places of any kind."""
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while True:
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            start = {p: rng.choice([1, *part.seen]) for p, part in self.truth.parts.items() if rng.random() < 0.5}
            try:
                reader = await logs.partitioned_reader(LOG, start, follow=rng.random() < 0.8, finished_batches=True)
            except (LedgerError, RsmError):
                continue
            await self._hand_out_finished(reader, rng, limit=rng.choice((5, 1000)))

    async def _hand_out_finished(self, reader: PartitionedLogReader, rng: random.Random, *, limit: int) -> None:
        run = self.finished.run()
        try:
            for _ in range(limit):
                for record in await reader.read(rng.choice((1, 10, 100)), wait_s=rng.uniform(0.0, 2.0)):
                    self.finished.see(run, record)
                if reader.is_ended:
                    break
            if reader.has_ended:  # Nothing new will ever be there.
                await asyncio.sleep(_ENDED_S)
        except (CorruptLogError, ForkedLogError) as error:
            self.truth.fail("no-gap", f"a reader meets what does not follow: {error}")
        except (LedgerError, RsmError):
            return
        finally:
            with contextlib.suppress(LedgerError, RsmError):
                await reader.close()

    async def _subscribe(self, host: SimHost) -> None:
        """Read under a name; what was not processed must still be there."""
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while True:
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            try:
                reader = await logs.partitioned_reader(LOG, subscription="billing", lock_wait_s=2.0)
            except MissingLogError as error:
                self.truth.fail("held-is-kept", str(error))
            except (LedgerError, RsmError):
                continue
            await self._hand_out(reader, rng, limit=rng.choice((5, 50)), is_held=True)

    async def _share(self, member: int, host: SimHost) -> None:
        """Read a share of the partitions; the other members of the subscription read the rest."""
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while True:
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            try:
                count = len((await logs.partitions(LOG)).partitions)
                mine = [partition for partition in range(count) if partition % _MEMBERS == member]
                reader = await logs.partitioned_reader(
                    LOG, subscription="shared", partitions=mine, shared=True, lock_wait_s=None
                )
            except MissingLogError as error:
                self.truth.fail("held-is-kept", str(error))
            except (LedgerError, RsmError):
                continue
            await self._hand_out(reader, rng, limit=rng.choice((5, 50)), is_held=True, member=member)

    async def _hand_out(
        self,
        reader: PartitionedLogReader,
        rng: random.Random,
        *,
        limit: int,
        is_held: bool = False,
        member: int | None = None,
    ) -> None:
        run = PartitionedRun(reader)
        try:
            for _ in range(limit):
                for record in await reader.read(rng.choice((1, 10, 100)), wait_s=rng.uniform(0.0, 2.0)):
                    self.truth.see(run, record)
                    if member is not None:
                        self.truth.share(member, record)
                if reader.is_ended:
                    break
                if is_held and run.numbers and rng.random() < 0.7:
                    await reader.processed()
            if reader.has_ended:
                await asyncio.sleep(_ENDED_S)
        except (CorruptLogError, ForkedLogError) as error:
            self.truth.fail("no-gap", f"a reader meets what does not follow: {error}")
        except (LedgerError, RsmError):
            return
        finally:
            with contextlib.suppress(LedgerError, RsmError):
                await reader.close()


def _keyed_row(writer: str, batch: int, part: int, chunk: int, row: int) -> tuple[bytes | None, bytes]:
    """Return a row of one of two keys of the part, whose number is that of its place in the batches."""
    key = f"{writer}.{part}.{(chunk + row) % 2}".encode()
    return key, b"%b:%d" % (key, batch * 10_000 + chunk * 100 + row + 1)


class ProducerLanes:
    """One producer's side of a partitioned log: where its next record goes, and under which sequence.

    Attributes:
        producer: Its id.
        partition_count: As far as it knows.

    """

    def __init__(self, producer: str, partition_count: int) -> None:
        self.producer = producer
        self.partition_count = partition_count
        self._sequences: dict[int, int] = {}

    def next(self, key: bytes) -> tuple[int, RecordSource]:
        partition = partition_of(key, self.partition_count)
        return partition, RecordSource(self.producer, "sim", self._sequences.get(partition, 0) + 1)

    def took(self, partition: int, count: int) -> None:
        self._sequences[partition] = self._sequences.get(partition, 0) + count


async def final_state(cluster: PartitionCluster) -> tuple[list[PartitionRecord], dict[int, int]]:
    """Append a last record of every key, and read all that there is."""
    logs = await cluster.connect()
    await logs.create(LOG, partitions=2, exist_ok=True)
    while True:
        try:
            writer = await logs.open_partitioned_writer(LOG)
            for number in range(_KEYS):
                key = b"k%d" % number
                payload = cluster.truth.new_payload(key)
                cluster.truth.acknowledge(payload, await writer.append(payload, key=key))
            await writer.close()
            break
        except LogEndedError:
            break
        except (LedgerError, NotLeaderError, OutcomeUnknownError):
            await asyncio.sleep(0.5)
    reader = await logs.partitioned_reader(LOG, follow=False)
    begun: dict[int, int] = {p: part.reader._start.position - 1 for p, part in reader._parts.items()}
    run, found = PartitionedRun(reader), []
    async for record in reader:
        cluster.truth.see(run, record)
        found.append(record)
    await reader.close()
    last = None if any(begun.values()) else cluster.finished.run()
    if last is not None:
        finished = await logs.partitioned_reader(LOG, follow=False, finished_batches=True)
        async for record in finished:
            cluster.finished.see(last, record)
        await finished.close()
    cluster.finished.judge(found, last)
    return found, begun
