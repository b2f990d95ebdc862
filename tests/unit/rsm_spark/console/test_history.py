"""A day of history, in bounded room."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ledger.errors import UsageError
from rsm_spark.console.core.history import LOGS_MAX, SAMPLES_MAX, STEP_MS, HistoryRing, HistoryRow, sample_of
from rsm_spark.console.core.view import BookieRow, LogRow
from rsm_spark.console.history_file import HistoryFile
from tests.unit.rsm_spark.console.views import BOOKIES, lacking, orders, replica, view


def sample(minute: int) -> HistoryRow:
    return HistoryRow(minute * STEP_MS, 3, 0, 0, 0, 0, {"orders": (minute, 0)})


def test_a_sample_has_the_numbers_of_a_view() -> None:
    log = orders(replica("a", role="leader"), replica("b", behind=7))
    shown = view(log, at_ms=90_000, copies=lacking(), bookies=(*BOOKIES, BookieRow("b9:1", "missing", None, None, 1)))
    assert sample_of(shown) == HistoryRow(60_000, 3, 1, 2, 30, 0, {"orders": (100, 7)})


def test_a_sample_is_bounded_whatever_the_cluster() -> None:
    many = [LogRow(log=f"log-{number}") for number in range(10 * LOGS_MAX)]
    assert len(sample_of(view(*many)).logs) == LOGS_MAX
    assert sample_of(view(LogRow(log="x", problem="no answer"))).logs == {}


def test_a_line_of_a_version_before_is_read() -> None:
    old = msgspec.json.encode([60_000, 3, 0, 0, 0, 1, {"orders": [1, 0]}])
    assert msgspec.json.decode(old, type=HistoryRow) == HistoryRow(60_000, 3, 0, 0, 0, 1, {"orders": (1, 0)})


def test_a_minute_is_remembered_once_and_a_day_at_most() -> None:
    ring = HistoryRing()
    assert ring.add(sample(1))
    assert not ring.add(sample(1))
    assert not ring.add(sample(0)), "a clock that was set back"
    for minute in range(2, 2 * SAMPLES_MAX):
        ring.add(sample(minute))
    assert len(ring) == SAMPLES_MAX
    assert [one.at_ms // STEP_MS for one in ring.since(0)][0] == SAMPLES_MAX
    assert len(ring.since((2 * SAMPLES_MAX - 5) * STEP_MS)) == 5


def test_what_is_older_than_a_day_is_not_shown_after_a_pause() -> None:
    ring = HistoryRing([sample(1), sample(2), sample(SAMPLES_MAX + 2)])
    assert [one.at_ms // STEP_MS for one in ring.since(0)] == [2, SAMPLES_MAX + 2]


def test_a_file_gives_back_what_was_written_and_passes_over_half_lines(tmp_path: Path) -> None:
    folder = tmp_path / "console"
    file = HistoryFile(folder)
    assert file.read() == []
    for minute in (1, 2, 3):
        file.write(sample(minute), [])
    path = folder / "history.jsonl"
    path.write_bytes(b'[1,2\n{"a":1}\n\xff\n' + path.read_bytes() + msgspec.json.encode(sample(4))[:-3])
    assert HistoryFile(folder).read() == [sample(1), sample(2), sample(3)]


def test_a_file_is_written_anew_before_it_is_large(tmp_path: Path) -> None:
    file, ring = HistoryFile(tmp_path), HistoryRing()
    for minute in range(1, 2 * SAMPLES_MAX + 3):
        ring.add(sample(minute))
        file.write(sample(minute), ring.since(0) if minute > 2 * SAMPLES_MAX else [])
    read = HistoryFile(tmp_path).read()
    assert SAMPLES_MAX <= len(read) <= SAMPLES_MAX + 2
    assert read[-1] == sample(2 * SAMPLES_MAX + 2)


def test_a_folder_that_cannot_be_used_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--data-dir"):
        HistoryFile(tmp_path / "file")


def test_a_disk_that_takes_nothing_costs_no_more_than_the_sample(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "console"
    file = HistoryFile(folder)
    (folder / "history.jsonl").unlink()
    folder.rmdir()
    file.write(sample(1), [])
    assert "is not written" in caplog.text
