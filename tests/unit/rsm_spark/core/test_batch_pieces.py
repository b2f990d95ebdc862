"""Batches in a partitioned log: each row once, whatever is run again and however the log grows meanwhile."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from rsm_spark.core.partition_layout import partition_of
from rsm_spark.core.writer_marks import PARTS_MAX, MarkKind
from rsm_spark.core.writers import MarkVerdict
from tests.unit.rsm_spark.core.pieced_log import (
    NOTHING,
    PiecedLog,
    Row,
    chunk_rows,
    make_end,
    make_mark,
    make_rows,
)

APPLY, DONE, REFUSED, GONE = MarkVerdict.APPLY, MarkVerdict.DONE, MarkVerdict.REFUSED, MarkVerdict.GONE


def test_rows_go_where_their_keys_go_and_a_batch_that_is_sent_again_changes_nothing() -> None:
    log = PiecedLog(3)
    for _ in range(2):
        for part in range(2):
            for chunk in range(2):
                log.send(make_mark(MarkKind.CHUNK, part, chunk), *make_rows(f"{part}.{chunk}", 9))
        assert log.writers.parts("w").keys() == {0, 1}
        log.send(make_end((0, 2), (1, 2)))
    assert set(log.payloads().values()) == {1}
    assert sum(log.payloads().values()) == 36
    for partition, rows in enumerate(log.rows):
        assert rows
        assert all(partition_of(key or b"", 3) == partition for key, _ in rows)
    own = log.writers.get("w")
    assert own is not None
    assert own.row_count == 36
    assert own.is_ended
    assert log.writers.names() == ["w"]
    assert log.send(make_mark(MarkKind.CHUNK, 5, 0), *make_rows("late", 3)).standing is DONE
    assert log.send(make_mark(MarkKind.CHUNK, batch=1), *make_rows("next", 3)).standing is APPLY
    assert log.writers.parts("w")[0].row_count == 3


def test_rows_without_keys_of_a_chunk_lie_together_and_chunks_spread() -> None:
    log = PiecedLog(4)
    for chunk in range(8):
        log.send(make_mark(MarkKind.CHUNK, 0, chunk), *[(None, b"%d.%d" % (chunk, row)) for row in range(5)])
    assert [len(rows) for rows in log.rows] == [10, 10, 10, 10]
    for rows in log.rows:
        assert {payload.split(b".")[0] for _, payload in rows[:5]} == {rows[0][1].split(b".")[0]}


def test_what_is_wrong_is_refused_in_words() -> None:
    log = PiecedLog(3)
    log.send(make_mark(MarkKind.CHUNK), *make_rows("a", 9))
    other = log.send(make_mark(MarkKind.CHUNK, run="r2"), *make_rows("other", 9))
    assert other.standing is REFUSED
    assert "with other rows" in other.reason
    assert "comes before chunk 1" in log.send(make_mark(MarkKind.CHUNK, 0, 2, run="r2"), *make_rows("c", 3)).reason
    assert "names 2 chunks of part 0, 1 were applied" in log.send(make_end((0, 2), run="r2")).reason
    assert "part 0 was applied when the batch was run before" in log.send(make_end(run="r2")).reason
    assert "was taken over from" in log.send(make_mark(MarkKind.CHUNK, 0, 1), *make_rows("b", 3)).reason
    assert (
        "has begun and has not ended"
        in log.send(make_mark(MarkKind.CHUNK, batch=1, run="r2"), *make_rows("b", 3)).reason
    )
    foreign = msgspec.structs.replace(make_mark(MarkKind.CHUNK), checkpoint="d")
    assert "takeOver=c" in log.send(foreign, *make_rows("b", 3)).reason
    assert "parts of" in log.send(make_mark(MarkKind.CHUNK, PARTS_MAX), *make_rows("b", 3)).reason
    log.send(make_mark(MarkKind.CHUNK, 0, 1, run="r2"), *make_rows("b", 9))
    short = log.send(make_mark(MarkKind.CHUNK, run="r2"), *make_rows("a", 9), (b"new", b"a.9"))
    assert "with other rows" in short.reason, "all of chunk 0 was there before chunk 1 came"
    assert log.payloads().total() == 18


def test_a_whole_batch_is_a_chunk_and_an_end() -> None:
    log = PiecedLog(3)
    whole = make_mark(MarkKind.WHOLE, batch=4)
    assert log.send(whole, *make_rows("a", 9)).standing is APPLY
    assert log.send(whole, *make_rows("a", 9)).standing is DONE
    assert log.send(make_mark(MarkKind.WHOLE, batch=5)).standing is APPLY, "it is empty"
    assert log.payloads().total() == 9


def test_a_passing_writer_must_have_begun_and_is_forgotten() -> None:
    log = PiecedLog(3)
    chunk = make_mark(MarkKind.CHUNK, is_passing=True)
    end = msgspec.structs.replace(make_end((0, 1)), is_passing=True)
    assert log.send(chunk, *make_rows("a", 9)).standing is GONE
    assert log.send(make_mark(MarkKind.BEGIN, is_passing=True)).standing is APPLY
    assert log.send(chunk, *make_rows("a", 9)).standing is APPLY
    assert log.send(end).standing is APPLY
    assert log.send(end).standing is GONE
    assert log.send(chunk, *make_rows("a", 9)).standing is GONE
    assert all(part.writers.size() == 0 for part in log.parts)


def test_an_end_of_a_passing_writer_that_was_cut_off_is_completed() -> None:
    for deaths in range(1, 5):
        log = PiecedLog(3)
        log.send(make_mark(MarkKind.BEGIN, is_passing=True))
        log.send(make_mark(MarkKind.CHUNK, is_passing=True), *make_rows("a", 9))
        end = msgspec.structs.replace(make_end((0, 1)), is_passing=True)
        for _ in range(deaths):
            step = log.writers.next_step(end, NOTHING)
            log.append(step, only=[0])
            assert log.send(make_mark(MarkKind.CHUNK, is_passing=True), *make_rows("a", 9)).standing is not REFUSED
        log.send(end)
        assert log.payloads().total() == 9
        assert all(part.writers.size() == 0 for part in log.parts)


def test_operators_forget_a_writer_and_give_it_to_another_checkpoint() -> None:
    log = PiecedLog(3)
    log.send(make_mark(MarkKind.CHUNK), *make_rows("a", 9))
    log.append(log.writers.hand_over_step("w", "d"))
    assert log.writers.hand_over_step("w", "d").standing is DONE
    taken = msgspec.structs.replace(make_mark(MarkKind.CHUNK, batch=7), checkpoint="d")
    assert log.send(taken, *make_rows("b", 9)).standing is APPLY
    assert "is of checkpoint 'd'" in log.send(make_mark(MarkKind.FORGET)).reason
    while (step := log.writers.forget_step("w")).standing is APPLY:
        log.append(step)
    assert log.writers.names() == []
    assert all(part.writers.size() == 0 for part in log.parts)
    assert log.send(make_mark(MarkKind.FORGET)).standing is DONE


@pytest.mark.parametrize("seed", range(150))
def test_each_row_is_there_once_wherever_a_step_is_cut_off_and_the_log_grows(seed: int) -> None:
    rng = random.Random(seed)
    log = PiecedLog(rng.randrange(1, 4))
    wanted: Counter[bytes] = Counter()
    for batch in range(rng.randrange(1, 5)):
        parts = {part: rng.randrange(1, 4) for part in range(rng.randrange(1, 4))}
        keys = [None, *(b"k%d" % number for number in range(6))]
        rows = {
            (part, chunk): [
                (rng.choice(keys), b"%d.%d.%d.%d" % (batch, part, chunk, row)) for row in range(rng.choice((1, 8)))
            ]
            for part, chunks in parts.items()
            for chunk in range(chunks)
        }
        wanted.update(payload for some in rows.values() for _, payload in some)
        run = 0
        while not _run(log, rng, batch, f"r{batch}.{run}", parts, rows):
            run += 1
    assert log.payloads() == wanted
    _check_order(log)
    assert len({number for part in log.parts for number, _ in part.writers.part_rows("w")}) <= 3 * len(log.counts)


def _run(
    log: PiecedLog,
    rng: random.Random,
    batch: int,
    run: str,
    parts: dict[int, int],
    rows: dict[tuple[int, int], list[Row]],
) -> bool:
    """Run a batch; now and then somebody dies in the middle of a step, and the log grows between two."""
    marks = [(make_mark(MarkKind.CHUNK, *at, batch=batch, run=run), sent) for at, sent in rows.items()]
    marks.append((make_end(*parts.items(), batch=batch, run=run), []))
    for mark, sent in marks:
        chunk = chunk_rows(mark, sent)
        while (step := log.writers.next_step(mark, chunk)).standing is APPLY:
            if rng.random() < 0.05 and log.counts[-1] < 12:
                log.grow(log.counts[-1] + rng.randrange(1, 4))
                continue
            if rng.random() < 0.15:
                log.append(step, chunk, only=[n for n in range(len(step.pieces)) if rng.random() < 0.5])
                if rng.random() < 0.5:
                    return False
                continue
            log.append(step, chunk)
        assert step.standing is DONE, step.reason
    return rng.random() < 0.8


def _check_order(log: PiecedLog) -> None:
    """Check that the rows of one part and key lie in a partition in the order of the part."""
    for rows in log.rows:
        last: dict[tuple[bytes | None, bytes], tuple[int, ...]] = {}
        for key, payload in rows:
            batch, part, *at = payload.split(b".")
            place = (int(batch), *map(int, at))
            assert last.get((key, part), ()) < place
            last[key, part] = place
