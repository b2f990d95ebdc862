"""Readers of finished batches of a partitioned log: each partition shows its rows once, when all rows are there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from rsm_spark.core import finished_batches
from rsm_spark.core.batch_pieces import BatchPiece, BatchStep, PartitionedWriters
from rsm_spark.core.finished_batches import BatchKey, BatchWatch, EndedBatch
from rsm_spark.core.writer_marks import MarkKind, WriterMark
from rsm_spark.core.writers import OWN_PART, MarkVerdict, WriterRow
from rsm_spark.errors import CorruptLogError
from tests.unit.rsm_spark.core.composed_log import asked, open_before
from tests.unit.rsm_spark.core.pieced_log import PiecedLog, Row, chunk_rows, make_end, make_mark, make_rows

_STEPS = 150
_SEEDS = 60
APPLY = MarkVerdict.APPLY


class _Job:
    """A writer of batches: the marks of its present batch, and how far it is.

    Attributes:
        rows: Of the batch.
        sent: So many marks were answered.

    """

    def __init__(self, writer: str, batch: int, marks: Sequence[tuple[WriterMark, Sequence[Row]]]) -> None:
        self.writer = writer
        self.batch = batch
        self.marks = marks
        self.rows = [payload for _, some in marks for _, payload in some]
        self.sent = 0
        self.is_passing = marks[-1][0].is_passing


class _World:
    """A partitioned log that writers, growths and deaths befall by chance, and what is true of it.

    Attributes:
        log: The log.
        loose: What is of no batch.
        ended: By writer and batch, the rows of those whose home says that they have ended.

    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = PiecedLog(self.rng.randrange(1, 5))
        self.loose: list[bytes] = []
        self.ended: dict[tuple[str, int], list[bytes]] = {}
        self._jobs: dict[str, _Job] = {}
        self._number = 0

    def step(self) -> None:
        rng, log = self.rng, self.log
        match rng.choices(range(6), (30, 6, 3, 1, 2, 2))[0]:
            case 0:
                self._send(self._job(rng.choice("abc")))
            case 1:
                self.loose.append(self._payload("loose"))
                log.put(rng.randrange(len(log.parts)), [(None, self.loose[-1])])
            case 2:
                part = rng.choice(log.parts)
                part.roll() if rng.random() < 0.5 else part.note()
            case 3 if log.counts[-1] < 7:
                log.grow(log.counts[-1] + rng.randrange(1, 3))
            case 4:
                log.open_anew()
            case _:
                self._forget(self._job(rng.choice("abc")))

    def finish(self) -> None:
        """Have the next writer of the log open it."""
        self.log.open_anew()

    def _payload(self, name: str) -> bytes:
        self._number += 1
        return f"{name} {self._number}".encode()

    def _job(self, name: str) -> _Job:
        job = self._jobs.get(name)
        if job is None:
            job = self._jobs[name] = self._new_job(name, 0)
        elif job.sent == len(job.marks):
            job = self._jobs[name] = self._new_job(name, job.batch + 1)
        return job

    def _new_job(self, name: str, batch: int) -> _Job:
        rng, is_passing = self.rng, name == "c"
        writer = f"{name}{self._number}" if is_passing else name
        more: dict[str, Any] = {"writer": writer, "batch": batch, "is_passing": is_passing}
        keys = [None, *(b"k%d" % number for number in range(6))]

        def rows() -> list[Row]:
            return [(rng.choice(keys), self._payload(f"{writer}:{batch}")) for _ in range(rng.choice((1, 2, 7)))]

        if not is_passing and rng.random() < 0.2:
            return _Job(writer, batch, [(make_mark(MarkKind.WHOLE, **more), rows())])
        parts = {part: rng.randrange(1, 4) for part in range(rng.randrange(1, 4))}
        marks = [(make_mark(MarkKind.BEGIN, **more), list[Row]())] if is_passing else []
        marks += [(make_mark(MarkKind.CHUNK, part, at, **more), rows()) for part in parts for at in range(parts[part])]
        return _Job(writer, batch, [*marks, (make_end(*parts.items(), **more), [])])

    def _send(self, job: _Job) -> None:
        """Send the next mark; now and then somebody dies in the middle of a step."""
        mark, sent = job.marks[job.sent]
        rows = chunk_rows(mark, sent)
        while (step := self.log.writers.next_step(mark, rows)).standing is APPLY:
            if self._append(job, step, rows):
                if (job.writer, job.batch) in self.ended and self.rng.random() < 0.3:
                    job.sent = len(job.marks)  # Whoever runs it goes on, though nobody has answered.
                return
        if step.standing is MarkVerdict.REFUSED:  # It was forgotten by half.
            self._give_up(job)
        elif step.standing is MarkVerdict.GONE and (job.writer, job.batch) not in self.ended:
            job.sent = len(job.marks)
        else:
            job.sent += 1
            if job.sent < len(job.marks) and not job.is_passing and self.rng.random() < 0.1:
                job.sent = 0  # It is run again.

    def _append(self, job: _Job, step: BatchStep, rows: Any) -> bool:
        """Append a step, perhaps by half; return whether somebody died."""
        is_cut = self.rng.random() < 0.15
        chosen = [number for number in range(len(step.pieces)) if self.rng.random() < 0.5]
        self.log.append(step, rows, chosen if is_cut else None)
        own = self.log.writers.get(job.writer)
        if own is not None and own.is_ended and own.batch == job.batch:
            self.ended[job.writer, job.batch] = job.rows
        if is_cut and self.rng.random() < 0.5:
            self.log.open_anew()
        return is_cut

    def _forget(self, job: _Job) -> None:
        while (step := self.log.writers.forget_step(job.writer)).standing is APPLY:
            is_cut = self._append(job, step, chunk_rows(job.marks[0][0], ()))
            if is_cut and self.log.writers.get(job.writer) is not None:
                return  # It goes on as if nobody had begun to forget it.
        self._give_up(job)

    def _give_up(self, job: _Job) -> None:
        while (step := self.log.writers.forget_step(job.writer)).standing is APPLY:
            self.log.append(step)
        if job.is_passing or (job.writer, job.batch) in self.ended:
            job.sent = len(job.marks)
        else:  # The same batch is written anew, with other rows.
            self._jobs[job.writer] = self._new_job(job.writer, job.batch)

    # ---- what is true

    def check(self) -> None:
        """Check what readers see now.

        Raises:
            AssertionError: It is not what is true.

        """
        ended = Counter(payload for rows in self.ended.values() for payload in rows)
        seen = Counter[bytes]()
        for shown in self.log.shown(self.rng):
            seen.update(shown)
            batches = [payload.split()[0] for payload in shown if not payload.startswith(b"loose")]
            runs = [one for at, one in enumerate(batches) if not at or batches[at - 1] != one]
            assert len(runs) == len(set(runs)), f"rows of batches lie among each other: {runs}"
        assert not seen - ended - Counter(self.loose), "rows of a batch that has not ended"
        assert Counter(self.loose) <= seen

    def check_all(self) -> None:
        """Check that readers see all now."""
        self.check()
        wanted = Counter(self.loose) + Counter(payload for rows in self.ended.values() for payload in rows)
        assert Counter(payload for shown in self.log.shown() for payload in shown) == wanted

    def check_notes(self) -> int:
        """Check that each note names the batches that end behind it with rows before it; return how many it did."""
        told_count = 0
        for part in self.log.parts:
            watch = BatchWatch()
            notes: list[tuple[int, Any]] = []  # Entry, batches.
            at = {(entry.ledger_id, entry.entry_id): number for number, entry in enumerate(part.entries)}
            for number, entry in enumerate(part.entries):
                told = open_before(entry)
                notes += [] if told is None else [(number, told)]
                for one in watch.take(entry.ledger_id, entry.entry_id, *asked(entry)):
                    if not isinstance(one, EndedBatch) or one.places is None:
                        continue
                    for noted, batches in notes:
                        before = [row for row in one.places if at[row.ledger_id, row.entry_id] < noted]
                        row_count = sum(row.end - row.first for row in before)
                        if row_count:
                            assert batches.get(one.batch, 0) >= row_count
                            told_count += 1
        return told_count


