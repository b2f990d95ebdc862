"""One Spark session and a writer of real logs: ledgers on real bookies, the chain in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ledger.client.client import LedgerClient
from ledger.client.write_handle import WriteHandle
from ledger.dev import DevCluster
from ledger.loop_thread import LoopThread
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, QuarantinedEntry, chain_path, encode_chain
from rsm_spark.core.envelope import Envelope, encode_envelope, root_hash
from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    TableDescription,
    encode_description,
)
from rsm_spark.core.orphans import KEY_ID_OF_LEDGER
from rsm_spark.core.records import CommandHead, KernelRecord, Record, encode_records
from rsm_spark.core.seal import KeyRing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEY, _VALUE = Field("key", FieldType.BYTES), Field("value", FieldType.BYTES)
MACHINE = MachineDescription(
    "map",
    1,
    (TableDescription("map", (_KEY,), (_VALUE,)),),
    (
        RecordDescription(16, "put", (_KEY, _VALUE), "map", Fold.UPSERT, ("key",), ("value",)),
        RecordDescription(17, "deleted", (_KEY,), "map", Fold.DELETE, ("key",)),
    ),
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the suite, as our builder makes it, made small."""
    from connectors.session import spark_session

    session = spark_session(
        "tests",
        delta=True,
        local="local[2]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stopTimeout": "60000",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    yield session
    session.stop()


class WrittenLog:
    """A log as a leader writes it, driven step by step; also keeps what a reader must find."""

    def __init__(
        self,
        name: str,
        cluster: DevCluster,
        loop: LoopThread,
        client: LedgerClient,
        machine: MachineDescription = MACHINE,
        keys: KeyRing | None = None,
    ) -> None:
        self.name = name
        self.metadata_uri = cluster.metadata_uri
        self.log_id = hashlib.sha256(name.encode()).digest()[:16]
        self.revision = 0
        self.logged_ms = 0
        self.hash = root_hash(self.log_id)
        self.state: dict[bytes, tuple[bytes, int]] = {}
        self.entries: list[tuple[int, int, bytes]] = []
        self.sessions: dict[bytes, list[Any]] = {}
        self._loop, self._client = loop, client
        self._keys = keys
        self._chain = LogChain(self.log_id.hex(), leader_epoch=1, key_id=keys.newest.key_id if keys else "")
        self._version: int | None = None
        self._writer: WriteHandle | None = None
        self.roll()
        self.append([Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(machine),))])

    @property
    def ledger_ids(self) -> list[int]:
        return [ledger.ledger_id for ledger in self._chain.ledgers]

    def append(self, records: Sequence[Record], *, is_shown: bool = True) -> None:
        """Append one entry; `is_shown`: the leader also writes the LAC, as it does when nothing else follows."""
        self._loop.run(self._append([records], is_shown=is_shown))

    def append_all(self, batches: Sequence[Sequence[Record]]) -> None:
        self._loop.run(self._append(batches, is_shown=True))

    async def _append(self, batches: Sequence[Sequence[Record]], *, is_shown: bool) -> None:
        assert self._writer is not None
        payloads: list[bytes] = []
        for records in batches:
            envelope = Envelope(
                self.log_id, 1, self.revision + 1, self.revision, 1_000 + self.revision, len(records), self.hash,
                bytes.fromhex(self._chain.key_id),
            )  # fmt: skip
            payload = encode_envelope(envelope, encode_records(records))
            if self._keys is not None:
                sealed = bytearray(payload)
                key = self._keys.entry_key(envelope.key_id, self.log_id)
                assert key is not None
                key.finish(sealed, 0)
                payload = bytes(sealed)
            self.logged_ms = envelope.logged_ms
            self.hash = hashlib.sha256(payload).digest()
            for record in records:
                self.revision += 1
                self._fold(record, envelope.logged_ms)
            self.entries.append((self._writer.ledger_id, self._writer.last_add_pushed + 1 + len(payloads), payload))
            payloads.append(payload)
        await self._writer.append_many(payloads)
        if is_shown:
            await self._writer.write_lac()

    def append_foreign(self, payload: bytes) -> tuple[int, int]:
        """Append what is no entry of this log; return its ledger and entry id."""
        writer = self._writer
        assert writer is not None

        async def add() -> int:
            await writer.append_many([payload])
            return writer.last_add_pushed

        return writer.ledger_id, self._loop.run(add())

    def set_aside(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """Have readers pass over an entry, as `rsm log quarantine` does."""
        one = QuarantinedEntry(ledger_id, entry_id, hashlib.sha256(payload).hexdigest(), len(payload), 0, "test", "")
        self._chain = msgspec.structs.replace(self._chain, quarantined=(*self._chain.quarantined, one))
        self._loop.run(self._write_chain(self._chain.ledgers))

    def _fold(self, record: Record, logged_ms: int) -> None:
        if record.type == 16:
            self.state[record.fields[0]] = (record.fields[1], self.revision)
        elif record.type == 17:
            self.state.pop(record.fields[0], None)

    def put(self, pairs: dict[bytes, bytes], **kwargs: Any) -> None:
        self.append([Record(16, None, pair) for pair in pairs.items()], **kwargs)

    def delete(self, *keys: bytes) -> None:
        self.append([Record(17, None, (key,)) for key in keys])

    def fill(self, entry_count: int, records_per_entry: int = 10, keys: int = 50, size: int = 20) -> None:
        """Append many puts at once, with values that never repeat."""
        batches = []
        for entry in range(entry_count):
            first = self.revision + entry * records_per_entry
            batches.append(
                [
                    Record(16, None, (b"key-%d" % (i % keys), (b"%d-" % i).ljust(size, b"x")))
                    for i in range(first, first + records_per_entry)
                ]
            )
        self.append_all(batches)

    def roll(self, *, tells_end: bool = True) -> None:
        """Close the ledger and begin the next one."""
        self._loop.run(self._roll(tells_end=tells_end))

    async def _roll(self, *, tells_end: bool) -> None:
        ledgers = list(self._chain.ledgers)
        if self._writer is not None:
            length = (await self._closed(self._writer)).length
            if tells_end:
                end = ClosedEnd(self._writer.last_add_confirmed, self.revision, self.logged_ms, length, self.hash.hex())
                ledgers[-1] = msgspec.structs.replace(ledgers[-1], closed=end)
        key_id, password, custom = self._chain.key_id, b"", {}
        if self._keys is not None:
            password = self._keys.password(key_id, self.log_id.hex())
            custom = {KEY_ID_OF_LEDGER: key_id.encode()}
        self._writer = await self._client.create(
            ensemble_size=3, write_quorum=2, ack_quorum=2, password=password, custom=custom
        )
        ledgers.append(ChainLedger(self._writer.ledger_id, 0, 1, self.revision + 1, key_id=key_id))
        await self._write_chain(tuple(ledgers))

    async def _closed(self, writer: WriteHandle) -> Any:
        await writer.close()
        return await self._client.metadata(writer.ledger_id, sync=True)

    async def _write_chain(self, ledgers: tuple[ChainLedger, ...]) -> None:
        self._chain = msgspec.structs.replace(self._chain, ledgers=ledgers, first_ledger_id=ledgers[0].ledger_id)
        path, value = chain_path(self.name), encode_chain(self._chain)
        if self._version is None:
            await self._client.store.create(path, value, parents=True)
            self._version = 0
        else:
            self._version = await self._client.store.set(path, value, self._version)

    def trim(self, ledger_count: int) -> None:
        """Drop the oldest ledgers, as a leader does once snapshots cover them."""

        async def drop() -> None:
            gone, kept = self._chain.ledgers[:ledger_count], self._chain.ledgers[ledger_count:]
            await self._write_chain(kept)
            for ledger in gone:
                await self._client.delete(ledger.ledger_id)

        self._loop.run(drop())

    def options(self, **more: Any) -> dict[str, str]:
        """Options of the source for this log."""
        return {"metadataUri": self.metadata_uri, "log": self.name, **{k: str(v) for k, v in more.items()}}


def head(session: bytes, sequence: int, answered: int = 0, count: int = 1, reply: bytes = b"ok") -> CommandHead:
    return CommandHead(session, sequence, answered, count, reply)


@pytest.fixture(scope="session")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread("tests")
    yield thread
    thread.stop()


@pytest.fixture(scope="session")
def client(cluster: DevCluster, loop: LoopThread) -> Iterator[LedgerClient]:
    connected = loop.run(LedgerClient.connect(cluster.metadata_uri))
    yield connected
    loop.run(asyncio.wait_for(connected.close(), 60))


@pytest.fixture
def make_log(
    cluster: DevCluster, loop: LoopThread, client: LedgerClient, unique_name: str
) -> Callable[..., WrittenLog]:
    names = (f"{unique_name}-{number}" for number in range(100))
    return lambda **more: WrittenLog(next(names), cluster, loop, client, **more)


@pytest.fixture
def log(make_log: Callable[[], WrittenLog]) -> WrittenLog:
    return make_log()
