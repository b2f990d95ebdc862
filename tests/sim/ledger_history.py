"""What a simulated cluster of bookies promised, and the check that it keeps it: every invariant by its name.

* `acked-is-durable`  an acknowledged entry is at or below the ledger's end, and readable
* `single-writer`     nothing above a ledger's end is acknowledged once the metadata store holds the end
* `closed-is-final`   nobody changes the metadata of a closed ledger's end, nobody is told another one
* `lac-monotonic`     a reader's LAC never goes back; no LAC that a reader was told is above the end
* `in-order`          appends are acknowledged in the order of their ids, and handed out in it (`no-gap`)
* `same-payload`      one value for one (ledger, entry): what every reader and every copy has is what was appended
* `no-invention`      no end above what was appended
* `unique-id`         a ledger id is given once
* `segments`          segments ascend from 0, the last one begins at most behind the end, no bookie twice in one

`tests.sim.ledger_witness` watches further ones from inside, `tests.sim.ledger_judge` those that need quiet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ledger.core.metadata import LedgerMetadata

__all__ = ["BrokenInvariantError", "History", "LedgerHistory"]

_STORY_LINES = 40


class BrokenInvariantError(Exception):
    """A promise was broken; the message begins with the invariant's name."""


@dataclass
class LedgerHistory:
    """One ledger as an observer outside of time and failures sees it.

    Attributes:
        ledger_id: The ledger.
        ack_quorum: Copies that each closed entry must have.
        password: Of the ledger.
        payloads: By entry id, as its writer appended them.
        last_acked: Highest entry acknowledged to its writer; -1 before the first.
        last_exposed: Highest LAC that any reader was told.
        is_deleted: Somebody began to delete it: no promise holds any more.

    """

    ledger_id: int
    ack_quorum: int
    password: bytes = b""
    payloads: list[bytes] = field(default_factory=list)
    last_acked: int = -1
    last_exposed: int = -1
    is_deleted: bool = False


