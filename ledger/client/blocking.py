"""The client for code without an event loop: every call of `LedgerClient` as a plain function.

One background thread runs the loop; several threads may call. For Spark tasks and scripts.
"""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from ledger.client.adv_handle import AdvWriteHandle
from ledger.client.client import LedgerClient
from ledger.client.read_handle import LacInfo, ReadHandle
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.core.entry import Entry
from ledger.core.metadata import DigestType, LedgerMetadata
from ledger.errors import LedgerClosedError, LedgerError

__all__ = ["BlockingAdvWriteHandle", "BlockingLedgerClient", "BlockingReadHandle", "BlockingWriteHandle"]

T = TypeVar("T")


class _LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ledger-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result; Ctrl-C in the caller cancels it."""
        if self._loop.is_closed():
            coroutine.close()
            raise LedgerClosedError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class BlockingWriteHandle:
    """`WriteHandle`, synchronous: `append` returns when the entry is confirmed."""

    def __init__(self, handle: WriteHandle, loop: _LoopThread) -> None:
        self._handle = handle
        self._loop = loop

    @property
    def ledger_id(self) -> int:
        """The ledger."""
        return self._handle.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As this handle last wrote it."""
        return self._handle.metadata

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry that was acknowledged, and is durable; -1 before the first."""
        return self._handle.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """Highest entry that got an id; -1 before the first."""
        return self._handle.last_add_pushed

    @property
    def failure(self) -> LedgerError | None:
        """Why the handle is frozen; None while it is not."""
        return self._handle.failure

    def append(self, payload: bytes) -> int:
        """Append one entry and return its id once it is confirmed. Raises as `WriteHandle.append_many`."""
        return self.append_many((payload,))

    def append_many(self, payloads: Sequence[bytes]) -> int:
        """Append entries and return the id of the last once all are confirmed."""

        async def append() -> int:
            return await self._handle.append_many(payloads)

        return self._loop.run(append())

    def append_soon(self, payloads: Sequence[bytes]) -> Future[int]:
        """Append entries without waiting: the future gives the id of the last when all are confirmed.

        Waits only while too much is in flight. `flush` waits for all that was appended.

        Raises:
            LedgerError: The handle is frozen, or a payload does not fit an entry.

        """

        async def append() -> asyncio.Future[int]:
            await self._handle.drain()
            return self._handle.append_many(payloads)

        return _settled(self._loop.run(append()))

    def flush(self) -> None:
        """Wait until everything appended so far is confirmed."""
        self._loop.run(self._handle.flush())

    def force(self) -> int:
        """Wait until everything appended so far is durable, and return the last entry id."""
        return self._loop.run(self._handle.force())

    def write_lac(self) -> None:
        """Tell the bookies the LAC, so that readers see the last entry."""
        self._loop.run(self._handle.write_lac())

    def close(self) -> int:
        """Close the ledger and return its last entry id."""
        return self._loop.run(self._handle.close())

    def abandon(self) -> None:
        """Stop writing and leave the ledger open."""

        async def abandon() -> None:
            self._handle.abandon()

        self._loop.run(abandon())


class BlockingAdvWriteHandle(BlockingWriteHandle):
    """`AdvWriteHandle`, synchronous: `append_at` does not wait, since what is before it may come later."""

    _handle: AdvWriteHandle

    def append_at(self, entry_id: int, payload: bytes) -> Future[int]:
        """Append one entry under this id; the future gives it when it and all entries before it are confirmed.

        It does not wait. Raises as `AdvWriteHandle.append_at`.
        """

        async def append() -> asyncio.Future[int]:
            return self._handle.append_at(entry_id, payload)

        return _settled(self._loop.run(append()))


def _settled(append: asyncio.Future[int]) -> Future[int]:
    """Return what other threads can wait for."""
    future: Future[int] = Future()

    def settle(append: asyncio.Future[int]) -> None:
        if append.cancelled() or not future.set_running_or_notify_cancel():
            future.cancel()
        elif (error := append.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(append.result())

    append.get_loop().call_soon_threadsafe(append.add_done_callback, settle)
    return future


class BlockingReadHandle:
    """`ReadHandle`, synchronous."""

    def __init__(self, handle: ReadHandle, loop: _LoopThread) -> None:
        self._handle = handle
        self._loop = loop

    @property
    def ledger_id(self) -> int:
        """The ledger."""
        return self._handle.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read."""
        return self._handle.metadata

    @property
    def is_closed(self) -> bool:
        """Whether the ledger's end is final, as far as `metadata` tells."""
        return self._handle.is_closed

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry known to be confirmed; -1 if none is."""
        return self._handle.last_add_confirmed

    def read(self, first: int, last: int) -> list[Entry]:
        """Read entries, both ends inclusive."""
        return self._loop.run(self._handle.read(first, last))

    def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Read entries that may not be confirmed."""
        return self._loop.run(self._handle.read_unconfirmed(first, last))

    def entries(self, first: int, last: int) -> Iterator[list[Entry]]:
        """Yield entries in batches, both ends inclusive, for scans of any length; the next ones are asked for ahead."""
        batches = self._handle.entries(first, last)

        async def next_batch() -> list[Entry] | None:
            return await anext(batches, None)

        try:
            while (batch := self._loop.run(next_batch())) is not None:
                yield batch
        finally:
            self._loop.run(batches.aclose())

    def read_lac(self) -> LacInfo:
        """Ask how far the ledger is confirmed."""
        return self._loop.run(self._handle.read_lac())

    def wait_lac(self, previous: int, timeout_s: float) -> LacInfo:
        """Wait until an entry above `previous` is confirmed."""
        return self._loop.run(self._handle.wait_lac(previous, timeout_s))

    def refresh(self) -> LedgerMetadata:
        """Read the metadata again."""
        return self._loop.run(self._handle.refresh())

    def tail(self, first: int = 0) -> Iterator[list[Entry]]:
        """Yield confirmed entries in batches until the ledger's end is passed."""
        batches = self._handle.tail(first)

        async def next_batch() -> list[Entry] | None:
            return await anext(batches, None)

        while (batch := self._loop.run(next_batch())) is not None:
            yield batch

    def close(self) -> None:
        """Let go of the handle."""
        self._loop.run(self._handle.close())


