"""Readers of finished batches see each batch once, whole and at its end, from wherever they read and go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rsm_spark.core import finished_batches
from rsm_spark.core.finished_batches import (
    BackwardScan,
    BatchKey,
    BatchWatch,
    EndedBatch,
    EntryPiece,
    PieceKind,
    entry_pieces,
)
from rsm_spark.core.plain_log import PlainRecord
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.writers import WriterRow, WriterTable
from rsm_spark.errors import CorruptLogError
from tests.unit.rsm_spark.core.batched_log import CLAIMED, BatchedLog
from tests.unit.rsm_spark.core.composed_log import asked, open_before, shown_of

_STEPS = 120
_SEEDS = 60


def _written(seed: int, *, is_old: bool = False) -> BatchedLog:
    log = BatchedLog(random.Random(seed), is_old=is_old)
    for _ in range(_STEPS):
        log.step()
    log.flush()
    return log


def _broken(seed: int, *, is_old: bool = False) -> str:
    """Return what is wrong with what readers see in the log of a seed; "" = nothing."""
    try:
        log = _written(seed, is_old=is_old)
        rng = random.Random(seed)
        count = len(log.entries)
        cuts = [0, *sorted(rng.sample(range(count), k=min(5, count))), count]
        found = [one for first, end in zip(cuts, cuts[1:], strict=False) for one in shown_of(log, first, end)]
    except (AssertionError, CorruptLogError) as error:
        return repr(error)
    return "" if found == log.shown else f"seen {found}, true {log.shown}"


@pytest.mark.parametrize("is_old", [False, True])
def test_whatever_ranges_a_log_is_read_in_each_finished_batch_is_seen_once_at_its_end(*, is_old: bool) -> None:
    kinds = set()
    for seed in range(_SEEDS):
        assert _broken(seed, is_old=is_old) == ""
        kinds |= {payload.split()[0] for _, payload in _written(seed, is_old=is_old).shown}
    assert kinds == {b"loose", b"made", b"row", b"whole"}


# ---- planted bugs


def _rows_where_they_stand(patch: pytest.MonkeyPatch) -> None:
    true = entry_pieces

    def planted(kinds: Any, fields_of: Any) -> list[EntryPiece]:
        return [
            one._replace(kind=PieceKind.LOOSE) if one.kind is PieceKind.ROWS else one for one in true(kinds, fields_of)
        ]

    patch.setattr(finished_batches, "entry_pieces", planted)


def _table_rows_are_marks(patch: pytest.MonkeyPatch) -> None:
    true = finished_batches._EntryMarks._marks
    patch.setattr(
        finished_batches._EntryMarks,
        "_marks",
        lambda self, at, *, is_table: true(self, at, is_table=is_table and False),
    )


def _what_was_seen_is_all(patch: pytest.MonkeyPatch) -> None:
    true = BatchWatch.take

    def planted(self: BatchWatch, *args: Any) -> Any:
        for one in true(self, *args):
            yield one._replace(places=one.places or ()) if isinstance(one, EndedBatch) else one

    patch.setattr(BatchWatch, "take", planted)


def _rows_of_any_writer(patch: pytest.MonkeyPatch) -> None:
    true = BackwardScan.take

    def planted(self: BackwardScan, ledger_id: int, entry_id: int, *asked_for: Any) -> None:
        own = self._recall.batch
        pieces = [
            one._replace(batch=own) if one.kind is PieceKind.ROWS else one for one in entry_pieces(*asked_for[:2])
        ]
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(finished_batches, "entry_pieces", lambda *_: pieces)
            true(self, ledger_id, entry_id, *asked_for)

    patch.setattr(BackwardScan, "take", planted)


def _all_that_follows_is_the_chunk(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, at: int, writer: str, row: WriterRow) -> int:
        self._end_loose(at)
        end = self._loose = self._past_rows(at)
        self._pieces.append(EntryPiece(PieceKind.ROWS, at, end, BatchKey(writer, row.checkpoint, row.batch)))
        return int(end)

    patch.setattr(finished_batches._EntryMarks, "_chunk", planted)


def _what_the_writer_says_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchedLog, "judged_end", lambda _, mark: msgspec.structs.replace(mark, row_count=CLAIMED))


def _passing_writers_only_vanish(patch: pytest.MonkeyPatch) -> None:
    true = WriterTable.judge

    def planted(self: WriterTable, mark: Any) -> Any:
        judged = true(self, mark)
        is_end = mark.is_passing and len(judged.records) > 1 and judged.records[-1][0] == KernelRecord.WRITER_FORGOTTEN
        return judged._replace(records=judged.records[1:]) if is_end else judged

    patch.setattr(WriterTable, "judge", planted)


@pytest.mark.parametrize(
    "plant",
    [
        _rows_where_they_stand,
        _table_rows_are_marks,
        _what_was_seen_is_all,
        _rows_of_any_writer,
        _all_that_follows_is_the_chunk,
        _what_the_writer_says_counts,
        _passing_writers_only_vanish,
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    is_old = plant is _all_that_follows_is_the_chunk
    assert any(_broken(seed, is_old=is_old) for seed in range(_SEEDS))


# ---- single rules


def test_the_head_of_a_ledger_tells_which_batches_are_open_and_how_far() -> None:
    """What each note says of open batches is what stands before it."""
    seen = 0
    for seed in range(20):
        log = _written(seed)
        for number, entry in enumerate(log.entries):
            told = open_before(entry)
            assert (told is None) == (PlainRecord.PRODUCERS_NOTED not in asked(entry)[0])
            for batch, row_count in (told or {}).items():
                search = BackwardScan(EndedBatch(batch, row_count, 0, None))
                for before in reversed(log.entries[:number]):
                    search.take(before.ledger_id, before.entry_id, *asked(before))
                assert search.places is not None
                seen += 1
    assert seen > 20


def test_a_watch_keeps_so_many_places_and_searches_for_what_it_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_batches, "PLACES_MAX", 2)
    for seed in range(10):
        assert _broken(seed) == ""


def test_a_mark_without_its_rows_is_corrupt() -> None:
    row = WriterRow("c", "", 0, 1, bytes(8), 3)
    marked = [16, None, ("w", 0, *msgspec.structs.astuple(row))]
    kinds = [int(KernelRecord.WRITER_MARKED), int(PlainRecord.APPENDED)]
    fields: list[Any] = [marked[2], (2, None, 0, b"a")]
    with pytest.raises(CorruptLogError, match="rows of its chunk 0 are not behind their mark"):
        entry_pieces(kinds, fields.__getitem__)
    with pytest.raises(CorruptLogError, match="record of a writer"):
        entry_pieces(kinds, lambda _: ("w",))
