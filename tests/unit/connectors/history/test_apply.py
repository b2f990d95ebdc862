"""Facts go into Delta tables once, whatever happens in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from connectors.delta.upkeep import TableUpkeep
from connectors.errors import ForeignTableError, SinkConflictError, SinkGapError
from connectors.history.apply import HistoryWriter
from connectors.history.columns import HISTORY_TABLES, from_arrow
from connectors.history.tables import HistoryTables
from tests.unit.connectors.history.recorded_broker import RecordedBroker, acted
from tests.unit.connectors.history.test_task_fold import check_attempts, check_tasks, check_waits

LOG_ID = "ab" * 16


def tables_in(folder: Path, log_id: str = LOG_ID) -> HistoryTables:
    tables = HistoryTables(str(folder), log="jobs", log_id=log_id)
    tables.create(0)
    return tables


def content(folder: Path) -> dict[str, list[Any]]:
    """Return all rows, by table, in order of their keys."""
    found = {}
    for name, table in HISTORY_TABLES.items():
        rows = from_arrow(DeltaTable(str(folder / name)).to_pyarrow_table(), table)
        found[name] = sorted(rows, key=lambda row: tuple(getattr(row, key) for key in table.keys))
    return found


def write(writer: HistoryWriter, broker: RecordedBroker, *, first: int = 1, step: Callable[[], int]) -> None:
    while first <= broker.revision:
        end = min(first + step(), broker.revision + 1)
        writer.apply(broker.facts(first, end))
        first = end
    writer.finish()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedBroker, dict[str, list[Any]]]:
    """The rows that one range makes of a log."""
    broker = acted(3)
    folder = tmp_path_factory.mktemp("whole")
    write(HistoryWriter(tables_in(folder)), broker, step=lambda: broker.revision)
    return broker, content(folder)


def test_the_tables_hold_what_the_broker_told(whole: tuple[RecordedBroker, dict[str, list[Any]]]) -> None:
    broker, rows = whole
    check_tasks(broker, {row.task_id: row for row in rows["tasks"]})
    check_attempts(broker, {row.assignment_id: row for row in rows["attempts"]})
    check_waits(broker, {row.assignment_id: row for row in rows["waits"]})
    assert any(row.purged_at for row in rows["tasks"])


def test_many_ranges_make_the_same_rows_as_one(
    whole: tuple[RecordedBroker, dict[str, list[Any]]], tmp_path: Path
) -> None:
    broker, rows = whole
    rng = random.Random(1)
    write(HistoryWriter(tables_in(tmp_path)), broker, step=lambda: rng.choice([1, 30, 90]))
    assert content(tmp_path) == rows
    assert tables_in(tmp_path).open("tasks").revision == broker.revision


class _PowerLossError(Exception):
    pass


def test_a_writer_that_dies_between_any_two_commits_is_made_up_for(
    whole: tuple[RecordedBroker, dict[str, list[Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, rows = whole
    rng = random.Random(2)
    commit = HistoryTables.commit
    left = [0]

    def dying(self: HistoryTables, *args: Any) -> None:
        if left[0] == 0:
            raise _PowerLossError
        left[0] -= 1
        commit(self, *args)

    monkeypatch.setattr(HistoryTables, "commit", dying)
    deaths = 0
    while True:
        left[0] = rng.randrange(1, 7)
        tables = tables_in(tmp_path)
        first = tables.open("tasks").revision + 1
        try:
            write(HistoryWriter(tables), broker, first=first, step=lambda: rng.choice([7, 50, 120]))
            break
        except _PowerLossError:
            deaths += 1
    assert deaths > 5
    assert content(tmp_path) == rows


def test_what_has_been_applied_changes_nothing(
    whole: tuple[RecordedBroker, dict[str, list[Any]]], tmp_path: Path
) -> None:
    broker, rows = whole
    tables = tables_in(tmp_path)
    write(HistoryWriter(tables), broker, step=lambda: 200)
    versions = {name: tables.open(name).handle.version() for name in HISTORY_TABLES}
    again = HistoryWriter(tables)
    assert again.apply(broker.facts(1, 50)).revision == broker.revision
    assert again.apply(broker.facts()).revision == broker.revision
    assert {name: tables.open(name).handle.version() for name in HISTORY_TABLES} == versions
    assert content(tmp_path) == rows


def test_two_writers_at_once_make_the_rows_of_one(
    whole: tuple[RecordedBroker, dict[str, list[Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, rows = whole
    tables = tables_in(tmp_path)
    rival = HistoryWriter(tables)
    commit = HistoryTables.commit
    is_inside = [False]
    rng = random.Random(4)
    conflicts = [0]

    def crossed(self: HistoryTables, *args: Any) -> None:
        """Have the rival apply a range of its own while a commit is under way."""
        if not is_inside[0] and rng.random() < 0.3:
            is_inside[0] = True
            after = tables.open("tasks").revision
            rival.apply(broker.facts(after + 1, min(after + 40, broker.revision) + 1))
            is_inside[0] = False
        try:
            commit(self, *args)
        except CommitFailedError:
            conflicts[0] += 1
            raise

    monkeypatch.setattr(HistoryTables, "commit", crossed)
    writer = HistoryWriter(tables, sleep=lambda _s: None)
    while (after := tables.open("tasks").revision) < broker.revision:
        writer.apply(broker.facts(after + 1, min(after + 60, broker.revision) + 1))
        writer.finish()
    assert conflicts[0]
    assert content(tmp_path) == rows


def test_a_writer_that_always_comes_second_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def beaten(*_args: Any) -> None:
        raise CommitFailedError("concurrent transaction")

    monkeypatch.setattr(HistoryTables, "commit", beaten)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    writer = HistoryWriter(tables_in(tmp_path), clock=lambda: now[0], sleep=sleep)
    with pytest.raises(SinkConflictError, match="60 s"):
        writer.apply(acted(3).facts(1, 50))


def test_a_gap_is_refused(tmp_path: Path) -> None:
    broker = acted(3)
    writer = HistoryWriter(tables_in(tmp_path))
    with pytest.raises(SinkGapError, match="ends with record 0, the micro-batch has 5 records 5 to 9"):
        writer.apply(broker.facts(5, 10))


def test_tables_of_another_log_are_refused(tmp_path: Path) -> None:
    tables_in(tmp_path)
    with pytest.raises(ForeignTableError, match="follows the log with id abab"):
        HistoryTables(str(tmp_path), log="jobs", log_id="cd" * 16).position()


def test_a_history_may_begin_in_the_middle_of_a_log(tmp_path: Path) -> None:
    broker = acted(3)
    first = broker.revision // 2
    tables = HistoryTables(str(tmp_path), log="jobs", log_id=LOG_ID)
    tables.create(first - 1)
    write(HistoryWriter(tables), broker, first=first, step=lambda: 100)
    rows = content(tmp_path)
    old = [row for row in rows["tasks"] if row.task_id < first]
    new = {row.task_id: row for row in rows["tasks"] if row.task_id >= first}
    assert old
    assert all(row.tenant is None or row.created_at for row in old)
    whole_rows = {row.task_id: row for row in rows["tasks"]}
    assert new == {task_id: row for task_id, row in whole_rows.items() if task_id >= first}
    assert {row.assignment_id for row in rows["waits"]} == {number for number in broker.waits if number >= first}


def test_compacting_and_deleting_old_files_leaves_the_rows(
    whole: tuple[RecordedBroker, dict[str, list[Any]]], tmp_path: Path
) -> None:
    broker, rows = whole
    tables = tables_in(tmp_path)
    write(HistoryWriter(tables), broker, step=lambda: 60)
    position = tables.position()
    upkeep = TableUpkeep(optimize_every=1, vacuum_retain_hours=0)
    done = [upkeep.after(place) for place in tables.places.values()]
    assert None not in done
    assert sum(one.files_merged for one in done if one) > 0
    assert sum(one.files_removed for one in done if one) > 0
    assert content(tmp_path) == rows
    assert tables.position() == position
    assert HistoryWriter(tables).apply(broker.facts()).revision == broker.revision
