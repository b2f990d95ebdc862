"""Where a history begins, and what it will not go on from; a real log, no session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.machine.tables import BROKER_DESCRIPTION
from connectors.errors import DeltaSinkError, ForeignTableError
from connectors.history.settings import HistorySettings
from connectors.history.start import HistoryStart, open_history
from connectors.history.tables import HistoryTables
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import KernelRecord, Record
from rsm_spark.errors import NoSuchLogError
from tests.spark.test_broker_history import append
from tests.unit.connectors.history.recorded_broker import acted


def opened(log: Any, lake: Path, **more: Any) -> HistoryStart:
    source = {"metadataUri": log.metadata_uri}
    return open_history(HistorySettings(**{"log": log.name, "lake": str(lake), "source": source, **more}), lambda: True)


@pytest.fixture
def broker_log(make_log: Callable[..., Any]) -> Any:
    log = make_log(machine=BROKER_DESCRIPTION)
    append(log, acted(3), 2, 40)
    return log


def test_a_history_begins_with_the_first_record_and_goes_on_after_the_last(broker_log: Any, tmp_path: Path) -> None:
    start = opened(broker_log, tmp_path)
    assert start.revision == 1
    tasks = start.tables.open("tasks")
    ledger_id, entry_id, _ = broker_log.entries[-1]
    position = start.tables.position_at(39, ledger_id, entry_id, broker_log.hash.hex())
    start.tables.commit(tasks, [], position)
    again = opened(broker_log, tmp_path)
    assert (again.revision, again.tables.position()) == (40, position)
    assert again.layout == start.layout


def test_a_trimmed_log_is_begun_late_only_if_that_is_wanted(broker_log: Any, tmp_path: Path) -> None:
    broker_log.roll()
    # As a leader does in each ledger.
    broker_log.append([Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(BROKER_DESCRIPTION),))])
    broker_log.roll()
    append(broker_log, acted(3), 41, 60)
    broker_log.trim(1)
    with pytest.raises(DeltaSinkError, match=r"records 1 to 39 have been trimmed.*record 40 \(--begin-late\)"):
        opened(broker_log, tmp_path)
    assert not list(tmp_path.iterdir())
    start = opened(broker_log, tmp_path, begins_late=True)
    assert (start.revision, start.tables.open("waits").revision) == (40, 39)
    assert opened(broker_log, tmp_path).revision == 40, "it has begun"
    broker_log.trim(1)
    with pytest.raises(DeltaSinkError, match="description was trimmed with the records before 41"):
        opened(broker_log, tmp_path / "other", begins_late=True)


def test_another_machine_is_refused_and_leaves_no_tables(log: Any, tmp_path: Path) -> None:
    with pytest.raises(DeltaSinkError, match="of the machine 'map', not of a task broker"):
        opened(log, tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_history_of_the_log_is_refused(broker_log: Any, tmp_path: Path) -> None:
    tables = opened(broker_log, tmp_path).tables
    ledger_id, entry_id, _ = broker_log.entries[-1]
    tables.commit(tables.open("tasks"), [], tables.position_at(39, ledger_id, entry_id, "00" * 32))
    with pytest.raises(ForeignTableError, match=f"another history of log {broker_log.name}: at revision 39"):
        opened(broker_log, tmp_path)


def test_tables_that_are_ahead_of_the_log_are_refused(broker_log: Any, tmp_path: Path) -> None:
    tables = opened(broker_log, tmp_path).tables
    tables.commit(tables.open("tasks"), [], tables.position_at(40, -1, -1, ""))
    with pytest.raises(ForeignTableError, match="ends with record 40, log .* with record 39"):
        opened(broker_log, tmp_path)


def test_tables_of_another_log_are_refused(broker_log: Any, make_log: Callable[..., Any], tmp_path: Path) -> None:
    opened(broker_log, tmp_path)
    with pytest.raises(ForeignTableError, match="choose another place"):
        opened(make_log(machine=BROKER_DESCRIPTION), tmp_path)


def test_a_table_that_is_gone_is_missed(broker_log: Any, tmp_path: Path) -> None:
    opened(broker_log, tmp_path)
    for name in ("waits", "tasks"):
        (tmp_path / name).rename(tmp_path / f"no {name}")
        if name == "waits":
            with pytest.raises(ForeignTableError, match="waits: there is no table"):
                opened(broker_log, tmp_path)
    tables = HistoryTables(str(tmp_path), log=broker_log.name, log_id=broker_log.log_id.hex())
    workers = tables.open("workers")
    tables.commit(workers, [], tables.position_at(20, -1, -1, ""))
    with pytest.raises(ForeignTableError, match="table tasks is gone.*stand at record 20"):
        opened(broker_log, tmp_path)


def test_a_log_that_is_not_there_is_named(broker_log: Any, tmp_path: Path) -> None:
    broker_log.name = "nobody"
    with pytest.raises(NoSuchLogError, match="there is no log nobody"):
        opened(broker_log, tmp_path)