class BlockingLedgerClient:
    """`LedgerClient`, synchronous; use it in a `with` block or close it."""

    def __init__(self, metadata_uri: str | None = None, *, settings: ClientSettings | None = None) -> None:
        self._loop = _LoopThread()
        try:
            self._client = self._loop.run(LedgerClient.connect(metadata_uri, settings=settings))
        except BaseException:
            self._loop.stop()
            raise

    @classmethod
    def connect(cls, metadata_uri: str | None = None, *, settings: ClientSettings | None = None) -> Self:
        """Connect to a cluster. Raises as `LedgerClient.connect`."""
        return cls(metadata_uri, settings=settings)

    def create(
        self,
        *,
        ensemble_size: int = 2,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
    ) -> BlockingWriteHandle:
        """Create a ledger and return its only writer. Takes and raises what `LedgerClient.create` does."""
        handle = self._loop.run(
            self._client.create(
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=digest_type,
                password=password,
                custom=custom,
                deferred_sync=deferred_sync,
            )
        )
        return BlockingWriteHandle(handle, self._loop)

    def create_adv(
        self,
        *,
        ledger_id: int | None = None,
        ensemble_size: int = 2,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
    ) -> BlockingAdvWriteHandle:
        """Create a ledger with explicit entry ids. Takes and raises what `LedgerClient.create_adv` does."""
        handle = self._loop.run(
            self._client.create_adv(
                ledger_id=ledger_id,
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=digest_type,
                password=password,
                custom=custom,
            )
        )
        return BlockingAdvWriteHandle(handle, self._loop)

    def claim(self, ledger_id: int, *, password: bytes = b"") -> BlockingWriteHandle:
        """Become the writer of a ledger that waits for one."""
        return BlockingWriteHandle(self._loop.run(self._client.claim(ledger_id, password=password)), self._loop)

    def open(self, ledger_id: int, *, password: bytes = b"") -> BlockingReadHandle:
        """Fence, recover and close a ledger, and open it for reading."""
        return BlockingReadHandle(self._loop.run(self._client.open(ledger_id, password=password)), self._loop)

    def open_no_recovery(self, ledger_id: int, *, password: bytes = b"") -> BlockingReadHandle:
        """Open a ledger for reading as it is."""
        handle = self._loop.run(self._client.open_no_recovery(ledger_id, password=password))
        return BlockingReadHandle(handle, self._loop)

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger."""
        self._loop.run(self._client.delete(ledger_id))

    def list(self) -> builtins.list[int]:
        """Return the ids of all ledgers, ascending."""
        return self._loop.run(self._client.list())

    def metadata(self, ledger_id: int, *, sync: bool = False) -> LedgerMetadata:
        """Return what the metadata store knows of a ledger."""
        return self._loop.run(self._client.metadata(ledger_id, sync=sync))

    def unreachable_bookies(self) -> frozenset[str]:
        """Return the bookies whose last sign to this client was a failure, registered or not."""

        async def ask() -> frozenset[str]:
            return self._client.unreachable_bookies()

        return self._loop.run(ask())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine on the client's loop, for example a call to `store`."""
        return self._loop.run(coroutine)

    @property
    def asynchronous(self) -> LedgerClient:
        """The client underneath; its coroutines go through `run`."""
        return self._client

    def close(self) -> None:
        """End all connections and the session."""
        try:
            self._loop.run(self._client.close())
        except LedgerClosedError:
            return
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()
