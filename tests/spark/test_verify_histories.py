"""Tables that keep every change, proved against the log: whatever is done to one of them is found, with the record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from connectors.state import histories
from connectors.state.differences import Difference
from connectors.state.verify import Verdict, VerifySettings, verify_log
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import KernelRecord, Record
from tests.spark.conftest import MACHINE
from tests.spark.shop_log import ShopLog
from tests.unit.connectors.state.histories import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Followed:
    """A log, a history of its map, and a proof of both."""

    def __init__(self, spark: SparkSession, log: Any, folder: Path, lake: str | None = None) -> None:
        self.spark, self.log, self.place, self.lake = spark, log, str(folder / "table"), lake
        self.checkpoint = str(folder / "checkpoint")

    def follow(self, table: str = "map") -> None:
        settings = MaterializeSettings(
            log=self.log.name,
            place=self.place,
            checkpoint=self.checkpoint,
            mode="append",
            machine_table=table,
            lake=self.lake,
            source={"metadataUri": self.log.metadata_uri},
            available_now=True,
            records_per_batch_max=8,
        )
        Materializer(self.spark, settings, report=lambda _progress: None).run()

    def proved(self) -> Verdict:
        source = {"metadataUri": self.log.metadata_uri}
        return verify_log(self.spark, VerifySettings(self.log.name, self.lake, tables=(self.place,), source=source))

    def differing(self) -> Difference:
        verdict = self.proved()
        assert not verdict.ok
        (difference,) = verdict.differences
        return difference


@pytest.fixture
def followed(spark: SparkSession, log: Any, tmp_path: Path) -> Followed:
    for number in range(4):
        log.put({b"k%d" % i: b"%d-%d" % (i, number) for i in range(6)})
        log.delete(b"k0")
    log.roll()
    found = Followed(spark, log, tmp_path)
    found.follow()
    return found


def _place_of(log: Any, revision: int) -> tuple[int, int]:
    return next(
        (ledger, entry)
        for ledger, entry, payload in reversed(log.entries)
        if int.from_bytes(payload[32:40], "big") <= revision
    )


def test_a_history_is_proved_change_by_change(followed: Followed) -> None:
    verdict = followed.proved()
    assert verdict.ok
    assert verdict.tables[followed.place] >= 3
    followed.log.put({b"k9": b"later"})
    followed.log.roll()
    assert followed.proved().ok, "a table that is behind is right as far as it goes"


# What is done, what the log has and what is found. The first record describes the machine, records 9 to 14 are puts.
_HARM: dict[str, tuple[Callable[[DeltaTable], object], str | None, str | None]] = {
    "a row is changed": (
        lambda table: table.update(updates={"value": "'nonsense'"}, predicate="_revision = 11"),
        'upsert ["2-1"]',
        'upsert ["nonsense"]',
    ),
    "a row is gone": (lambda table: table.delete("_revision = 11"), 'upsert ["2-1"]', None),
    "a row is there twice": (
        lambda table: write_deltalake(
            table, _rows(table).filter(_rows(table).column("_revision").to_numpy() == 11), mode="append"
        ),
        'upsert ["2-1"]',
        '2 rows, such as upsert ["2-1"]',
    ),
    "a change is called a delete": (
        lambda table: table.update(updates={"_fold": "'delete'"}, predicate="_revision = 11"),
        'upsert ["2-1"]',
        'delete ["2-1"]',
    ),
}


def _rows(table: DeltaTable) -> Any:
    return table.to_pyarrow_table()


@pytest.mark.parametrize(
    "harm", [harm if "gone" in harm else pytest.param(harm, marks=pytest.mark.slow) for harm in _HARM]
)
def test_whatever_is_done_to_a_row_is_found_with_its_record(
    followed: Followed, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "gone" in harm:
        monkeypatch.setattr(histories, "_CHANGES_COMPARED_MAX", 2)
        monkeypatch.setattr(histories, "_PARTS", 2)
    do, in_log, found = _HARM[harm]
    do(DeltaTable(followed.place))
    difference = followed.differing()
    assert (difference.table, difference.key, difference.record) == ("map", '["k2"]', 11)
    assert (difference.in_log, difference.found) == (in_log, found)
    assert (difference.ledger, difference.entry) == _place_of(followed.log, 11)
    assert difference.version == DeltaTable(followed.place).version()
    assert difference.row_count == (0 if "gone" in harm else 1), "only a part was looked at"
    assert "was not written by a materializer" in difference.text


@pytest.mark.slow
def test_the_first_version_that_differs_is_named(followed: Followed) -> None:
    DeltaTable(followed.place).update(updates={"value": "'nonsense'"}, predicate="_revision = 11")
    version = DeltaTable(followed.place).version()
    followed.log.put({b"k8": b"later"})
    followed.log.roll()
    followed.follow()  # As if nobody had changed it.
    difference = followed.differing()
    assert difference.record == 11
    assert difference.version == version


@pytest.mark.slow
def test_rows_of_later_records_than_the_last_commit_says_are_found(followed: Followed) -> None:
    table = DeltaTable(followed.place)
    last = max(_rows(table).column("_revision").to_pylist())
    table.update(updates={"_revision": str(last + 100)}, predicate=f"_revision = {last}")
    verdict = followed.proved()
    assert [one.record for one in verdict.differences] == [0, last]
    assert "1 rows of later ones" in verdict.differences[0].text


def test_a_commit_that_claims_another_digest_is_found(followed: Followed) -> None:
    commits = sorted(Path(followed.place, "_delta_log").glob("*.json"))
    text = commits[-1].read_text()
    forged = re.sub(r'(digest\\":\\")[0-9a-f]{32}', r"\g<1>" + "ab" * 16, text)
    assert forged != text
    commits[-1].write_text(forged)
    difference = followed.differing()
    assert f"claims digest {'ab' * 16}" in difference.text
    assert difference.version == len(commits) - 1


@pytest.mark.slow
def test_where_its_first_commits_were_cleared_away_the_rest_is_proved(followed: Followed) -> None:
    DeltaTable(followed.place).create_checkpoint()
    for commit in sorted(Path(followed.place, "_delta_log").glob("*.json"))[:-2]:
        commit.unlink()
    first = DeltaTable(followed.place).history()[-1]
    low = json.loads(first["rsm_position"])["revision"]
    assert followed.proved().ok
    table = DeltaTable(followed.place)
    table.update(updates={"value": "'nonsense'"}, predicate=f"_revision = {low + 1}")
    assert followed.differing().record == low + 1


def test_a_history_that_begins_with_a_snapshot_is_proved_with_it(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    shop = ShopLog(make_log, 21)
    shop.grow(15, is_rolled=True)
    shop.snapshot(str(tmp_path / "lake"))
    begin = shop.reference.state.revision
    described = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(Shop.description),))
    shop.log.append([described])  # As leaders do in each ledger.
    shop.reference.take([described], shop.log.entries[-1])
    shop.grow(15, is_rolled=True)
    shop.log.trim(1)
    followed = Followed(spark, shop.log, tmp_path, str(tmp_path / "lake"))
    followed.follow("orders")
    assert followed.proved().ok
    table = DeltaTable(followed.place)
    of_snapshot = next(row for row in _rows(table).to_pylist() if row["_fold"] == "snapshot")
    later = next(row for row in _rows(table).to_pylist() if row["_fold"] == "upsert")
    assert of_snapshot["_revision"] <= begin < later["_revision"]
    table.update(updates={"price": "-1.0"}, predicate=f"_revision = {of_snapshot['_revision']}")
    difference = followed.differing()
    assert difference.record == of_snapshot["_revision"]
    assert difference.found is not None
    assert difference.found.startswith("[-1.0")


def test_a_history_is_proved_over_new_names_of_columns(followed: Followed) -> None:
    named = msgspec.structs.replace(MACHINE.tables[0].row[0], name="text", was=("value",))
    table = msgspec.structs.replace(MACHINE.tables[0], row=(named,))
    later = msgspec.structs.replace(MACHINE, version=2, tables=(table,))
    followed.log.append([Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(later),))])
    followed.log.put({b"k1": b"later"})
    followed.log.roll()
    followed.follow()
    verdict = followed.proved()
    assert verdict.ok, verdict.differences
    assert verdict.tables[followed.place] >= 4, "what was said before the new names counts too"
    DeltaTable(followed.place).update(updates={"text": "'nonsense'"}, predicate="_revision = 11")
    difference = followed.differing()
    assert (difference.record, difference.found) == (11, 'upsert ["nonsense"]')
