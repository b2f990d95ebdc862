"""The client for code without an event loop: every call of `LedgerClient` as a plain function.

One background thread runs the loop; several threads may call. For Spark tasks and scripts.

Written by tools/generate_blocking.py: `make blocking` writes it anew.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

from ledger.blocking_base import BlockingCalls
from ledger.client.adv_handle import AdvWriteHandle
from ledger.client.blocking_base import BlockingLedgerBase, BlockingWriteBase
from ledger.client.lac_watch import LacInfo
from ledger.client.read_handle import ReadHandle
from ledger.core.entry import Entry
from ledger.core.metadata import DigestType, LedgerMetadata
from ledger.errors import LedgerError
from ledger.loop_thread import settled
from ledger.telemetry.tracing import Span

__all__ = ["BlockingAdvWriteHandle", "BlockingLedgerClient", "BlockingReadHandle", "BlockingWriteHandle"]


class BlockingWriteHandle(BlockingWriteBase):
    """`WriteHandle` for code that blocks."""

    @property
    def ledger_id(self) -> int:
        """The ledger."""
        return self.asynchronous.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As this handle last wrote it."""
        return self.asynchronous.metadata

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry that was acknowledged; -1 before the first."""
        return self.asynchronous.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """Highest entry that got an id; -1 before the first."""
        return self.asynchronous.last_add_pushed

    @property
    def failure(self) -> LedgerError | None:
        """Error that froze the handle; None while it is not frozen."""
        return self.asynchronous.failure

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes appended and not confirmed."""
        return self.asynchronous.in_flight_bytes

    def append_traced(self, payload: bytes, span: Span) -> Future[int]:
        """Do the same, and tell in a span what becomes of it: the entry, and which bookie has stored it when.

        See `WriteHandle.append_traced`.
        """
        return settled(self.thread.ask(lambda: self.asynchronous.append_traced(payload, span)))

    def write_lac(self) -> None:
        """Tell the bookies the LAC (explicit LAC), so that readers see the last entry; only if it has moved.

        See `WriteHandle.write_lac`.
        """
        self.thread.run(self.asynchronous.write_lac())

    def check_fence(self, lease_ms: int = 0) -> Future[bool]:
        """Ask the bookies whether the ledger is fenced; the future says if it is proven that nobody had recovered it.

        See `WriteHandle.check_fence`.
        """
        return settled(self.thread.ask(lambda: self.asynchronous.check_fence(lease_ms)))

    def holds_lease(self) -> bool:
        """Return whether it is proven, by what bookies have promised, that nobody has recovered the ledger until now.

        See `WriteHandle.holds_lease`.
        """
        return self.thread.ask(self.asynchronous.holds_lease)

    def flush(self) -> None:
        """Wait until everything appended so far is confirmed. See `WriteHandle.flush`."""
        self.thread.run(self.asynchronous.flush())

    def force(self) -> int:
        """Wait until everything appended so far is confirmed and durable, and return the last entry id.

        See `WriteHandle.force`.
        """
        return self.thread.run(self.asynchronous.force())

    def close(self) -> int:
        """Close the ledger and return its last entry id. See `WriteHandle.close`."""
        return self.thread.run(self.asynchronous.close())

    def abandon(self) -> None:
        """Stop writing and leave the ledger open, for somebody else to recover or to claim."""
        self.thread.ask(self.asynchronous.abandon)


class BlockingAdvWriteHandle(BlockingWriteHandle):
    """`AdvWriteHandle` for code that blocks."""

    asynchronous: AdvWriteHandle

    def append_at(self, entry_id: int, payload: bytes) -> Future[int]:
        """Append one entry under this id; the future gives the id when it and all entries before it are confirmed.

        See `AdvWriteHandle.append_at`.
        """
        return settled(self.thread.ask(lambda: self.asynchronous.append_at(entry_id, payload)))