def _broken(seed: int) -> str:
    """Return what is wrong with what readers see in the log of a seed; "" = nothing."""
    try:
        world = _World(seed)
        for number in range(_STEPS):
            world.step()
            if number % 40 == 0:
                world.check()
        world.finish()
        world.check_all()
        world.check_notes()
    except (AssertionError, CorruptLogError) as error:
        return repr(error)
    return ""


def test_each_partition_shows_its_rows_once_when_the_batch_has_ended_whoever_dies_and_however_it_grows() -> None:
    ends, notes = 0, 0
    for seed in range(_SEEDS):
        assert _broken(seed) == "", f"seed {seed}"
        world = _World(seed)
        for _ in range(_STEPS):
            world.step()
        ends, notes = ends + len(world.ended), notes + world.check_notes()
    assert ends > 5 * _SEEDS
    assert notes > _SEEDS


# ---- planted bugs


def _no_partition_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionedWriters, "_untold", lambda *_: {})


def _the_next_writer_of_the_log_tells_nothing(patch: pytest.MonkeyPatch) -> None:
    """An end that a death cut off is told when somebody asks for more of the writer, and nobody does."""
    patch.setattr(PiecedLog, "open_anew", lambda _: None)


def _a_batch_begins_before_the_end_of_the_last_one_is_told(patch: pytest.MonkeyPatch) -> None:
    true = PartitionedWriters.next_step

    def planted(self: PartitionedWriters, mark: WriterMark, *rows: Any) -> BatchStep:
        own = self.get(mark.writer)
        is_next = own is not None and own.is_ended and mark.batch > own.batch
        if not is_next:
            return true(self, mark, *rows)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PartitionedWriters, "_untold", lambda *_: {})
            return true(self, mark, *rows)

    patch.setattr(PartitionedWriters, "next_step", planted)


