"""Adds in flight on one connection, by runs: what was sent together is usually answered together, and in order.

An add is known by the one frame that would answer it "stored". A run keeps these frames joined, so that received
bytes are compared with what is expected next: the answers of a whole run cost one comparison. What comes in
another order is looked up by ledger and entry.

    in flight   sent, not answered                              -> `_order` and `_by_ledger`
    answered    taken by `take_stored` or `take`, once          -> nowhere
    late        reported as unanswered; its answer may yet come -> `_late`
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

AskerT = TypeVar("AskerT")

StoredIds: TypeAlias = Callable[[bytes | bytearray, int, int], tuple[int, int, int] | None]
"""(buffer, position, end) -> ledger, entry and end of a frame that says "stored"; None if it says anything else."""

Answered: TypeAlias = tuple[AskerT, Sequence[int]]
"""Sender of the adds, and their entries in ascending order."""


class AddBatch(Generic[AskerT]):
    """Adds of one ledger that are sent together, to one bookie or to several; their tokens are their entry ids.

    Args:
        asker: Who sends them.
        ledger_id: Their ledger.
        entry_ids: Ascending.
        answers: The frame for each that will say "stored", as the encoder gave it.

    """

    __slots__ = ("asker", "entry_ids", "ledger_id", "runs")

    def __init__(self, asker: AskerT, ledger_id: int, entry_ids: Sequence[int], answers: Sequence[bytes]) -> None:
        assert len(entry_ids) == len(answers)
        self.asker = asker
        self.ledger_id = ledger_id
        self.entry_ids = entry_ids
        # (entries, their answers joined, bytes of each answer)
        self.runs: list[tuple[Sequence[int], bytes, int]] = []
        start = 0
        while start < len(answers):
            size = len(answers[start])
            stop = len(answers)
            if len(answers[-1]) != size:
                stop = next(index for index in range(start, stop) if len(answers[index]) != size)
            self.runs.append((entry_ids[start:stop], b"".join(answers[start:stop]), size))
            start = stop


class _Run(Generic[AskerT]):
    """Adds sent together whose answers have one size.

    Invariants: `answers` is one frame per entry; the entries below index `next` are answered, and those at the
    indexes in `early`, all of which are above `next`; `entry_ids` ascend.
    """

    __slots__ = ("answers", "asker", "early", "entry_ids", "frame_bytes", "ledger_id", "next", "sent_at")

    def __init__(
        self, asker: AskerT, ledger_id: int, entry_ids: Sequence[int], answers: bytes, frame_bytes: int, sent_at: float
    ) -> None:
        self.asker = asker
        self.ledger_id = ledger_id
        self.entry_ids = entry_ids
        self.answers = answers
        self.frame_bytes = frame_bytes
        self.sent_at = sent_at
        self.next = 0
        self.early: set[int] = set()

    @property
    def is_done(self) -> bool:
        return self.next == len(self.entry_ids)

    def unanswered(self) -> Sequence[int]:
        rest = self.entry_ids[self.next :]
        if not self.early:
            return rest
        return [entry_id for index, entry_id in enumerate(rest, self.next) if index not in self.early]

    def find(self, entry_id: int, frame: bytes | bytearray) -> int | None:
        """Return the index of an add that waits for exactly this answer."""
        index = bisect_left(self.entry_ids, entry_id, self.next)
        if index == len(self.entry_ids) or self.entry_ids[index] != entry_id or index in self.early:
            return None
        start = index * self.frame_bytes
        return index if self.answers[start : start + self.frame_bytes] == frame else None

    def answer(self, index: int) -> None:
        if index != self.next:
            self.early.add(index)
            return
        self.next += 1
        while self.early and self.next in self.early:
            self.early.remove(self.next)
            self.next += 1

    def take_next(self, buffer: bytes | bytearray, position: int, end: int) -> int:
        """Return how many of the next adds are answered, in order, by the frames at `position`."""
        if self.early:
            return 0
        size = self.frame_bytes
        start = self.next * size
        if not buffer.startswith(self.answers[start : start + size], position, end):
            return 0
        most = min(len(self.entry_ids) - self.next, (end - position) // size)
        known = 1
        step = most - 1  # first all of them, then ever less: the answers of several ledgers may be interleaved
        while step:
            if buffer.startswith(self.answers[start + known * size : start + (known + step) * size],
                                 position + known * size, end):  # fmt: skip
                known += step
                step = min(step, most - known)
            else:
                step //= 2
        return known


class AddRuns(Generic[AskerT]):
    """The runs of one connection."""

    def __init__(self, stored_ids: StoredIds) -> None:
        self._stored_ids = stored_ids
        # Oldest first, of all and of each ledger; runs that are done leave when they come to the front. Invariants:
        # a run that is not done is in both; neither has a done run at its front.
        self._order: deque[_Run[AskerT]] = deque()
        self._by_ledger: dict[int, deque[_Run[AskerT]]] = {}
        # Answers that may come for adds that were given up -> how many; late answers are no fault of the bookie.
        self._late: dict[bytes, int] = {}

    @property
    def late_count(self) -> int:
        """Adds that were given up and not answered since."""
        return len(self._late)

    def add(self, batch: AddBatch[AskerT], now: float) -> None:
        """Take adds that are sent now (loop time)."""
        runs = self._by_ledger.setdefault(batch.ledger_id, deque())
        for entry_ids, answers, frame_bytes in batch.runs:
            run = _Run(batch.asker, batch.ledger_id, entry_ids, answers, frame_bytes, now)
            runs.append(run)
            self._order.append(run)

    def take_stored(self, buffer: bytes | bytearray, end: int) -> tuple[list[Answered[AskerT]], int]:
        """Take the frames at the front of `buffer[:end]` that say "stored".

        Returns:
            What they answer, and the end of the last of them: the frame there says something else, answers
            something else, or is not whole.

        """
        answered: list[Answered[AskerT]] = []
        position = 0
        while position < end:
            run = self._order[0] if self._order else None
            count = run.take_next(buffer, position, end) if run is not None else 0
            if run is not None and count:
                answered.append((run.asker, run.entry_ids[run.next : run.next + count]))
                run.next += count
                position += count * run.frame_bytes
                self._forget_done(run)
                continue
            ids = self._stored_ids(buffer, position, end)
            if ids is None:
                break
            ledger_id, entry_id, stop = ids
            found = self._find(ledger_id, entry_id, buffer[position:stop])
            if found is None:
                if not self._take_late(bytes(buffer[position:stop])):
                    break
                position = stop
                continue
            run, index = found
            count = run.take_next(buffer, position, end) if index == run.next else 0
            answered.append((run.asker, run.entry_ids[index : index + max(1, count)]))
            position += max(1, count) * run.frame_bytes
            if count:
                run.next += count
            else:
                run.answer(index)
            self._forget_done(run)
        return answered, position

    def take(self, ledger_id: int, entry_id: int, stored: bytes) -> list[Answered[AskerT]] | None:
        """Take the add that `stored` would answer, because another answer to it has come.

        Returns:
            The add; nothing for one that was given up; None if there is none.

        """
        found = self._find(ledger_id, entry_id, stored)
        if found is None:
            return [] if self._take_late(stored) else None
        run, index = found
        run.answer(index)
        self._forget_done(run)
        return [(run.asker, run.entry_ids[index : index + 1])]

    def overdue(self, sent_before: float) -> list[Answered[AskerT]]:
        """Give up the adds that were sent before then, and return them."""
        given_up: list[Answered[AskerT]] = []
        while self._order and self._order[0].sent_at < sent_before:
            run = self._order[0]
            given_up.append((run.asker, run.unanswered()))
            for index in range(run.next, len(run.entry_ids)):
                if index not in run.early:
                    answer = run.answers[index * run.frame_bytes : (index + 1) * run.frame_bytes]
                    self._late[answer] = self._late.get(answer, 0) + 1
            run.next = len(run.entry_ids)
            run.early.clear()
            self._forget_done(run)
        return given_up

    def clear(self) -> list[Answered[AskerT]]:
        """Forget everything, because the connection is gone; return what was not answered."""
        rest = [(run.asker, run.unanswered()) for run in self._order if not run.is_done]
        self._order.clear()
        self._by_ledger.clear()
        self._late.clear()
        return rest

    def validate(self) -> None:
        """Check the invariants."""
        for run in self._order:
            assert len(run.answers) == len(run.entry_ids) * run.frame_bytes
            assert 0 <= run.next <= len(run.entry_ids)
            assert all(run.next < index < len(run.entry_ids) for index in run.early)
            assert run.is_done or run in self._by_ledger[run.ledger_id]
        assert not self._order or not self._order[0].is_done
        assert all(runs and not runs[0].is_done for runs in self._by_ledger.values())

    def _forget_done(self, run: _Run[AskerT]) -> None:
        """Let runs that are done leave, once they are at the front."""
        if not run.is_done:
            return
        order = self._order
        while order and order[0].is_done:
            order.popleft()
        runs = self._by_ledger[run.ledger_id]
        while runs and runs[0].is_done:
            runs.popleft()
        if not runs:
            del self._by_ledger[run.ledger_id]

    def _find(self, ledger_id: int, entry_id: int, stored: bytes | bytearray) -> tuple[_Run[AskerT], int] | None:
        for run in self._by_ledger.get(ledger_id, ()):
            index = run.find(entry_id, stored)
            if index is not None:
                return run, index
        return None

    def _take_late(self, stored: bytes) -> bool:
        count = self._late.pop(stored, 0)
        if count > 1:
            self._late[stored] = count - 1
        return count > 0
