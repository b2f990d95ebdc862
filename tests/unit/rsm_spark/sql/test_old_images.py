"""Records of rows say what the row was, once the log's version of the machine knows it."""

from pathlib import Path

import msgspec
import pytest

from rsm_spark.core.envelope import body_of
from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.machine import Field, FieldType
from rsm_spark.core.records import decode_records, pack
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.table_machine import TableMachine, note, upsert
from rsm_spark.errors import MachineVersionError
from rsm_spark.sql.records import DESCRIPTION, FIRST_DESCRIPTION, SqlRecord
from tests.unit.rsm_spark.sql.sql_pair import LOG_ID, SqlPair, contents

ROWS = (SqlRecord.ROW_PUT, SqlRecord.ROW_GONE, SqlRecord.ROW_CHANGED, SqlRecord.ROW_REMOVED)
STATEMENTS = (
    "INSERT INTO item VALUES (1, 'pen', 5, NULL), (2, 'ink', 2, 'blue'), (3, 'cap', 0, NULL)",
    "UPDATE item SET stock = stock - 1, note = 'sold' WHERE id = 1",
    "UPDATE item SET name = CASE id WHEN 1 THEN 'ink' ELSE 'pen' END WHERE id < 3 AND note = 'none'",
    "DELETE FROM item WHERE id = 3",
    "ALTER TABLE item ADD COLUMN price REAL DEFAULT 1.5",
    "UPDATE item SET price = 2 WHERE id = 1",
    "ALTER TABLE item DROP COLUMN note",
)


class DescribedTables(TableMachine):
    """Folds the log as anybody does who has nothing but its description."""

    description = DESCRIPTION


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    pair.do("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT UNIQUE, stock INTEGER, note TEXT)")
    yield pair
    pair.close()


def rows_told(pair: SqlPair, *statements):
    """Return (type, key, ...) of the records of rows of one transaction, unpacked; the table's number left out."""
    assert pair.do(*statements).fault is None
    told = []
    for record in decode_records(body_of(pair.payloads[-1])):
        if record.type in ROWS:
            _, *packed = record.fields
            told.append((SqlRecord(record.type).name, *(one and msgspec.msgpack.decode(one) for one in packed)))
    return told


def test_a_row_that_comes_changes_or_goes_says_what_it_was(pair):
    assert rows_told(pair, STATEMENTS[0])[1] == ("ROW_CHANGED", [2], ["ink", 2, "blue"], None)
    # Columns that stay are not told again; what was left out at the end of an image is.
    assert rows_told(pair, STATEMENTS[1]) == [("ROW_CHANGED", [1], ["pen", 4, "sold"], [1, 5, 2, None])]
    assert rows_told(pair, "UPDATE item SET stock = 4.0, note = NULL WHERE id = 1") == [
        ("ROW_CHANGED", [1], ["pen", 4], [2, "sold"])
    ]
    assert rows_told(pair, STATEMENTS[3]) == [("ROW_REMOVED", [3], ["cap", 0])]
    assert rows_told(pair, "UPDATE item SET stock = stock", "INSERT INTO item VALUES (9, 'x', 1, 1)",
                     "DELETE FROM item WHERE id = 9") == []  # fmt: skip


def test_the_type_of_a_value_counts(pair):
    pair.do("CREATE TABLE any (id INTEGER PRIMARY KEY, a, b)", "INSERT INTO any VALUES (1, 1, 2)")
    assert rows_told(pair, "UPDATE any SET a = 1.0") == [("ROW_CHANGED", [1], [1.0, 2], [0, 1])]


def test_rows_that_change_places_leave_and_come_back_with_what_they_were(pair):
    pair.do(STATEMENTS[0])
    swap = ("UPDATE item SET name = NULL WHERE id = 1", "UPDATE item SET name = 'pen' WHERE id = 2",
            "UPDATE item SET name = 'ink' WHERE id = 1")  # fmt: skip
    assert sorted(rows_told(pair, *swap)) == [
        ("ROW_CHANGED", [1], ["ink", 5], [0, "pen"]),
        ("ROW_CHANGED", [2], ["pen", 2, "blue"], [0, "ink"]),
        ("ROW_REMOVED", [1], None),
        ("ROW_REMOVED", [2], None),
    ]


def test_rows_of_a_dropped_column_go_and_come_anew(pair):
    pair.do(STATEMENTS[0])
    assert sorted(rows_told(pair, "ALTER TABLE item DROP COLUMN note", "DELETE FROM item WHERE id > 2")) == [
        ("ROW_CHANGED", [1], ["pen", 5], None),
        ("ROW_CHANGED", [2], ["ink", 2], None),
        ("ROW_REMOVED", [1], ["pen", 5]),
        ("ROW_REMOVED", [2], ["ink", 2, "blue"]),
        ("ROW_REMOVED", [3], ["cap", 0]),
    ]


def test_a_log_of_before_is_written_as_before_until_its_version_is_raised(tmp_path):
    """Digests, files, and what anybody folds by the description alone are the same in both forms."""
    digests = []
    for place, versions in enumerate([(FIRST_DESCRIPTION,), (FIRST_DESCRIPTION, DESCRIPTION), (DESCRIPTION,)]):
        folder = tmp_path / str(place)
        folder.mkdir()
        pair = SqlPair(folder, description=versions[0])
        described = ReplicatedState(DescribedTables(), LOG_ID)
        pair.do("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT UNIQUE, stock INTEGER, note TEXT)")
        for number, statement in enumerate(STATEMENTS):
            if number == 3:
                pair.follow(versions[-1])
            assert pair.do(statement).fault is None
        for payload in pair.payloads:
            described.apply_entry(payload)
        types = [record.type for payload in pair.payloads for record in decode_records(body_of(payload))]
        assert (SqlRecord.ROW_PUT in types) is (versions[0] is FIRST_DESCRIPTION)
        assert (SqlRecord.ROW_CHANGED in types) is (versions[-1] is DESCRIPTION)
        assert described.digest == pair.state.digest
        digests.append((pair.state.digest, contents(pair.follower.path)))
        pair.close()
    assert digests[0] == digests[1] == digests[2]


def test_the_new_version_may_follow_the_old_one():
    check_evolution(FIRST_DESCRIPTION, DESCRIPTION)


def newer(*records):
    return msgspec.structs.replace(DESCRIPTION, version=9, records=(*DESCRIPTION.records, *records))


def test_records_of_a_newer_version_are_folded_by_what_the_log_says_of_them(pair):
    pair.do(STATEMENTS[0])
    rows = next(table for table in DESCRIPTION.tables if table.name == "rows")
    plain = upsert(90, "row_copied", rows)
    fields = (Field("why", FieldType.STR), *plain.fields)
    pair.follower.follow(newer(msgspec.structs.replace(plain, fields=fields)))
    (number,) = {row.number for row in pair.follower._writer.catalog.objects.values()}
    change = pair.follower.apply(90, ("because", number, pack((1,)), pack(("pen", 77))), 99)
    assert change.new == pack((pack(("pen", 77)),))
    pair.follower.resume()


def test_a_newer_version_that_cannot_be_folded_is_refused_by_name(pair):
    with pytest.raises(MachineVersionError, match="version 9.*runs version 2.*'index_built'.*newer one"):
        pair.follower.follow(newer(note(91, "index_built", Field("name", FieldType.STR))))
    with pytest.raises(MachineVersionError, match="other tables"):
        pair.follower.follow(msgspec.structs.replace(newer(), tables=DESCRIPTION.tables[:2]))