class BlockingReadHandle(BlockingCalls[ReadHandle]):
    """`ReadHandle` for code that blocks."""

    @property
    def ledger_id(self) -> int:
        """The ledger."""
        return self.asynchronous.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read."""
        return self.asynchronous.metadata

    @property
    def is_closed(self) -> bool:
        """True if the ledger's end is final, as far as `metadata` tells."""
        return self.asynchronous.is_closed

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry known to be confirmed (the last one of a closed ledger); -1 if none is."""
        return self.asynchronous.last_add_confirmed

    @property
    def digest_failures(self) -> dict[str, int]:
        """Number of answers that failed the digest, by bookie; other replicas were read instead."""
        return self.asynchronous.digest_failures

    def read(self, first: int, last: int) -> list[Entry]:
        """Read the entries from `first` to `last`, both inclusive, in order. See `ReadHandle.read`."""
        return self.thread.run(self.asynchronous.read(first, last))

    def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Read as `read` does, beyond `last_add_confirmed` too: such entries may yet vanish."""
        return self.thread.run(self.asynchronous.read_unconfirmed(first, last))

    def entries(self, first: int, last: int) -> Iterator[list[Entry]]:
        """Yield the entries from `first` to `last`, both inclusive, in batches, for scans of any length.

        See `ReadHandle.entries`.
        """
        return self.thread.iterate(self.asynchronous.entries(first, last))

    def read_lac(self) -> LacInfo:
        """Ask the bookies of the last ensemble how far the ledger is confirmed. See `ReadHandle.read_lac`."""
        return self.thread.run(self.asynchronous.read_lac())

    def wait_lac(self, previous: int, timeout_s: float) -> LacInfo:
        """Wait until an entry above `previous` is confirmed; bookies hold the question (long poll).

        See `ReadHandle.wait_lac`.
        """
        return self.thread.run(self.asynchronous.wait_lac(previous, timeout_s))

    def refresh(self) -> LedgerMetadata:
        """Read the metadata again, after a sync: a CLOSED ledger is seen as such from here on.

        See `ReadHandle.refresh`.
        """
        return self.thread.run(self.asynchronous.refresh())

    def tail(self, first: int = 0) -> Iterator[list[Entry]]:
        """Yield confirmed entries from `first` on, in batches, as they come; end when the end of the ledger is passed.

        See `ReadHandle.tail`.
        """
        return self.thread.iterate(self.asynchronous.tail(first))

    def close(self) -> None:
        """Let go of the handle; the connections are the client's. Whoever waits returns."""
        self.thread.run(self.asynchronous.close())


class BlockingLedgerClient(BlockingLedgerBase):
    """`LedgerClient` for code that blocks."""

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
        ensemble_min: int | None = None,
        rolls: bool = False,
    ) -> BlockingWriteHandle:
        """Create a ledger on bookies chosen by `ClientSettings.placement`, and return its only writer.

        See `LedgerClient.create`.
        """
        return BlockingWriteHandle(
            self.thread,
            self.thread.run(
                self.asynchronous.create(
                    ensemble_size=ensemble_size,
                    write_quorum=write_quorum,
                    ack_quorum=ack_quorum,
                    digest_type=digest_type,
                    password=password,
                    custom=custom,
                    deferred_sync=deferred_sync,
                    ensemble_min=ensemble_min,
                    rolls=rolls,
                )
            ),
        )

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
        """Create a ledger whose entry ids the application chooses, and return its only writer.

        See `LedgerClient.create_adv`.
        """
        return BlockingAdvWriteHandle(
            self.thread,
            self.thread.run(
                self.asynchronous.create_adv(
                    ledger_id=ledger_id,
                    ensemble_size=ensemble_size,
                    write_quorum=write_quorum,
                    ack_quorum=ack_quorum,
                    digest_type=digest_type,
                    password=password,
                    custom=custom,
                )
            ),
        )

    def claim(self, ledger_id: int, *, password: bytes = b"") -> BlockingWriteHandle:
        """Become the writer of a ledger that was created with `UNCLAIMED` in its custom metadata.

        See `LedgerClient.claim`.
        """
        return BlockingWriteHandle(self.thread, self.thread.run(self.asynchronous.claim(ledger_id, password=password)))

    def open(self, ledger_id: int, *, password: bytes = b"") -> BlockingReadHandle:
        """Open a ledger for reading and make its end final: fences its writer, recovers it, closes it.

        See `LedgerClient.open`.
        """
        return BlockingReadHandle(self.thread, self.thread.run(self.asynchronous.open(ledger_id, password=password)))

    def open_no_recovery(self, ledger_id: int, *, password: bytes | None = b"") -> BlockingReadHandle:
        """Open a ledger for reading as it is, without disturbing its writer. `read_lac` tells how far it goes.

        See `LedgerClient.open_no_recovery`.
        """
        return BlockingReadHandle(
            self.thread, self.thread.run(self.asynchronous.open_no_recovery(ledger_id, password=password))
        )

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger; bookies free its entries when they next look. See `LedgerClient.delete`."""
        self.thread.run(self.asynchronous.delete(ledger_id))

    def list(self) -> builtins.list[int]:
        """Return the ids of all ledgers, ascending."""
        return self.thread.run(self.asynchronous.list())

    def count_bookies(self) -> int:
        """Return how many bookies are writable, without those that failed lately and do not answer now.

        See `LedgerClient.count_bookies`.
        """
        return self.thread.run(self.asynchronous.count_bookies())

    def unreachable_bookies(self) -> frozenset[str]:
        """Return the bookies whose last sign to this client was a failure, registered or not."""
        return self.thread.ask(self.asynchronous.unreachable_bookies)

    def metadata(self, ledger_id: int, *, sync: bool = False) -> LedgerMetadata:
        """Return what the metadata store knows of a ledger. See `LedgerClient.metadata`."""
        return self.thread.run(self.asynchronous.metadata(ledger_id, sync=sync))
