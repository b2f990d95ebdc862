"""Sans-IO reading of a run of entries: the next replica on any miss, and what to say when none is left.

A reader asks only for entries that exist (at or below the LAC, or the end of a closed ledger): a bookie that
says "no such entry" is then one that missed it, never the end of the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from ledger.core.entry import Answer, Entry, Miss, MissKind
from ledger.core.metadata import LedgerMetadata
from ledger.core.quorum import write_set
from ledger.errors import DigestError, LedgerError, NoSuchEntryError, QuorumLostError, WrongPasswordError

__all__ = ["RangeReader", "ReadEntry", "read_failure", "replicas_of"]


class ReadEntry(msgspec.Struct, frozen=True, gc=False):
    """Ask this bookie for this entry; answer with `RangeReader.on_answers`."""

    bookie_id: str
    entry_id: int


def replicas_of(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """Return the bookies that hold an entry, in the order of its write set."""
    ensemble = metadata.ensemble_at(entry_id)
    return [ensemble[position] for position in write_set(entry_id, metadata.quorum)]


class RangeReader:
    """One read of the entries `first` to `last`, both inclusive.

    Attributes:
        failure: Why the read cannot be answered; None as long as it may.

    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, first: int, last: int) -> None:
        self.ledger_id = ledger_id
        self.failure: LedgerError | None = None
        self._metadata = metadata
        self._first = first
        self._entries: list[Entry | None] = [None] * (last - first + 1)
        self._missing_count = len(self._entries)
        # entry -> replicas not asked yet, and what those asked have said. Only for entries that missed once.
        self._untried: dict[int, list[str]] = {}
        self._misses: dict[int, list[tuple[str, Miss]]] = {}

    @property
    def is_done(self) -> bool:
        """Whether all entries are there, or the read has failed."""
        return self._missing_count == 0 or self.failure is not None

    def start(self, suspects: Collection[str] = ()) -> list[ReadEntry]:
        """Return the first requests, one per entry, spread over the ensemble; `suspects` are asked last."""
        requests: list[ReadEntry] = []
        for entry_id in range(self._first, self._first + len(self._entries)):
            replicas = replicas_of(self._metadata, entry_id)
            if suspects:
                replicas.sort(key=suspects.__contains__)
                self._untried[entry_id] = replicas[1:]
            requests.append(ReadEntry(replicas[0], entry_id))
        return requests

    def on_answers(self, answers: Iterable[tuple[str, int, Answer]]) -> list[ReadEntry]:
        """Take one wake-up's (bookie, entry id, answer) and return what to ask next."""
        requests: list[ReadEntry] = []
        for bookie_id, entry_id, answer in answers:
            index = entry_id - self._first
            if isinstance(answer, Entry):
                if self._entries[index] is None:
                    self._entries[index] = answer
                    self._missing_count -= 1
                continue
            if self.failure is None and self._entries[index] is None:
                requests += self._on_miss(bookie_id, entry_id, answer)
        return requests

    def entries(self) -> list[Entry]:
        """Return the entries in order.

        Raises:
            LedgerError: The failure of the read.

        """
        if self.failure is not None:
            raise self.failure
        return [entry for entry in self._entries if entry is not None]

    def _on_miss(self, bookie_id: str, entry_id: int, miss: Miss) -> list[ReadEntry]:
        misses = self._misses.setdefault(entry_id, [])
        misses.append((bookie_id, miss))
        untried = self._untried.get(entry_id)
        if untried is None:
            untried = [replica for replica in replicas_of(self._metadata, entry_id) if replica != bookie_id]
            self._untried[entry_id] = untried
        if untried and miss.kind != MissKind.DENIED:
            return [ReadEntry(untried.pop(0), entry_id)]
        self.failure = read_failure(self.ledger_id, entry_id, misses)
        return []


def read_failure(ledger_id: int, entry_id: int, misses: Sequence[tuple[str, Miss]]) -> LedgerError:
    """Return the error for an entry that no replica gave: the worst that is certain, or "unknown"."""
    seen = "; ".join(f"{bookie_id}: {miss.reason}" for bookie_id, miss in misses)
    kinds = {miss.kind for _, miss in misses}
    what = f"cannot read entry {entry_id} of ledger {ledger_id}"
    if MissKind.DENIED in kinds:
        return WrongPasswordError(f"{what}: the password is not the ledger's ({seen})", ledger_id=ledger_id)
    if MissKind.UNKNOWN in kinds:
        return QuorumLostError(f"{what}: no replica that holds it answers ({seen}); try again", ledger_id=ledger_id)
    if MissKind.CORRUPT in kinds:
        return DigestError(f"{what}: every replica that holds it is damaged ({seen})", ledger_id=ledger_id)
    return NoSuchEntryError(f"{what}: every replica says that it does not exist ({seen})", ledger_id=ledger_id)
