"""A twin of the ledger at the level of its client: no bookies, no wire, but everything that they may do to a writer.

What holds for real ledgers holds here, and no more (the numbers are counts of entries):

* `stored`: entries that an ack quorum holds; every recovery finds them, acknowledged or not;
* between `stored` and what was pushed, a recovery may find any number (`kept` once one has written them back);
* a fence ends storing, never what is stored; two recoveries at once may find different ends, the first close wins;
* header LACs (`header_lac`) are raised by recoveries too, before the end is final; the explicit LAC only by the writer.

Metadata operations are gated by a metadata store: a client that is cut off from it can append, not create or close.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

import msgspec

from ledger.core.metadata import NO_ENTRY, DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import (
    NoSuchLedgerError,
)
from ledger.testing.loop import outside


class TwinEntry(msgspec.Struct, frozen=True, gc=False):
    """Twin of `ledger.core.entry.Entry`."""

    entry_id: int
    last_add_confirmed: int
    length: int
    payload: bytes


class TwinLacInfo(msgspec.Struct, frozen=True, gc=False):
    """Twin of `ledger.client.read_handle.LacInfo`."""

    last_add_confirmed: int
    explicit_lac: int


class TwinFaults(msgspec.Struct):
    """Faults of the ledger as its users see them; times in seconds.

    Attributes:
        store_s: Range from append to stored.
        answer_s: Range from stored to acknowledged, and of every read.
        add_failure: Share of appends that fail without anybody's fence.
        add_failure_s: Until such a failure shows.
        slow: Share of appends whose storing or acknowledgement takes up to `slow_s`.
        slow_s: See `slow`.
        create_failure: Share of creations refused for lack of bookies.
        read_failure: Share of reads that no replica answers.

    """

    store_s: tuple[float, float] = (0.0002, 0.003)
    answer_s: tuple[float, float] = (0.0002, 0.003)
    add_failure: float = 0.0
    add_failure_s: tuple[float, float] = (0.05, 2.0)
    slow: float = 0.0
    slow_s: float = 3.0
    create_failure: float = 0.0
    read_failure: float = 0.0


class LedgerTwin:
    """One ledger, as nobody but the world sees it.

    Invariants: stored <= len(entries); end is None until CLOSED, then final and >= stored, unless the writer closed it
    itself, then >= what was acknowledged.
    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.entries: list[TwinEntry] = []
        self.stored = 0
        self.kept = 0
        self.header_lac = NO_ENTRY
        self.explicit_lac = NO_ENTRY
        self.is_fenced = False
        self.promised_until = float("-inf")  # by the clock of the bookies: nobody is told of a fence before
        self.waiters: list[asyncio.Future[None]] = []

    @property
    def is_closed(self) -> bool:
        """True if the end is final."""
        return self.metadata.is_closed

    def close(self, count: int) -> None:
        """Make the end final, unless it is."""
        if not self.is_closed:
            length = self.entries[count - 1].length if count else 0
            self.metadata = msgspec.structs.replace(
                self.metadata, state=LedgerState.CLOSED, last_entry_id=count - 1, length=length
            )
            self.wake()

    def wake(self) -> None:
        """Wake all long polls."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class LedgerWorld:
    """All ledgers of a simulated cluster.

    Args:
        rng: Decides everything that may go either way.
        faults: See `TwinFaults`; may be changed while it runs.

    Attributes:
        clock_rate: How fast the clock of the bookies goes.
        listeners: Called with what happens to a ledger, when it does: a name, the ledger's id, and a number:
            ``create`` (epoch in the custom metadata), ``store`` (entries stored), ``acknowledge`` (last entry),
            ``recover`` (number of the recovery), ``fence`` (end that a recovery found, after ``found``, its number),
            ``finish`` (number of the recovery), ``close`` (last entry), ``delete``.

    """

    def __init__(self, rng: random.Random, faults: TwinFaults | None = None) -> None:
        self.rng = rng
        self.faults = faults or TwinFaults()
        self.ledgers: dict[int, LedgerTwin] = {}
        self.bookie_count = 3
        self.clock_rate = 1.0
        self.recovery_count = 0
        self.listeners: list[Callable[[str, int, int], None]] = []
        self._next_id = 0

    def tell(self, name: str, ledger_id: int, number: int = 0) -> None:
        """Tell the listeners."""
        for listener in self.listeners:
            listener(name, ledger_id, number)

    def get(self, ledger_id: int) -> LedgerTwin:
        """Return a ledger.

        Raises:
            NoSuchLedgerError: It does not exist.

        """
        if ledger_id not in self.ledgers:
            raise NoSuchLedgerError(f"ledger {ledger_id} does not exist", ledger_id=ledger_id)
        return self.ledgers[ledger_id]

    def create(self, quorum: QuorumConfig, password: bytes, custom: Mapping[str, bytes]) -> LedgerTwin:
        """Create a ledger."""
        ledger_id = self._next_id
        self._next_id += 1
        bookies = tuple(f"bookie-{i}" for i in range(quorum.ensemble_size))
        metadata = LedgerMetadata(
            quorum, LedgerState.OPEN, (Segment(0, bookies),), DigestType.CRC32C, password, custom=dict(custom)
        )
        twin = self.ledgers[ledger_id] = LedgerTwin(ledger_id, metadata)
        self.tell("create", ledger_id, int(custom.get("rsm_leader_epoch", b"0")))
        return twin

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger.

        Raises:
            NoSuchLedgerError: It does not exist.

        """
        self.get(ledger_id)
        del self.ledgers[ledger_id]
        self.tell("delete", ledger_id)

    def monotonic(self) -> float:
        """Return the time as bookies count it, seconds."""
        return asyncio.get_running_loop().time() * self.clock_rate

    async def wait_out(self, twin: LedgerTwin) -> None:
        """Wait until bookies may tell of a fence of this ledger."""
        while (wait_s := twin.promised_until - self.monotonic()) > 0:  # noqa: ASYNC110  # another clock's time
            await asyncio.sleep(max(wait_s / self.clock_rate, 0.001))

    def later(self, delay_s: float, action: object, *args: object) -> None:
        """Do something on behalf of the bookies: whoever asked may be dead by then."""
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, action, *args, context=outside())  # type: ignore[arg-type]

    def latency(self, span: tuple[float, float]) -> float:
        """Draw a latency, now and then a long one."""
        if self.rng.random() < self.faults.slow:
            return self.rng.uniform(span[1], self.faults.slow_s)
        return self.rng.uniform(*span)
