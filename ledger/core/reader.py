"""Sans-IO reading of a run of entries: ahead of who takes them, from the next replica on a miss or a silence.

Entries are asked for by *runs*: of one segment, at one bookie. A run of several is one batch read of consecutive ones;
where not every bookie stores every entry (ensemble larger than write quorum: the ledger is striped), it is one of every
so many-th entry, and the runs that lie among each other are put together (`Stripes`). Where bookies or the protocol do
not know such reads, a run is one entry.

    unasked   id >= `_next_unasked`
    asked     in `_runs`, by the first entry of the run
    ready     in `_ready`, likewise
    taken     id < `next_entry_id`

Asked and ready entries are at most a window: `window_bytes`, by the mean size of the entries so far.

A reader asks only for entries that exist (at or below the LAC, or the end of a closed ledger): a bookie that
says "no such entry" is then one that missed it, never the end of the ledger.
"""

# Longer than 400 lines: one read, whose window, runs and replicas decide together what is asked next.

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from ledger.core.entry import Answer, Entry, Miss, MissKind
from ledger.core.entry_block import EntryBlock
from ledger.core.metadata import LedgerMetadata
from ledger.core.quorum import write_set
from ledger.core.stripes import STRIDE_MAX, Stripes
from ledger.errors import DigestError, LedgerError, NoSuchEntryError, QuorumLostError, WrongPasswordError

_WINDOW_ENTRIES_MIN: Final = 16
_WINDOW_ENTRIES_MAX: Final = 8192
_WINDOW_ENTRIES_FIRST: Final = 64
"""Single entries asked for as long as their size is not known."""
_BATCH_ENTRIES_MAX: Final = 2048
_ENTRY_BYTES_FIRST: Final = 1024
_SINGLES_IN_A_ROW: Final = 32
"""Single entries that the same bookie is asked for, one after the other: it reads them in one go."""


class ReadEntry(msgspec.Struct, frozen=True, gc=False):
    """Ask this bookie for this entry."""

    bookie_id: str
    entry_id: int


class ReadRun(msgspec.Struct, frozen=True, gc=False):
    """Ask this bookie for `count` entries, this one and each `stride`-th behind it.

    Answer with `RangeReader.on_answers` or `on_batch`.
    """

    bookie_id: str
    first_entry_id: int
    count: int
    stride: int = 1


