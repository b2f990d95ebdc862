"""A whole bookie on a simulated disk, driven by bytes: no sockets, no threads, no clock of the machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

from ledger.bookie.connection import Connection
from ledger.bookie.server import BookieServer
from ledger.core.metadata import DigestType
from ledger.storage.index_memory import MemoryIndex
from ledger.storage.journal import JournalSettings
from ledger.storage.settings import Executors, StorageSettings
from ledger.testing import SimDisk
from ledger.testing.disk import SimPowerCut
from ledger.wire import v2, v3
from ledger.wire.codes import Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest, ReadRequest, Request, Response

T = TypeVar("T")
KEY = master_key(b"")
DIGEST = Digest(DigestType.CRC32C, b"")


class LoopExecutor:
    """Runs work on the event loop, a few turns later; a power cut in it ends the process for good."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._process_number = bench.process_number

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(self._run, fn, future)
        return future

    def _run(self, fn: Callable[[], T], future: asyncio.Future[T]) -> None:
        if self._bench.is_cut or self._bench.process_number != self._process_number:
            return  # The process is gone; a timer of it may still ring.
        try:
            result = fn()
        except SimPowerCut:
            self._bench.is_cut = True
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def close(self) -> asyncio.Future[None]:
        return self.submit(lambda: None)


class Wire(asyncio.Transport):
    """The socket of a connection: what the bookie writes becomes responses."""

    def __init__(self, bench: Bench, decode_response: Callable[[bytes], Response]) -> None:
        super().__init__()
        self._bench = bench
        self._decode = decode_response
        self._rest = b""
        self.is_reading = True  # type: ignore[assignment]  # A method of real transports.
        self.closed = False
        self.responses: list[Any] = []

    def write(self, data) -> None:
        assert not self.closed
        if self._bench.is_cut:
            return
        data = self._rest + bytes(data)
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
            end = 4 + int.from_bytes(data[:4], "big")
            self.responses.append(self._decode(data[4:end]))
            data = data[end:]
        self._rest = data

    def writelines(self, parts) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.is_reading = False  # type: ignore[assignment]  # A method of real transports.

    def resume_reading(self) -> None:
        self.is_reading = True  # type: ignore[assignment]  # A method of real transports.

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        pass

    def get_extra_info(self, name, default=None):
        return default


class Client:
    """One connection, driven by hand; `version` is of the protocol that it speaks."""

    def __init__(self, bench: Bench, version: int = 3) -> None:
        self.bench, self.version = bench, version
        self.codec = v2 if version == 2 else v3
        self.wire = Wire(bench, self.codec.decode_response)
        self.connection = Connection(bench.server)
        self.connection.connection_made(self.wire)

    def send(self, *requests: Request) -> None:
        self.send_bytes(b"".join(map(self.codec.encode_request, requests)))

    def send_bytes(self, data: bytes) -> None:
        while data:
            buffer = self.connection.get_buffer(-1)
            part = data[: len(buffer)]
            buffer[: len(part)] = part
            self.connection.buffer_updated(len(part))
            data = data[len(part) :]

    async def ask(self, *requests: Request) -> list[Any]:
        """Send, and wait for as many answers, sorted by transaction."""
        start = len(self.wire.responses)
        self.send(*requests)
        await self.bench.until(lambda: len(self.wire.responses) >= start + len(requests))
        return sorted(self.wire.responses[start:], key=lambda response: response.txn_id)

    async def ask_one(self, request: Request) -> Any:
        (response,) = await self.ask(request)
        return response


class Bench:
    """One bookie process after the other on one disk."""

    server: BookieServer

    def __init__(self, disk: Any = None, **settings) -> None:
        self.disk: Any = disk or SimDisk(random.Random(1))
        self.is_cut = False
        self.process_number = 0
        shape = {"file_bytes": 1 << 16, "idle_mark_s": 0.001} | settings.pop("journal", {})
        self.server_settings = settings.pop("server", None)
        self.tls = settings.pop("tls", None)
        self.find_key = settings.pop("find_key", None)
        journal = JournalSettings("/b/journal", **shape)
        self.settings = StorageSettings(journal, "/b/ledgers", **{"free_bytes_min": 0, "retry_s": 0.001} | settings)
        self.read_only: list[bool] = []
        self._nonces = random.Random(7)
        self.now_s = 0.0  # by which promises end

    async def start(self) -> Client | None:
        """Start a process; None if the power was cut while it replayed."""
        self.is_cut = False
        self.process_number += 1
        executor = LoopExecutor(self)
        opening = asyncio.get_running_loop().create_task(
            BookieServer.open(
                self.disk,
                Executors(executor, executor, executor),
                self.settings,
                lambda *, reset: MemoryIndex(),  # noqa: PLW0108 - `reset` is not its argument
                nonce=lambda: self._nonces.getrandbits(32),
                on_read_only=self.read_only.append,
                server_settings=self.server_settings,
                tls=self.tls,
                find_key=self.find_key,
                clock=lambda: self.now_s,
            )
        )
        await self.until(opening.done)
        if not opening.done():
            opening.cancel()
            return None
        self.server = opening.result()
        self.now_s += 1.0  # What the process before may have promised is over.
        return Client(self)

    async def until(self, claim: Callable[[], bool]) -> None:
        """Let the loop turn until a claim holds or the power is cut."""
        for _ in range(20_000):
            if claim() or self.is_cut:
                return
            await asyncio.sleep(0)
        raise AssertionError("nothing comes any more")

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)


def add(ledger_id: int, entry_id: int, *, lac: int = -1, size: int = 40, txn: int | None = None, **more) -> AddRequest:
    body = seal(ledger_id, entry_id, lac, 0, bytes([entry_id % 251]) * size, DIGEST)
    return AddRequest(entry_id if txn is None else txn, ledger_id, entry_id, more.pop("key", KEY), body, **more)


def read(ledger_id: int, entry_id: int, *, txn: int = 0, **more) -> ReadRequest:
    return ReadRequest(txn, ledger_id, entry_id, more.pop("key", None), **more)


def fence(ledger_id: int, *, txn: int = 0, key: bytes = KEY, entry_id: int = -1) -> ReadRequest:
    return ReadRequest(txn, ledger_id, entry_id, key, is_fencing=True)


OK = Status.EOK