class History:
    """All ledgers of one run.

    Args:
        now_s: Simulated time.
        stop: Called with the first broken promise; later ones may follow from it.

    Attributes:
        ledgers: By id, of those whose creator has heard of them.
        ends: Last entry by id, of those that the metadata store holds as closed.
        broken: The first broken promise.
        story: What happened last.

    """

    def __init__(self, now_s: Callable[[], float], stop: Callable[[BrokenInvariantError], None]) -> None:
        self.ledgers: dict[int, LedgerHistory] = {}
        self.ends: dict[int, int] = {}
        self.broken: BrokenInvariantError | None = None
        self.story: deque[str] = deque(maxlen=_STORY_LINES)
        self.acked_count = 0
        self.read_count = 0
        self.close_count = 0
        self._now_s = now_s
        self._stop = stop

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self._now_s():10.6f} {what}")

    def tell_once(self, what: str) -> None:
        """Add a line to the story, unless it is the last one again."""
        if not self.story or not self.story[-1].endswith(what):
            self.tell(what)

    def fail(self, name: str, what: str) -> None:
        """Note a broken promise, and end the run."""
        if self.broken is None:
            self.broken = BrokenInvariantError(f"{name}: {what}")
            self.tell(f"BROKEN {name}: {what}")
            self._stop(self.broken)

    def created(self, ledger_id: int, ack_quorum: int, password: bytes, who: str) -> LedgerHistory:
        """Begin the history of a ledger."""
        self.tell(f"{who} created ledger {ledger_id}")
        if ledger_id in self.ledgers:
            self.fail("unique-id", f"ledger {ledger_id} was created twice")
        return self.ledgers.setdefault(ledger_id, LedgerHistory(ledger_id, ack_quorum, password))

    def acked(self, ledger: LedgerHistory, entry_id: int) -> None:
        """An append was acknowledged."""
        self.acked_count += 1
        if entry_id != ledger.last_acked + 1:
            self.fail("in-order", f"ledger {ledger.ledger_id}: {entry_id} acknowledged after {ledger.last_acked}")
        end = self.ends.get(ledger.ledger_id)
        if end is not None and entry_id > end and not ledger.is_deleted:
            self.fail("single-writer", f"ledger {ledger.ledger_id}: {entry_id} acknowledged, it is closed at {end}")
        ledger.last_acked = max(ledger.last_acked, entry_id)

    def written(self, ledger_id: int, before: LedgerMetadata | None, after: LedgerMetadata) -> None:
        """The metadata store took a ledger's metadata."""
        end = after.last_entry_id if after.is_closed else None
        self.tell(f"metadata of ledger {ledger_id}: {after.state.name} {_segments(after)} end {end}")
        self._check_segments(ledger_id, before, after)
        known = self.ends.get(ledger_id)
        if known is not None and end != known:
            self.fail("closed-is-final", f"ledger {ledger_id}: closed at {known}, rewritten with the end {end}")
        ledger = self.ledgers.get(ledger_id)
        if end is None:
            return
        self.ends.setdefault(ledger_id, end)
        if ledger is None:
            return
        if end < ledger.last_acked:
            self.fail(
                "acked-is-durable", f"ledger {ledger_id} is closed at {end}: {ledger.last_acked} was acknowledged"
            )
        if end < ledger.last_exposed:
            self.fail("lac-monotonic", f"ledger {ledger_id} is closed at {end}: a reader knows {ledger.last_exposed}")
        if end >= len(ledger.payloads):
            self.fail("no-invention", f"ledger {ledger_id} is closed at {end}: {len(ledger.payloads)} were appended")

    def deleted(self, ledger_id: int) -> None:
        """The metadata of a ledger are gone."""
        self.tell(f"metadata of ledger {ledger_id}: deleted")
        ledger = self.ledgers.get(ledger_id)
        if ledger is not None and not ledger.is_deleted:
            self.fail("acked-is-durable", f"ledger {ledger_id} was deleted by nobody's wish")

    def _check_segments(self, ledger_id: int, before: LedgerMetadata | None, after: LedgerMetadata) -> None:
        firsts = [segment.first_entry_id for segment in after.segments]
        are_good = firsts[:1] == [0] and all(low < high for low, high in zip(firsts, firsts[1:], strict=False))
        for segment in after.segments:
            size = len(set(segment.bookies))
            are_good = are_good and size == len(segment.bookies) == after.quorum.ensemble_size
        if after.is_closed:
            are_good = are_good and firsts[-1] <= after.last_entry_id + 1
        if not are_good:
            self.fail("segments", f"ledger {ledger_id}: {_segments(after)}")
        if before is not None and before.quorum != after.quorum:
            self.fail("segments", f"ledger {ledger_id}: {before.quorum} became {after.quorum}")

    def closed(self, ledger: LedgerHistory, last_entry_id: int, who: str) -> None:
        """Somebody was told that the ledger is closed."""
        self.close_count += 1
        self.tell(f"{who} hears that ledger {ledger.ledger_id} ends at {last_entry_id}")
        if ledger.is_deleted:
            return
        end = self.ends.get(ledger.ledger_id)
        if last_entry_id != end:
            self.fail(
                "closed-is-final",
                f"{who} was told that ledger {ledger.ledger_id} ends at {last_entry_id}, the metadata say {end}",
            )

    def exposed(self, ledger: LedgerHistory, before: int, last_add_confirmed: int, who: str) -> None:
        """A reader was told a LAC."""
        where = f"ledger {ledger.ledger_id}, reader {who}"
        if last_add_confirmed < before:
            self.fail("lac-monotonic", f"{where}: LAC went back from {before} to {last_add_confirmed}")
        end = self.ends.get(ledger.ledger_id)
        if end is not None and last_add_confirmed > end and not ledger.is_deleted:
            self.fail("lac-monotonic", f"{where}: LAC {last_add_confirmed} of a ledger closed at {end}")
        ledger.last_exposed = max(ledger.last_exposed, last_add_confirmed)

    def read(self, ledger: LedgerHistory, entry_id: int, payload: bytes, who: str) -> None:
        """A reader was given an entry."""
        self.read_count += 1
        if entry_id >= len(ledger.payloads) or payload != ledger.payloads[entry_id]:
            self.fail("same-payload", f"ledger {ledger.ledger_id}, reader {who}: entry {entry_id} is not as appended")


def _segments(metadata: LedgerMetadata) -> str:
    return " ".join(
        f"{segment.first_entry_id}:" + ",".join(bookie.partition(":")[0] for bookie in segment.bookies)
        for segment in metadata.segments
    )
