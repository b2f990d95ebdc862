"""Sans-IO writer of one ledger with deferred sync: bookies acknowledge before they sync; otherwise as the plain one.

    stored      acknowledged to the caller, perhaps only in bookies' memory   -> id <= `last_stored`
    confirmed   forced: every bookie of the ensemble has synced it            -> id <= `last_add_confirmed`

The LAC moves only when a force has succeeded, so readers see nothing that a crash could take back. A bookie that
restarts has forgotten what it had not synced, and would answer a later force with a clean conscience. So the first
sign that a bookie failed ends the writer if anything is not forced yet, and the ensemble never changes.

Source: BookKeeper's DEFERRED_SYNC. Its writer notices a bookie's restart only if adds were under way; this one always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ledger.core.metadata import NO_ENTRY
from ledger.core.quorum import QuorumConfig
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import Effect
from ledger.errors import QuorumLostError


class DeferredLedgerWriter(LedgerWriter):
    """State of one open ledger with deferred sync."""

    may_change_ensemble: ClassVar[bool] = False

    def __init__(self, ledger_id: int, quorum: QuorumConfig, bookies: Sequence[str]) -> None:
        super().__init__(ledger_id, quorum, bookies)
        self._forced = NO_ENTRY
        self._forced_length = 0

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry that is known to be synced by the whole ensemble, or `NO_ENTRY`."""
        return self._forced

    @property
    def confirmed_length(self) -> int:
        """Payload bytes of all forced entries."""
        return self._forced_length

    def begin_force(self) -> tuple[int, int]:
        """Return what a force that is sent now covers: the last entry, and the bytes up to it."""
        return self.last_stored, self._stored_length

    def on_forced(self, target: tuple[int, int]) -> None:
        """Count what `begin_force` returned as durable: every bookie of the ensemble has answered EOK."""
        if self.failure is None:
            self._forced, self._forced_length = max(target, (self._forced, self._forced_length))

    def on_force_failed(self, reason: str) -> list[Effect]:
        """End: what is not forced may be lost."""
        return self.freeze(self._at_risk(reason)) if self.failure is None else []

    def on_position_lost(self, position: int, reason: str) -> list[Effect]:
        """End if anything is not forced: a connection that broke may mean a bookie that restarts."""
        return self._end_if_at_risk(position, reason) if self.failure is None else []

    def validate(self) -> None:
        assert self.change_after_s is None
        super().validate()

    def _check_quorum(self, *, is_last_hope_gone: bool = False) -> list[Effect]:
        for position, reason in self._health.failed.items():
            return self._end_if_at_risk(position, reason)
        return super()._check_quorum(is_last_hope_gone=is_last_hope_gone)

    def _end_if_at_risk(self, position: int, reason: str) -> list[Effect]:
        if self.last_add_pushed == self._forced:
            return []
        return self.freeze(self._at_risk(f"{self.bookies[position]}: {reason}"))

    def _at_risk(self, seen: str) -> QuorumLostError:
        return QuorumLostError(
            f"ledger {self.ledger_id}, with deferred sync: a bookie failed ({seen}), and may have lost what it had not "
            f"synced. Entries up to {self._forced} are durable, up to {self.last_stored} they were acknowledged before "
            "a sync: close the ledger and append the rest again in a new one",
            ledger_id=self.ledger_id,
        )