def _all_partitions_are_told_at_once(patch: pytest.MonkeyPatch) -> None:
    true = PartitionedWriters._end_step

    def planted(self: PartitionedWriters, mark: WriterMark, own: WriterRow) -> BatchStep:
        step = true(self, mark, own)
        if step.standing is not APPLY:
            return step
        ((kind, fields),) = step.pieces[0].records
        away = [
            BatchPiece(place, (), ((kind, (*fields[:7], row_count, *fields[8:])),))
            for place, row_count in self._row_counts(mark.writer, own).items()
            if place != step.pieces[0].partition
        ]
        return step._replace(pieces=(*step.pieces, *away))

    patch.setattr(PartitionedWriters, "_end_step", planted)


def _a_partition_is_told_how_many_rows_the_batch_has(patch: pytest.MonkeyPatch) -> None:
    true = PartitionedWriters._row_counts

    def planted(self: PartitionedWriters, writer: str, own: WriterRow) -> dict[int, int]:
        found = true(self, writer, own)
        return dict.fromkeys(found, sum(found.values()))

    patch.setattr(PartitionedWriters, "_row_counts", planted)


def _an_ended_writer_is_forgotten_without_a_word(patch: pytest.MonkeyPatch) -> None:
    true = PartitionedWriters.forget_step

    def planted(self: PartitionedWriters, writer: str) -> BatchStep:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PartitionedWriters, "_untold", lambda *_: {})
            return true(self, writer)

    patch.setattr(PartitionedWriters, "forget_step", planted)


def _a_note_tells_of_writers_that_are_at_home_alone(patch: pytest.MonkeyPatch) -> None:
    true = finished_batches.open_batches

    def planted(*given: Any) -> Any:
        told = true(*given)
        if told is None:
            return None
        marks = finished_batches._EntryMarks(*given)
        marks.pieces()
        return {batch: count for batch, count in told.items() if (batch.writer, OWN_PART) in marks.table}

    patch.setattr("tests.unit.rsm_spark.core.composed_log.open_batches", planted)


