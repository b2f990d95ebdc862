"""Loss of a query: records that it should have read and cannot any more. Pure: found by arithmetic, kept in memory.

1. A ledger leaves a chain from the old end only. So a position in a ledger that is gone was either trimmed (the log
   begins at a later record), or is where the oldest ledger left begins, and nothing is lost.
2. A position whose ledger is gone although the log still holds that record is one of another log: the log of that
   name was deleted and made anew. Its records begin at 1 again. Nothing tells how far the old one went, unless this
   process has seen it.
3. A loss ends the query (`failOnDataLoss=true`), or the query goes on at the first record that is there and the range
   is kept as long as the query runs. This is what Kafka's source does with topics that are deleted or made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from connectors.source.offsets import LogOffset
from connectors.source.plan import LogView


class Loss(msgspec.Struct, frozen=True):
    """A range that a query passed over.

    Attributes:
        log: Name of the log; "" for a plain ledger.
        ledger_id: Of a plain ledger; -1 for a log.
        first: First revision (of a log) or entry (of a ledger) that is lost; None = not known.
        last: Last one, inclusive; None = not known.
        reason: In a few words.

    """

    log: str = ""
    ledger_id: int = -1
    first: int | None = None
    last: int | None = None
    reason: str = ""

    @property
    def count(self) -> int | None:
        """Records or entries that are lost; None = not known."""
        return None if self.first is None or self.last is None else self.last - self.first + 1

    @property
    def text(self) -> str:
        """The range in words."""
        what, subject = (
            ("entries", f"ledger {self.ledger_id}") if self.ledger_id >= 0 else ("records", f"log {self.log}")
        )
        if self.first is not None and self.last is not None:
            return f"{subject}: {what} {self.first} to {self.last}"
        if self.first is not None:
            return f"{subject}: {what} from {self.first} on"
        return f"{subject}: {what} up to {self.last}" if self.last is not None else f"{subject}: {what} not known"

    def as_json(self) -> dict[str, Any]:
        """Return what the query's progress shows."""
        subject: dict[str, Any] = {"ledger": self.ledger_id} if self.ledger_id >= 0 else {"log": self.log}
        return {**subject, "from": self.first, "to": self.last, "count": self.count}


class Losses:
    """The losses of one query, as long as it runs: each range once, however often Spark makes us see it.

    Args:
        warn: Told of each range in words, once.

    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._found: list[Loss] = []

    def add(self, loss: Loss) -> None:
        """Take note of a range; one that overlaps a known range makes that one larger."""
        merged, kept = loss, []
        for known in self._found:
            if known == merged:
                return
            wider = _union(known, merged)
            if wider is None:
                kept.append(known)
            elif wider == known:
                return
            else:
                merged = wider
        self._found = [*kept, merged]
        self._warn(f"{loss.text} are lost to this query ({loss.reason}); it goes on behind them")

    def as_json(self) -> list[dict[str, Any]]:
        """Return what the query's progress shows, in the order in which ranges were lost."""
        return [loss.as_json() for loss in self._found]


def _union(one: Loss, other: Loss) -> Loss | None:
    """Return both ranges as one if they touch."""
    if (one.log, one.ledger_id) != (other.log, other.ledger_id):
        return None
    if one.first is None or other.first is None:
        return None
    if one.last is None or other.last is None:
        # What is lost from somewhere on, nobody knows how far, takes in all that is lost behind there.
        early = one if one.first <= other.first else other
        return early if early.last is None else None
    if other.first > one.last + 1 or one.first > other.last + 1:
        return None
    return msgspec.structs.replace(one, first=min(one.first, other.first), last=max(one.last, other.last))


def gap_before(view: LogView, position: LogOffset, old_end: int | None = None) -> Loss | None:
    """Return what is lost between a position and the first record that is left; None if nothing is.

    Args:
        view: The log as it is.
        position: Where a query stands.
        old_end: Set if the log was seen to be made anew: revision after the last record seen of the old one.

    """
    if view.index_of(position.ledger_id) >= 0:
        return None
    if old_end is not None:
        last = max(old_end - 1, position.revision - 1)
        return Loss(view.log, first=position.revision, last=last, reason="the log was deleted and made anew")
    if position.revision < view.first_revision:
        return Loss(view.log, first=position.revision, last=view.first_revision - 1, reason="trimmed")
    if position.revision > view.first_revision:
        return Loss(view.log, first=position.revision, reason="the log was deleted and made anew")
    return None


def trimmed_text(view: LogView, loss: Loss) -> str:
    """Return what an error says of a loss of a log: the exact range, and what can be done."""
    restart = f'startingOffsets=earliest or {{"{view.log}": {{"revision": {view.first_revision}}}}}'
    behind = "failOnDataLoss=false to go on there and be told of the range in the query's progress"
    if loss.last is None or loss.reason != "trimmed":
        return (
            f"{loss.text}: {loss.reason}; records begin at {view.first_revision} again. Check the options log and "
            f"metadataUri. Either start a new query (new checkpoint location), or set {behind}"
        )
    return (
        f"{loss.text} have been trimmed; the first that is left is {view.first_revision} (ledger "
        f"{view.begin.ledger_id}). Either start a new query (new checkpoint location) with {restart} and accept the "
        f"gap; or start a new one with startingOffsets=snapshot (rows of a snapshot of that revision or later, then "
        f"what follows it); or set {behind}"
    )
