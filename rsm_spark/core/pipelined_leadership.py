"""Leadership with many entries in flight: for logs whose records nobody has to decide one after the other.

A replica decides each batch on what the one before has made of the state, so one entry is in flight. The writer of a
plain log decides nothing: it sends the next entry while others are on their way. What else holds for leaders holds for
it, and three things more:

1. Entries are confirmed in order. What is confirmed is a prefix of what was sent.
2. After a failed add the end of the ledger says how far that prefix goes; the rest is sent again, in order, every byte
   the same, or is dropped as a whole.
3. Whatever writes the chain (rolls, trims) begins when nothing is in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from rsm_spark.core.batching import Batch
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import (
    AppendEntry,
    BatchComposed,
    DropBatch,
    Effect,
    EntryConfirmed,
    Event,
    Halt,
    LedgerEndLearned,
)
from rsm_spark.core.leadership_table import TRANSITIONS, Phase

_SENT: dict[type[Event], frozenset[Phase]] = {
    **TRANSITIONS[Phase.SENT],
    BatchComposed: frozenset({Phase.SENT}),
    EntryConfirmed: frozenset({Phase.SENT, Phase.LEAD}),
}


class PipelinedProtocol(LeaderProtocol):
    """One attempt to write a plain log; see the module.

    Attributes:
        behind: In flight behind `batch`, oldest first. Invariant: empty while `batch` is None.

    """

    transitions = {**TRANSITIONS, Phase.SENT: _SENT}  # noqa: RUF012 - typed by the base class

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.behind: deque[Batch] = deque()

    @property
    def in_flight(self) -> Sequence[Batch]:
        """Entries that were sent and are not confirmed, oldest first."""
        return () if self.batch is None else (self.batch, *self.behind)

    def _on_batch_composed(self, event: BatchComposed) -> list[Effect]:
        if self.batch is None:
            return super()._on_batch_composed(event)
        self.behind.append(event.batch)
        return [AppendEntry(self.ledger_id, event.batch.payload)]

    def _on_entry_confirmed(self, event: EntryConfirmed) -> list[Effect]:
        effects = super()._on_entry_confirmed(event)
        self._next()
        if self.batch is not None:
            self.phase = Phase.SENT
        return effects

    def _next(self) -> None:
        """Make the oldest entry behind the confirmed one the next to be confirmed."""
        self.batch = self.behind.popleft() if self.behind else None

    def _on_ledger_end_learned(self, event: LedgerEndLearned) -> list[Effect]:
        end, sent = event.last_entry_id, self.acked + len(self.in_flight)
        if not self.acked <= end <= sent:
            reason = (
                f"log {self.log_name}: ledger {self.ledger_id} closed at entry {end}; this writer, its only one, had "
                f"entry {self.acked} confirmed and sent up to entry {sent}"
            )
            return [*self._step_down(reason, deposed=False), Halt(reason)]
        effects: list[Effect] = []
        while self.acked < end:
            effects += self._confirm()
            self._next()
        self._last_end = self._end(end, event.length)
        return effects + self._create()

    def _ledger_chained(self) -> list[Effect]:
        if self.batch is None:
            return super()._ledger_chained()
        self.phase = Phase.SENT
        return [AppendEntry(self.ledger_id, batch.payload) for batch in self.in_flight]

    def _step_down(self, reason: str, *, deposed: bool) -> list[Effect]:
        never = self.phase in (Phase.CREATE, Phase.CHAIN)
        dropped = [DropBatch(batch, applied_never=never) for batch in self.behind]
        self.behind.clear()
        effects = super()._step_down(reason, deposed=deposed)
        return [*effects[:-1], *dropped, effects[-1]]

    def validate(self) -> None:
        """Check the invariants; the simulation calls this after every event."""
        super().validate()
        assert self.batch is not None or not self.behind