@pytest.mark.parametrize(
    "plant",
    [
        _no_partition_is_told,
        _the_next_writer_of_the_log_tells_nothing,
        _a_batch_begins_before_the_end_of_the_last_one_is_told,
        _all_partitions_are_told_at_once,
        _a_partition_is_told_how_many_rows_the_batch_has,
        _an_ended_writer_is_forgotten_without_a_word,
        _a_note_tells_of_writers_that_are_at_home_alone,
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(_broken(seed) for seed in range(_SEEDS))


# ---- single rules


def _ends(log: PiecedLog) -> list[list[EndedBatch]]:
    found: list[list[EndedBatch]] = []
    for part in log.parts:
        watch = BatchWatch()
        shown = (one for entry in part.entries for one in watch.take(entry.ledger_id, entry.entry_id, *asked(entry)))
        found.append([one for one in shown if isinstance(one, EndedBatch)])
    return found


def test_an_end_is_told_where_there_are_rows_and_nowhere_else_behind_that_at_home() -> None:
    log = PiecedLog(5)
    home = log.writers.home("w")
    log.send(make_mark(MarkKind.CHUNK), (b"k0", b"a"), (b"k1", b"b"))
    places = {place for place, rows in enumerate(log.rows) if rows}
    first = log.writers.next_step(make_end((0, 1)), chunk_rows(make_end(), ()))
    assert [piece.partition for piece in first.pieces] == [home]
    log.append(first)
    due = log.writers.due_step("w")
    assert {piece.partition for piece in due.pieces} == places - {home}
    assert due.is_due
    log.append(due)
    assert {place for place, ends in enumerate(_ends(log)) if ends} == places
    assert {one.batch for ends in _ends(log) for one in ends} == {BatchKey("w", "c", 0)}
    assert log.send(make_end((0, 1))).standing is MarkVerdict.DONE


def test_the_rows_of_a_batch_that_is_written_anew_are_shown_without_those_that_were_given_up() -> None:
    log = PiecedLog(3)
    log.send(make_mark(MarkKind.CHUNK), *make_rows("given-up", 20))
    while (step := log.writers.forget_step("w")).standing is APPLY:
        log.append(step)
    assert log.shown() == [[], [], []]
    log.send(make_mark(MarkKind.CHUNK), *make_rows("anew", 20))
    log.send(make_end((0, 1)))
    shown = [payload for part in log.shown() for payload in part]
    assert sorted(shown) == sorted(payload for _, payload in make_rows("anew", 20))


def test_a_writer_that_is_forgotten_by_half_ends_nothing() -> None:
    log = PiecedLog(3)
    log.send(make_mark(MarkKind.CHUNK), *make_rows("a", 20))
    log.append(log.writers.forget_step("w"))  # Its home gives it up,
    log.append(log.writers.forget_step("w"), only=[0])  # and one of two partitions has forgotten it.
    assert "names 1 chunks of part 0, 0 were applied" in log.send(make_end((0, 1))).reason
    assert log.shown() == [[], [], []]
    log.send(make_mark(MarkKind.CHUNK), *make_rows("a", 20))
    log.send(make_end((0, 1)))
    assert sorted(payload for part in log.shown() for payload in part) == sorted(p for _, p in make_rows("a", 20))


def test_an_operator_who_hands_a_writer_over_lets_its_end_be_told_first() -> None:
    log = PiecedLog(3)
    log.send(make_mark(MarkKind.CHUNK), *make_rows("a", 20))
    end = make_end((0, 1))
    log.append(log.writers.next_step(end, chunk_rows(end, ())))
    while (step := log.writers.hand_over_step("w", "d")).standing is APPLY:
        log.append(step)
    own = log.writers.get("w")
    assert own is not None
    assert own.checkpoint == "d"
    assert log.writers.due_step("w").standing is MarkVerdict.DONE
    assert sum(map(len, log.shown())) == 20
    taken = msgspec.structs.replace(make_mark(MarkKind.CHUNK), checkpoint="d")
    assert log.send(taken, *make_rows("b", 5)).standing is APPLY
    assert sum(map(len, log.shown())) == 20