def replicas_of(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """Return the bookies that hold an entry, in the order of its write set."""
    ensemble = metadata.ensemble_at(entry_id)
    return [ensemble[position] for position in write_set(entry_id, metadata.quorum)]


class _Run:
    """A run that is asked for.

    Attributes:
        asked: Who was asked, in order; never empty.
        asked_at: When the last of them was.
        misses: What those said who do not have it. (Tuples: nothing that the garbage collector follows.)
        stripes: Where its entries go, each `stripes.stride`-th one; None = they are consecutive.

    """

    __slots__ = ("asked", "asked_at", "count", "first", "misses", "stripes")

    def __init__(self, first: int, count: int, bookie_id: str, now: float, stripes: Stripes | None = None) -> None:
        self.first = first
        self.count = count
        self.stripes = stripes
        self.asked: tuple[str, ...] = (bookie_id,)
        self.asked_at = now
        self.misses: tuple[tuple[str, Miss], ...] = ()

    @property
    def stride(self) -> int:
        return 1 if self.stripes is None else self.stripes.stride

    def asks(self, bookie_id: str) -> ReadRun:
        """Return what to ask a bookie."""
        return ReadRun(bookie_id, self.first, self.count, self.stride)


class RangeReader:
    """One read of the entries `first` to `last`, both inclusive.

    Args:
        ledger_id: The ledger.
        metadata: Where its entries are.
        first: First entry.
        last: Last entry.
        window_bytes: Payload bytes asked for and not taken yet, at most (by the mean size).
        batch_bytes: What one batch read may bring; None: single entries only.
        entry_bytes: Mean size of the ledger's entries, if it is known.

    Attributes:
        failure: Why an entry cannot be had; None as long as all may. The read then ends before that entry.
        next_entry_id: The first entry that was not taken.
        has_split: Whether a batch read was given up for single reads, since nobody answered it.
        takes_blocks: Whether batches are handed in as blocks, for `take_blocks`.
        slow: Bookies that somebody else was asked instead of, because they were silent; asked last from then on.

    """

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        first: int,
        last: int,
        *,
        window_bytes: int = 16 * 1024 * 1024,
        batch_bytes: int | None = None,
        entry_bytes: int | None = None,
    ) -> None:
        self.ledger_id = ledger_id
        self.failure: LedgerError | None = None
        self.next_entry_id = first
        self.has_split = False
        self.takes_blocks = False
        self.slow: dict[str, None] = {}
        self._metadata = metadata
        self._last = last
        self._next_unasked = first
        self._window_bytes = window_bytes
        ensemble_size = metadata.quorum.ensemble_size
        is_whole = ensemble_size == metadata.quorum.write_quorum
        self._stride = 1 if is_whole else ensemble_size
        self._batch_bytes = batch_bytes if self._stride <= STRIDE_MAX else None
        self._singles_in_a_row = _SINGLES_IN_A_ROW if is_whole else 1
        self._is_size_known = entry_bytes is not None
        # Sums for the mean size; the first guess counts as one entry.
        self._seen_bytes = entry_bytes or _ENTRY_BYTES_FIRST
        self._seen_count = 1
        self._runs: dict[int, _Run] = {}
        self._ready: dict[int, Sequence[Entry] | EntryBlock] = {}
        self._stripes: dict[int, Stripes] = {}  # That are not whole, by their first entries.
        self._suspects: Collection[str] = ()
        # Bookie -> when it last answered. One that streams what was asked for is not silent, however much that is.
        self._heard_at: dict[str, float] = {}

    @property
    def is_done(self) -> bool:
        """True if all entries were taken, or all before the one that cannot be had."""
        return self.next_entry_id > self._last

    @property
    def entry_bytes(self) -> int:
        """Mean payload size of the entries seen, at least 1."""
        return self._seen_bytes // self._seen_count + 1

    def ask(self, now: float, suspects: Collection[str] = ()) -> list[ReadRun]:
        """Return what to ask for now, as far as the window lets; `suspects` are asked last."""
        requests: list[ReadRun] = []
        self._suspects = suspects
        limit = min(self._last, self.next_entry_id + self._window_entries() - 1)
        while (first := self._next_unasked) <= limit:
            bookie_id = self._replicas(first)[0]
            segment_end = min(self._last, self._segment_end(first))
            left = segment_end - first + 1
            if self._batch_bytes is not None and self._stride == 1:
                count = min(self._batch_entries(), left)
                self._runs[first] = _Run(first, count, bookie_id, now)
                requests.append(ReadRun(bookie_id, first, count))
                self._next_unasked = first + count
                continue
            if self._batch_bytes is not None and left >= 2 * self._stride:
                count = min(max(self._batch_entries(), 2 * self._stride), left)
                requests += self._ask_stripes(first, count, now)
                self._next_unasked = first + count
                continue
            in_a_row = self._singles_in_a_row
            end = min(limit, segment_end, first - first % in_a_row + in_a_row - 1)
            for entry_id in range(first, end + 1):
                self._runs[entry_id] = _Run(entry_id, 1, bookie_id, now)
                requests.append(ReadRun(bookie_id, entry_id, 1))
            self._next_unasked = end + 1
        return requests

    def _ask_stripes(self, first: int, count: int, now: float) -> list[ReadRun]:
        """Ask for consecutive entries, each of those that hold some for its own."""
        stripes = self._stripes[first] = Stripes(first, count, self._stride, takes_blocks=self.takes_blocks)
        requests: list[ReadRun] = []
        for entry_id in range(first, first + self._stride):
            own = (first + count - entry_id + self._stride - 1) // self._stride
            run = self._runs[entry_id] = _Run(entry_id, own, self._replicas(entry_id)[0], now, stripes)
            requests.append(run.asks(run.asked[0]))
        return requests

    def on_answers(self, answers: Iterable[tuple[str, int, Answer]], now: float) -> list[ReadRun]:
        """Take one wake-up's answers to single reads, (bookie, entry id, answer); return what to ask next."""
        requests: list[ReadRun] = []
        runs, ready = self._runs, self._ready
        heard_at = self._heard_at
        for bookie_id, entry_id, answer in answers:
            run = runs.get(entry_id)
            if isinstance(answer, Entry):
                heard_at[bookie_id] = now
                if run is not None and run.count == 1:
                    del runs[entry_id]
                    if run.stripes is None:
                        ready[entry_id] = (answer,)
                    else:
                        self._put(run, (answer,))
                    self._seen_bytes += len(answer.payload)
                    self._seen_count += 1
            elif run is not None:
                requests += self._on_miss(run, bookie_id, answer, now)
        self._is_size_known = self._is_size_known or self._seen_count > 1
        self._forgive()
        return requests

    def on_batch(
        self, bookie_id: str, first: int, entries: Sequence[Entry] | EntryBlock, miss: Miss | None, now: float
    ) -> list[ReadRun]:
        """Take the answer to a batch read; return what to ask next.

        Args:
            bookie_id: Who answers.
            first: First entry that was asked for.
            entries: What came, from `first` on, so far apart as was asked for; it may be less. Blocks are taken by
                `take_blocks`.
            miss: Why the entry after these did not come, if the bookie said so or it is damaged.
            now: Time.

        """
        run = self._runs.get(first)
        requests: list[ReadRun] = []
        if entries:
            self._heard_at[bookie_id] = now
            self._forgive()
        if run is None:
            return requests
        if entries:
            del self._runs[first]
            if isinstance(entries, EntryBlock):
                entries = entries.head(run.count)
                self._seen_bytes += entries.payload_bytes
            else:
                entries = entries[: run.count]
                self._seen_bytes += sum([len(entry.payload) for entry in entries])
            if run.stripes is None:
                self._ready[first] = entries
            else:
                self._put(run, entries)
            self._seen_count += len(entries)
            self._is_size_known = True
            if len(entries) == run.count:
                return requests
            # The rest, where the first part came from: most often it was only too much for one answer.
            run = _Run(first + len(entries) * run.stride, run.count - len(entries), bookie_id, now, run.stripes)
            self._runs[run.first] = run
            if miss is None:
                requests.append(run.asks(bookie_id))
        if miss is not None:
            requests += self._on_miss(run, bookie_id, miss, now)
        return requests

    def on_overdue(self, now: float, limit_s: float) -> list[ReadRun]:
        """Ask the next replica too for what nobody has answered for `limit_s`; whoever is first will do."""
        requests: list[ReadRun] = []
        for run in self._runs.values():
            silent = run.asked[-1]
            if run.first > self._last or now - max(run.asked_at, self._heard_at.get(silent, run.asked_at)) < limit_s:
                continue
            self.slow[silent] = None
            self._heard_at.pop(silent, None)
            run.asked_at = now
            requests += self._ask_next(run)
        return requests

    def take(self) -> list[Entry]:
        """Take the entries that are ready, in order."""
        taken: list[Entry] = []
        pop = self._ready.pop
        entry_id = self.next_entry_id
        while (run := pop(entry_id, None)) is not None:
            assert not isinstance(run, EntryBlock), "blocks are taken as blocks"
            taken.extend(run)
            entry_id += len(run)
        self.next_entry_id = entry_id
        return taken

    def take_blocks(self) -> list[EntryBlock]:
        """Take the entries that are ready, in order, as blocks; single ones that follow each other become one."""
        blocks: list[EntryBlock] = []
        singles: list[Entry] = []
        entry_id = self.next_entry_id
        while (run := self._ready.pop(entry_id, None)) is not None:
            entry_id += len(run)
            if not isinstance(run, EntryBlock):
                singles.extend(run)
                continue
            if singles:
                blocks.append(EntryBlock.of(singles))
                singles = []
            blocks.append(run)
        if singles:
            blocks.append(EntryBlock.of(singles))
        self.next_entry_id = entry_id
        return blocks

    def validate(self) -> None:
        spans = [(stripes.first_entry_id, stripes.count) for stripes in self._stripes.values()]
        for run in self._runs.values():
            if run.stripes is None:
                spans.append((run.first, run.count))
            elif run.stripes.first_entry_id not in self._stripes:
                spans += [(run.first + number * run.stride, 1) for number in range(run.count)]
        spans += [(first, len(entries)) for first, entries in self._ready.items()]
        expected = self.next_entry_id
        for first, count in sorted(spans):
            assert first == expected
            expected += count
        assert expected == self._next_unasked
        assert all(run.asked and run.count >= 1 for run in self._runs.values())

    def _on_miss(self, run: _Run, bookie_id: str, miss: Miss, now: float) -> list[ReadRun]:
        if run.first > self._last or bookie_id in [bookie for bookie, _ in run.misses]:
            return []
        run.misses += ((bookie_id, miss),)
        requests = self._ask_next(run)
        if requests:
            run.asked_at = now
            return requests
        if len(run.misses) < len(run.asked):
            return []  # another one was asked as well, and may still answer
        if run.count > 1 and any(miss.kind == MissKind.UNKNOWN for _, miss in run.misses):
            return self._split(run, now)
        self._take_apart(run)
        self.failure = read_failure(self.ledger_id, run.first, run.misses)
        self._last = run.first - 1
        return []

    def _ask_next(self, run: _Run) -> list[ReadRun]:
        for bookie_id in self._replicas(run.first):
            if bookie_id not in run.asked:
                run.asked += (bookie_id,)
                return [run.asks(bookie_id)]
        return []

    def _split(self, run: _Run, now: float) -> list[ReadRun]:
        """Ask for each entry of a batch that nobody answers: perhaps only batch reads are not understood."""
        self.has_split = True
        self._batch_bytes = None
        self._take_apart(run)
        requests: list[ReadRun] = []
        for entry_id in range(run.first, run.first + run.count * run.stride, run.stride):
            bookie_id = self._replicas(entry_id)[0]
            self._runs[entry_id] = _Run(entry_id, 1, bookie_id, now)
            requests.append(ReadRun(bookie_id, entry_id, 1))
        return requests

    def _put(self, run: _Run, entries: Sequence[Entry] | EntryBlock) -> None:
        """Put entries of a run where they belong; they are ready when what lies among them has come, too."""
        stripes = run.stripes
        assert stripes is not None
        if stripes.first_entry_id not in self._stripes:  # It was taken apart.
            self._ready.update(stripes.one_by_one(run.first, entries))
            return
        stripes.put(run.first, entries)
        if stripes.is_whole:
            self._ready[stripes.first_entry_id] = self._stripes.pop(stripes.first_entry_id).taken()

    def _take_apart(self, run: _Run) -> None:
        """Have the entries that came of a run's stripes ready each by itself: the others will come so, or never."""
        if run.stripes is not None and self._stripes.pop(run.stripes.first_entry_id, None) is not None:
            self._ready.update(run.stripes.present())

    def _forgive(self) -> None:
        """Trust the bookies again that have answered since they were silent."""
        if self.slow:
            for bookie_id in [bookie_id for bookie_id in self.slow if bookie_id in self._heard_at]:
                del self.slow[bookie_id]

    def _replicas(self, entry_id: int) -> list[str]:
        """Return who holds an entry, the one to ask first in front; load is spread over all of them."""
        if self._singles_in_a_row == 1:
            replicas = replicas_of(self._metadata, entry_id)
        else:
            ensemble = self._metadata.ensemble_at(entry_id)
            stride = self._singles_in_a_row if self._batch_bytes is None else self._batch_entries()
            position = entry_id // stride % len(ensemble)
            replicas = [*ensemble[position:], *ensemble[:position]]
        if self._suspects or self.slow:
            replicas.sort(key=lambda bookie_id: bookie_id in self.slow or bookie_id in self._suspects)
        return replicas

    def _window_entries(self) -> int:
        if self._batch_bytes is None and not self._is_size_known:
            return _WINDOW_ENTRIES_FIRST
        return max(_WINDOW_ENTRIES_MIN, min(_WINDOW_ENTRIES_MAX, self._window_bytes // self.entry_bytes))

    def _batch_entries(self) -> int:
        assert self._batch_bytes is not None
        return max(1, min(_BATCH_ENTRIES_MAX, self._batch_bytes // self.entry_bytes))

    def _segment_end(self, entry_id: int) -> int:
        """Return the last entry of the segment that holds `entry_id`."""
        for segment in self._metadata.segments:
            if segment.first_entry_id > entry_id:
                return segment.first_entry_id - 1
        return self._last


def read_failure(ledger_id: int, entry_id: int, misses: Sequence[tuple[str, Miss]]) -> LedgerError:
    """Return the error for an entry that no replica gave: the worst that is certain, or "unknown"."""
    seen = "; ".join(f"{bookie_id}: {miss.reason}" for bookie_id, miss in misses)
    kinds = {miss.kind for _, miss in misses}
    what = f"cannot read entry {entry_id} of ledger {ledger_id}"
    if kinds == {MissKind.DENIED}:
        return WrongPasswordError(
            f"{what}: the password is not the ledger's, or the bookies demand TLS or a log-in ({seen})",
            ledger_id=ledger_id,
        )
    if MissKind.UNKNOWN in kinds or MissKind.DENIED in kinds:
        return QuorumLostError(f"{what}: no replica that holds it answers ({seen}); try again", ledger_id=ledger_id)
    if MissKind.CORRUPT in kinds:
        return DigestError(f"{what}: every replica that holds it is damaged ({seen})", ledger_id=ledger_id)
    return NoSuchEntryError(f"{what}: every replica says that it does not exist ({seen})", ledger_id=ledger_id)
