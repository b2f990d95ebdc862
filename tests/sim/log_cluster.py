"""Programs that write and read one plain log, on simulated hosts; made to look like replicas to the nemesis."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from types import SimpleNamespace
from typing import Literal

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from rsm_spark.core.producers import ProducerError, RecordSource
from rsm_spark.errors import (
    CorruptLogError,
    ForkedLogError,
    MissingLogError,
    NotLeaderError,
    OutcomeUnknownError,
    RsmError,
)
from rsm_spark.logs import LogEndedError, Logs, PlainLogReader, PlainLogWriter
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from tests.sim.batch_runs import BatchRuns, rows_of_batch
from tests.sim.finished_truth import FinishedRun, FinishedTruth
from tests.sim.log_truth import LogTruth, ReaderRun

_WRITERS = 3
_READERS = 2
_PRODUCERS = 2
_BATCHERS = 2
_WINDOW = 4
_PATIENCE_S = 3.0


class LogCluster:
    """Hosts with a program each: writers that depose each other, readers with and without a subscription.

    Attributes:
        hosts: All of them.
        clients: Ledger clients of the running ones, by host name.
        replicas: What the nemesis asks for the phase of a take-over, by host name.
        truth: What they have said and seen.
        finished: What readers of finished batches have seen.
        writers: Those that are open, by host name: producers call them.
        produced: Batches of producers that were acknowledged.
        batches: Writers of batches.
        is_over: Writers stop.

    """

    def __init__(
        self, simulation: Simulation, world: LedgerWorld, settings: ReplicaSettings, *, finished_readers: int = 0
    ) -> None:
        self.simulation = simulation
        self.world = world
        self.settings = settings
        self.truth = LogTruth()
        self.finished = FinishedTruth(self.truth, batch_payloads)
        self.clients: dict[str, TwinClient] = {}
        self.replicas: dict[str, SimpleNamespace] = {}
        self.snapshots: dict[str, object] = {}
        self.writers: dict[str, PlainLogWriter] = {}
        self.produced = 0
        self.is_over = False
        self.writers_opened = 0
        self.truncations = 0
        self._rng = simulation.random("cluster")
        self._boots = 0
        self.batches = BatchRuns(self, _plain_row, self._rng)
        writers = [simulation.host(f"writer-{i}", self._write) for i in range(_WRITERS)]
        readers = [simulation.host(f"reader-{i}", self._read) for i in range(_READERS)]
        readers += [simulation.host("subscriber-0", self._subscribe), simulation.host("subscriber-1", self._subscribe)]
        readers += [simulation.host(f"finished-{i}", self._read_finished) for i in range(finished_readers)]
        producers = [simulation.host(f"producer-{i}", self._produce) for i in range(_PRODUCERS)]
        batchers = [simulation.host(f"batch-{i}", self.batches.write) for i in range(_BATCHERS)]
        self.hosts = writers + readers + producers + batchers
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
                await logs.create(LOG, exist_ok=True)
                if rng.random() < 0.2:
                    await self._truncate(logs, rng)
                writer = await logs.open_writer(LOG, producers=rng.random() < 0.7)
            except (CorruptLogError, ForkedLogError) as error:
                self.truth.fail("one-log", f"{host.name} cannot open the log: {error}")
            except (LedgerError, RsmError):
                continue
            self.writers_opened += 1
            self._show(host, writer)
            try:
                await self._append(host, writer, rng)
                await (writer.close() if rng.random() < 0.5 else writer.abort())
            except (CorruptLogError, ForkedLogError) as error:
                self.truth.fail("one-log", f"{host.name} cannot write the log: {error}")
            except (LedgerError, RsmError):
                continue
            finally:
                self.writers.pop(host.name, None)

    def _show(self, host: SimHost, writer: PlainLogWriter) -> None:
        """Show the nemesis where this writer stands."""
        driver = writer._driver
        self.writers[host.name] = writer
        self.replicas[host.name] = SimpleNamespace(driver=driver, _context=_Shown(driver))

    async def _append(self, host: SimHost, writer: PlainLogWriter, rng: random.Random) -> None:
        """Append in bursts, until deposed or tired; some wait for outcomes, some do not."""
        for _ in range(rng.choice((1, 5, 40))):
            if self.is_over:
                return
            futures = []
            for _ in range(rng.choice((1, 3, 15))):
                txid = rng.choice((None, writer.last_txid + rng.randrange(3)))
                payloads = [self._payload(host) for _ in range(rng.choice((1, 1, 3)))]
                appended = writer.append_many(payloads, txid=txid)
                appended.add_done_callback(partial(self._appended, payloads))
                futures.append(appended)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.uniform(0.0, 0.01))
            if rng.random() < 0.5:
                await futures[-1]
            await asyncio.sleep(rng.choice((0.0, 0.002, 0.1)))

    def _payload(self, host: SimHost) -> bytes:
        self._boots += 1
        return f"{host.name} {self._boots}".encode()

    def _appended(self, payloads: list[bytes], appended: asyncio.Future[int]) -> None:
        error = None if appended.cancelled() else appended.exception()
        if appended.cancelled() or isinstance(error, OutcomeUnknownError):
            return
        for behind, payload in enumerate(reversed(payloads)):
            if error is None:
                self.truth.acknowledge(payload, appended.result() - behind)
            elif isinstance(error, NotLeaderError):
                self.truth.deny(payload)

    async def _truncate(self, logs: Logs, rng: random.Random) -> None:
        if self.truth.seen:
            await logs.truncate(LOG, rng.randrange(max(self.truth.seen) + 1))
            self.truncations += 1

    # ---- producers

    async def _produce(self, host: SimHost) -> None:
        """Be one producer after the other: each numbers its records, and sends them until it hears where they are."""
        rng = random.Random(self._rng.random())
        lives = 0
        while not self.is_over:
            lives += 1
            await self._produce_as(f"{host.name}.{rng.getrandbits(32):08x}", rng, rng.choice((1, 4, 30)))
            await asyncio.sleep(rng.uniform(0.0, 0.5))

    async def _produce_as(self, producer: str, rng: random.Random, batches: int) -> None:
        waiting: list[tuple[int, list[bytes]]] = []  # Sent or not, without an answer: oldest first.
        sequence = 1
        while (batches or waiting) and not self.is_over:
            while batches and len(waiting) < rng.choice((1, _WINDOW)):
                payloads = [f"{producer} {sequence + n}".encode() for n in range(rng.choice((1, 1, 3)))]
                waiting.append((sequence, payloads))
                sequence, batches = sequence + len(payloads), batches - 1
            open_ones = sorted(self.writers)
            if open_ones:
                await self._send(self.writers[rng.choice(open_ones)], producer, waiting, rng)
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.3)))

    async def _send(
        self, writer: PlainLogWriter, producer: str, waiting: list[tuple[int, list[bytes]]], rng: random.Random
    ) -> None:
        """Send all that has no answer to a writer, in order; some answers are lost."""
        sent = []
        try:
            for first, payloads in waiting:
                source = RecordSource(producer, "sim", first)
                sent.append((payloads, writer.produce(source, payloads)))
                if rng.random() < 0.2:
                    await asyncio.sleep(rng.uniform(0.0, 0.01))
        except RsmError:
            pass  # It is over, or has no producers; what was sent before has its own outcome.
        for payloads, answer in sent:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    positions = await asyncio.shield(answer)
            except ProducerError as error:
                self.truth.fail("producer-known", str(error))
            except (RsmError, LedgerError, TimeoutError):
                return
            for payload, position in zip(payloads, positions, strict=True):
                self.truth.acknowledge(payload, position)
            if rng.random() < 0.2:
                return  # Lost on its way back.
            waiting.pop(0)
            self.produced += 1

    # ---- readers

    async def _read(self, host: SimHost) -> None:
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while True:
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            try:
                start: int | Literal["begin"] = rng.choice([1, *self.truth.seen]) if rng.random() < 0.5 else "begin"
                reader = await logs.reader(LOG, start)
            except (LedgerError, RsmError):
                continue
            await self._hand_out(reader, rng, limit=rng.choice((5, 1000)))

    async def _read_finished(self, host: SimHost) -> None:
        """Read finished batches only, from places of any kind."""
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while True:
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            try:
                start: int | Literal["begin"] = rng.choice([1, *self.truth.seen]) if rng.random() < 0.7 else "begin"
                reader = await logs.reader(LOG, start, finished_batches=True)
            except (LedgerError, RsmError):
                continue
            await self._hand_out(reader, rng, limit=rng.choice((5, 1000)), run=self.finished.run(reader.position + 1))

    async def _subscribe(self, host: SimHost) -> None:
        """Read under a name that hosts share; what was not processed must still be there."""
        rng = random.Random(self._rng.random())
        logs = await self.connect(host)
        while True:
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            try:
                reader = await logs.reader(LOG, subscription="billing", lock_wait_s=rng.choice((0.0, 2.0)))
            except MissingLogError as error:
                self.truth.fail("held-is-kept", str(error))
            except (LedgerError, RsmError):
                continue
            await self._hand_out(reader, rng, limit=rng.choice((5, 50)), is_held=True)

    async def _hand_out(
        self,
        reader: PlainLogReader,
        rng: random.Random,
        *,
        limit: int,
        is_held: bool = False,
        run: FinishedRun | None = None,
    ) -> None:
        """Read on; with `run`, finished batches only."""
        as_it_is = ReaderRun(reader.position + 1)
        if run is None:
            self.truth.runs.append(as_it_is)
        try:
            for _ in range(limit):
                for record in await reader.read(rng.choice((1, 10, 100)), wait_s=rng.uniform(0.0, 2.0)):
                    if run is None:
                        self.truth.see(as_it_is, record)
                    else:
                        self.finished.see(run, record)
                if run is not None:
                    run.through = reader.position
                if is_held and as_it_is.positions and rng.random() < 0.7:
                    await reader.processed()
        except (CorruptLogError, ForkedLogError) as error:
            self.truth.fail("no-gap", f"a reader meets what does not follow: {error}")
        except MissingLogError:
            return  # Trimmed under it: it held nothing, or another one has taken its subscription over.
        except (LedgerError, RsmError):
            return
        finally:
            try:
                await reader.close()
            except (LedgerError, RsmError):
                pass


class _Shown:
    """Phase of a writer, as the nemesis asks a replica for it."""

    def __init__(self, driver: object) -> None:
        self._driver = driver

    @property
    def phase(self) -> str:
        return str(self._driver.protocol.phase)  # type: ignore[attr-defined]


def _plain_row(writer: str, *at: int) -> tuple[bytes | None, bytes]:
    return None, " ".join([writer, *map(str, at)]).encode()


def batch_payloads(writer: str, batch: int) -> list[bytes]:
    """Return the rows of a batch."""
    return [payload for some in rows_of_batch(_plain_row, writer, batch).values() for _, payload in some]


async def final_records(cluster: LogCluster) -> tuple[list[object], int]:
    """End the log, read all of it, and check that nothing can follow."""
    logs = await cluster.connect()
    await logs.create(LOG, exist_ok=True)
    while True:
        try:
            writer = await logs.open_writer(LOG)
            position = await writer.append(b"the last one")
            await writer.mark_end()
            await writer.close()
            break
        except LogEndedError:
            break
        except (LedgerError, NotLeaderError, OutcomeUnknownError):
            await asyncio.sleep(0.5)
    cluster.truth.acknowledge(b"the last one", position)
    for _ in range(3):
        try:
            await logs.open_writer(LOG)
        except LogEndedError:
            pass
        else:
            cluster.truth.fail("end-is-final", "a writer was opened behind the end mark")
        await logs.trim(LOG)
    reader = await logs.reader(LOG)
    start = reader.position
    found = [record async for record in reader]
    await reader.close()
    finished = await logs.reader(LOG, finished_batches=True)
    run = cluster.finished.run(finished.position + 1)
    try:
        async for record in finished:
            cluster.finished.see(run, record)
        run.is_whole = True
    except MissingLogError as error:
        if start == 0:
            cluster.truth.fail("finished-whole", f"nothing was trimmed: {error}")
    await finished.close()
    cluster.finished.judge(found, start)
    return list(found), start
