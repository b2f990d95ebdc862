"""Sans-IO writer of one ledger whose entry ids the application chooses; otherwise as `ledger.core.writer`.

Entries are sent in any order and confirmed in the order of their ids: one that is ahead waits until all before it have
been given and stored. Every id is given once. The ids in between that have not been given yet:

    gap    below the highest one given, not given itself -> `_gaps`; nothing is sent for it, nobody waits for it

The length in an entry's header counts the payload bytes of all entries given *before it in time*, and its own, as in
BookKeeper's LedgerHandleAdv: for entries out of order it is no cumulative length by id. The ledger's length at its
close is right again when the writer closes it (the bytes of all confirmed entries); after a recovery it is what the
header of the last entry says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ledger.core.quorum import QuorumConfig
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import ConfirmEntries, Effect, SendEntries
from ledger.errors import UsageError

AHEAD_MAX: Final = 65_536
"""Distance that an id may be above the last confirmed one: entries behind a gap are held in memory."""


class AdvLedgerWriter(LedgerWriter):
    """State of one open ledger with explicit entry ids."""

    def __init__(self, ledger_id: int, quorum: QuorumConfig, bookies: Sequence[str]) -> None:
        super().__init__(ledger_id, quorum, bookies)
        self._gaps: set[int] = set()
        # Payload bytes of the pending entries, by id; `_lengths` stays empty. Invariant: pending ids without gaps.
        self._sizes: dict[int, int] = {}

    @property
    def keep_from(self) -> int:
        """The first pending entry: ids out of order do not tell what a bookie may lack of those before."""
        return self._window.confirmed + 1

    @property
    def is_waiting(self) -> bool:
        """True if the bookies owe an answer to the oldest pending entry; False if the application must give one."""
        return super().is_waiting and self._window.confirmed + 1 not in self._gaps

    @property
    def last_confirmable(self) -> int:
        """Highest entry that can be confirmed before the application gives further ones."""
        return min(self._gaps) - 1 if self._gaps else self._window.pushed

    def append(self, payload_bytes: Iterable[int]) -> list[Effect]:  # noqa: ARG002
        """Refuse: the application chooses the ids."""
        raise UsageError(
            f"ledger {self.ledger_id} was created for explicit entry ids: use append_at", ledger_id=self.ledger_id
        )

    def check(self, entry_id: int) -> None:
        """Refuse an id that cannot be given.

        Raises:
            UsageError: It was given before, is negative, or is too far ahead.

        """
        window = self._window
        if entry_id < 0 or entry_id <= window.confirmed or (entry_id <= window.pushed and entry_id not in self._gaps):
            why = "ids begin at 0" if entry_id < 0 else "every id is given once"
            raise UsageError(
                f"ledger {self.ledger_id}: entry {entry_id} cannot be appended: {why}", ledger_id=self.ledger_id
            )
        if entry_id > window.confirmed + AHEAD_MAX:
            raise UsageError(
                f"ledger {self.ledger_id}: entry {entry_id} is more than {AHEAD_MAX} ahead of the last confirmed one "
                f"({window.confirmed}): fill the gap from {self.last_confirmable + 1} on first",
                ledger_id=self.ledger_id,
            )

    def append_at(self, entry_ids: Sequence[int], payload_bytes: Sequence[int]) -> list[Effect]:
        """Send entries under these ids.

        Args:
            entry_ids: In the order in which they were given; each has passed `check`, and they differ.
            payload_bytes: One size per id.

        Raises:
            LedgerError: The writer is frozen; this is the failure that froze it, again.

        """
        if self.failure is not None:
            raise self.failure
        runs: list[SendEntries] = []
        for entry_id, size in zip(entry_ids, payload_bytes, strict=True):
            self._give(entry_id, size)
            if runs and entry_id == runs[-1].first_entry_id + len(runs[-1].lengths):
                runs[-1].lengths.append(self._pushed_length)
            else:
                runs.append(SendEntries(entry_id, self.last_add_confirmed, [self._pushed_length]))
        return [*runs, *self._check_quorum()]

    def _give(self, entry_id: int, size: int) -> None:
        pushed = self._window.pushed
        if entry_id <= pushed:
            self._gaps.remove(entry_id)
        else:
            self._gaps.update(range(pushed + 1, entry_id))
            self._window.push(entry_id - pushed)
        self._sizes[entry_id] = size
        self._pushed_length += size

    def _confirm(self, before: int) -> list[Effect]:
        self._stored_length += sum(map(self._sizes.pop, range(before + 1, self._window.confirmed + 1)))
        return [ConfirmEntries(self._window.confirmed)]

    def _missing(self, position: int) -> list[int]:
        return [entry_id for entry_id in super()._missing(position) if entry_id not in self._gaps]

    def _missed(self, position: int) -> list[int]:  # noqa: ARG002
        return []

    def _validate_lengths(self) -> None:
        pending = range(self._window.confirmed + 1, self._window.pushed + 1)
        assert not self._lengths
        assert self._sizes.keys() | self._gaps == set(pending)
        assert not self._sizes.keys() & self._gaps
        assert self._window.pushed not in self._gaps
        assert self.pending_bytes == sum(self._sizes.values())
