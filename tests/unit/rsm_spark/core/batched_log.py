"""A plain log with batches of several writers, in memory, and the truth about what is finished in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from rsm_spark.core.producers import RecordSource
from rsm_spark.core.records import pack
from rsm_spark.core.writer_marks import MarkKind, WriterMark, digest_of
from rsm_spark.core.writers import MarkVerdict
from tests.unit.rsm_spark.core.composed_log import ComposedLog

CLAIMED = 7
"""Rows that a writer who lies says its batch has."""


class BatchedLog(ComposedLog):
    """Writes a log by chance; what is shown of it to readers of finished batches is known.

    Args:
        rng: Decides everything.
        is_old: It is written as releases before this one did.

    Attributes:
        shown: Payloads as a reader of finished batches has to see them, with the number of the entry that shows them.

    """

    def __init__(self, rng: random.Random, *, is_old: bool = False) -> None:
        self.shown: list[tuple[int, bytes]] = []
        self._rng = rng
        self._busy: set[str] = set()  # Writers with something in no entry yet.
        self._later: list[bytes] = []  # Shown with the next entry.
        self._number = 0
        self._sequence = 0
        self._rows: dict[str, list[bytes]] = {}  # By writer, of its open batch: as they were appended.
        self._runs: dict[str, _WriterRun] = {}
        super().__init__(is_old=is_old)

    # ---- what happens

    def step(self) -> None:
        """Do something."""
        match self._rng.choices(range(7), (8, 4, 2, 3, 1, 1, 1))[0]:
            case 0 | 1:
                self._batch_step(self._rng.choice("abcd"))
            case 2:
                self._append((self._payload(b"loose"),))
            case 3:
                self.flush()
            case 4:
                self._sequence += 1
                self._append((self._payload(b"made"),), source=RecordSource("p", "o", self._sequence))
            case 5:
                self.flush()
                self.roll() if self._rng.random() < 0.5 else self.note()
            case _:
                self._forget(self._rng.choice("abcd"))

    def _payload(self, name: bytes) -> bytes:
        self._number += 1
        return b"%s %d" % (name, self._number)

    def _append(self, payloads: Sequence[bytes], *, source: RecordSource | None = None, is_shown: bool = True) -> None:
        self.queue.add(payloads, [None] * len(payloads), None, lambda: None, source)
        if is_shown:
            self._later += payloads

    def _batch_step(self, writer: str) -> None:
        if writer in self._busy:
            self.flush()
        run = self._runs.get(writer)
        if run is None or run.is_over:
            passing = writer == "d"
            name = f"{writer}{self._number}" if passing else writer
            following = _WriterRun(name, is_passing=passing)
            if run is not None and not passing:
                following.follow(run)
            run = self._runs[writer] = following
            self._rows.pop(name, None)
        if self._rng.random() < 0.03 and not run.is_passing:  # Another checkpoint takes its place.
            before, run.checkpoint = run.checkpoint, self._rng.choice("cef")
            if before != run.checkpoint:
                run.takes_over_from, run.chunks = before, {}
                self._rows.pop(run.name, None)
        if run.is_passing and not run.has_begun:
            run.has_begun = True
            self._send(run, MarkKind.BEGIN)
        elif not run.chunks and self._rng.random() < 0.3 and not run.is_passing:
            rows = [self._payload(b"whole") for _ in range(self._rng.randint(1, 3))]
            if self._send(run, MarkKind.WHOLE, rows=rows):
                self._later += rows
                run.is_over = True
        elif run.chunks and self._rng.random() < 0.3:
            parts = tuple(sorted(run.chunks.items()))
            if self._send(run, MarkKind.END, parts=parts, row_count=CLAIMED):
                self._later += self._rows.pop(run.name, [])
            run.is_over = True
        else:
            part = self._rng.choice([*run.chunks, len(run.chunks)])
            rows = [self._payload(b"row") for _ in range(self._rng.randint(1, 4))]
            chunk = run.chunks.get(part, 0)
            if self._send(run, MarkKind.CHUNK, part=part, chunk=chunk, rows=rows):
                self._rows.setdefault(run.name, []).extend(rows)
                run.chunks[part] = chunk + 1
            else:
                run.is_over = True

    def _send(self, run: _WriterRun, kind: MarkKind, *, rows: Sequence[bytes] = (), **more: Any) -> bool:
        keys = [None] * len(rows)
        mark = WriterMark(run.name, kind, run.checkpoint, "r", run.batch, digest=digest_of(pack((keys, rows))))
        mark = msgspec.structs.replace(
            mark, is_passing=run.is_passing, takes_over_from=run.takes_over_from, **{"row_count": len(rows), **more}
        )
        if kind is MarkKind.END:
            mark = self.judged_end(mark)
        judged = self.writers.judge(mark)
        if judged.standing is not MarkVerdict.APPLY or not (judged.records or rows):
            return False
        self.queue.add(rows, keys, None, lambda: None, None, judged.records)
        self._busy.add(run.name[0])
        return True

    def judged_end(self, mark: WriterMark) -> WriterMark:
        """Return the mark of an end as the log's writer judges it."""
        row_count = sum(row.row_count for row in self.writers.parts(mark.writer).values())
        return msgspec.structs.replace(mark, row_count=row_count)

    def _forget(self, writer: str) -> None:
        self.flush()
        run = self._runs.get(writer)
        if run is None or not self.writers.forgetting(run.name):
            return
        self.queue.add((), (), None, lambda: None, None, self.writers.forgetting(run.name))
        self._rows.pop(run.name, None)
        if self._rng.random() < 0.5 and not run.is_passing:
            run.chunks, run.takes_over_from = {}, ""  # The same batch is written anew.
        else:
            run.is_over = True
        self.flush()

    def flush(self) -> bool:
        """Make an entry of what waits, and know what it shows."""
        is_made = super().flush()
        self.shown += [(len(self.entries) - 1, payload) for payload in self._later]
        self._later, self._busy = [], set()
        return is_made


class _WriterRun:
    """What a writer is at."""

    def __init__(self, name: str, *, is_passing: bool) -> None:
        self.name = name
        self.checkpoint = "c"
        self.batch = 0
        self.is_passing = is_passing
        self.takes_over_from = ""
        self.chunks: dict[int, int] = {}
        self.has_begun = False
        self.is_over = False

    def follow(self, before: _WriterRun) -> None:
        """Be the next batch of the same writer."""
        self.checkpoint, self.takes_over_from = before.checkpoint, before.takes_over_from
        self.batch = before.batch + 1
