"""What a simulated cluster of bookies promised, and the check that it keeps it: every invariant by its name."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BrokenInvariantError", "History", "LedgerHistory"]


class BrokenInvariantError(Exception):
    """A promise was broken; the message begins with the invariant's name."""


@dataclass
class LedgerHistory:
    """One ledger as an observer outside of time and failures sees it.

    Attributes:
        ledger_id: The ledger.
        ack_quorum: Copies that each closed entry must have.
        payloads: By entry id, as its writer appended them.
        last_acked: Highest entry acknowledged to its writer; -1 before the first.
        last_exposed: Highest LAC that any reader was told.
        closed_end: Last entry, once somebody was told that it is closed.

    """

    ledger_id: int
    ack_quorum: int
    payloads: list[bytes] = field(default_factory=list)
    last_acked: int = -1
    last_exposed: int = -1
    closed_end: int | None = None


class History:
    """All ledgers of one run. The first broken promise is kept in `broken`; later ones may follow from it."""

    def __init__(self) -> None:
        self.ledgers: dict[int, LedgerHistory] = {}
        self.broken: BrokenInvariantError | None = None
        self.acked_count = 0
        self.read_count = 0
        self.close_count = 0

    def fail(self, name: str, what: str) -> None:
        """Note a broken promise."""
        if self.broken is None:
            self.broken = BrokenInvariantError(f"{name}: {what}")

    def check(self) -> None:
        """Raise the first broken promise, if any."""
        if self.broken is not None:
            raise self.broken

    def created(self, ledger_id: int, ack_quorum: int) -> LedgerHistory:
        """Begin the history of a ledger."""
        if ledger_id in self.ledgers:
            self.fail("unique-id", f"ledger {ledger_id} was created twice")
        return self.ledgers.setdefault(ledger_id, LedgerHistory(ledger_id, ack_quorum))

    def acked(self, ledger: LedgerHistory, entry_id: int) -> None:
        """An append was acknowledged."""
        self.acked_count += 1
        if entry_id != ledger.last_acked + 1:
            self.fail("in-order", f"ledger {ledger.ledger_id}: {entry_id} acknowledged after {ledger.last_acked}")
        if ledger.closed_end is not None and entry_id > ledger.closed_end:
            self.fail(
                "single-writer",
                f"ledger {ledger.ledger_id}: {entry_id} acknowledged, though it was closed at {ledger.closed_end}",
            )
        ledger.last_acked = max(ledger.last_acked, entry_id)

    def closed(self, ledger: LedgerHistory, last_entry_id: int, who: str) -> None:
        """Somebody was told that the ledger is closed."""
        self.close_count += 1
        where = f"ledger {ledger.ledger_id}, closed at {last_entry_id} says {who}"
        if ledger.closed_end is not None and last_entry_id != ledger.closed_end:
            self.fail("closed-is-final", f"{where}: it was closed at {ledger.closed_end} before")
        if last_entry_id < ledger.last_acked:
            self.fail("acked-is-durable", f"{where}: {ledger.last_acked} was acknowledged")
        if last_entry_id < ledger.last_exposed:
            self.fail("lac-monotonic", f"{where}: a reader was told that {ledger.last_exposed} is confirmed")
        if last_entry_id >= len(ledger.payloads):
            self.fail("no-invention", f"{where}: only {len(ledger.payloads)} entries were appended")
        ledger.closed_end = last_entry_id

    def exposed(self, ledger: LedgerHistory, before: int, last_add_confirmed: int, who: str) -> None:
        """A reader was told a LAC."""
        where = f"ledger {ledger.ledger_id}, reader {who}"
        if last_add_confirmed < before:
            self.fail("lac-monotonic", f"{where}: LAC went back from {before} to {last_add_confirmed}")
        if ledger.closed_end is not None and last_add_confirmed > ledger.closed_end:
            self.fail("lac-monotonic", f"{where}: LAC {last_add_confirmed} of a ledger closed at {ledger.closed_end}")
        ledger.last_exposed = max(ledger.last_exposed, last_add_confirmed)

    def read(self, ledger: LedgerHistory, entry_id: int, payload: bytes, who: str) -> None:
        """A reader was given an entry."""
        self.read_count += 1
        if entry_id >= len(ledger.payloads) or payload != ledger.payloads[entry_id]:
            self.fail("same-payload", f"ledger {ledger.ledger_id}, reader {who}: entry {entry_id} is not as appended")
