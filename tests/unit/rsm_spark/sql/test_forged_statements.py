"""A log that somebody forged: its statements may do no more than a client's."""

from pathlib import Path

import pytest

from rsm_spark.errors import CorruptLogError
from rsm_spark.sql.records import SqlRecord
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents

FORGED = [
    "ATTACH '{folder}/other.db' AS other",
    "PRAGMA writable_schema = ON",
    "PRAGMA journal_mode = DELETE",
    "VACUUM INTO '{folder}/other.db'",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT command",
    "SELECT load_extension('{folder}/other')",
    "CREATE VIRTUAL TABLE f USING fts5(a)",
    "CREATE TEMP TABLE hidden (a)",
    "CREATE TABLE _rsm_more (a)",
    "DROP TABLE _rsm_mark",
    "CREATE TRIGGER _rsm_a AFTER INSERT ON t BEGIN SELECT 1; END",
    "DELETE FROM t",
    "SELECT 1",
    "CREATE TABLE a (a); ATTACH '{folder}/other.db' AS other",
    "CREATE TABLE a (a); DELETE FROM t",
    "DELETE FROM t; CREATE TABLE a (a)",
    "",
]


@pytest.mark.parametrize("sql", FORGED)
def test_a_forged_statement_stops_the_replica_and_does_nothing(tmp_path: Path, sql: str) -> None:
    pair = SqlPair(tmp_path)
    pair.do("CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    before = contents(pair.follower.path)
    with pytest.raises(CorruptLogError, match="revision 9"):
        pair.follower.apply(SqlRecord.STATEMENT_RUN, (sql.format(folder=tmp_path),), 9)
    assert contents(pair.follower.path) == before
    assert not list(tmp_path.glob("other*"))
    pair.close()


def test_changes_of_the_schema_are_followed_by_the_same_rules(tmp_path: Path) -> None:
    pair = SqlPair(tmp_path)
    pair.do(
        "CREATE TABLE t (a)",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET a = a; END",
        "CREATE INDEX i ON t (a)",
        "ALTER TABLE t ADD COLUMN b",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE u DROP COLUMN b",
        "DROP TRIGGER g",
        "DROP VIEW v",
        "DROP TABLE u",
    )
    assert contents(pair.follower.path) == {"schema": []}
    pair.close()
