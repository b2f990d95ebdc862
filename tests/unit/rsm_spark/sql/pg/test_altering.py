"""ALTER TABLE as PostgreSQL's clients write it: the table is made anew, and keeps its rows, indexes and triggers."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.sql.pg.altering import SCHEMA_SQL, alteration_of, statements_for
from rsm_spark.sql.pg.faults import PgFault


def _base(*statements: str) -> sqlite3.Connection:
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.execute("PRAGMA foreign_keys = ON")
    for sql in statements:
        base.execute(sql)
    return base


def _alter(base: sqlite3.Connection, sql: str) -> None:
    alteration = alteration_of(sql)
    assert alteration is not None
    rows = base.execute(SCHEMA_SQL, (alteration.table,)).fetchall()
    base.execute("BEGIN")
    try:
        for one in statements_for(alteration, rows):
            found = base.execute(one.sql, one.parameters).fetchall()  # type: ignore[arg-type]
            assert one.expected is None or len(found) == one.expected, one.sql
    except BaseException:
        base.execute("ROLLBACK")
        raise
    base.execute("COMMIT")


def _sql(base: sqlite3.Connection, name: str) -> str:
    return str(base.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()[0])


_ITEM = """CREATE TABLE "item" (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, -- the number
    name VARCHAR(9) CONSTRAINT named NOT NULL DEFAULT ('a,b)'), maker INT,
    twice INT GENERATED ALWAYS AS (id * 2), CONSTRAINT short CHECK (length(name) < 9))"""


def _item() -> sqlite3.Connection:
    return _base(
        _ITEM,
        "CREATE TABLE maker (id INTEGER PRIMARY KEY)",
        "CREATE INDEX by_name ON item (name)",
        "CREATE TRIGGER on_item AFTER UPDATE ON item BEGIN INSERT INTO maker VALUES (new.id + 100); END",
        "INSERT INTO maker VALUES (1)",
        "INSERT INTO item (name, maker) VALUES ('pen', 1), ('ink', NULL)",
    )


def test_a_foreign_key_is_added() -> None:
    base = _item()
    key = 'FOREIGN KEY ("maker") REFERENCES "maker" ("id") DEFERRABLE INITIALLY DEFERRED'
    _alter(base, f'ALTER TABLE "item" ADD CONSTRAINT "fk" {key}')
    assert base.execute("SELECT id, name, maker, twice FROM item").fetchall() == [(1, "pen", 1, 2), (2, "ink", None, 4)]
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        base.execute("UPDATE item SET maker = 9")
    base.execute("UPDATE item SET name = 'x' WHERE id = 1")
    assert base.execute("SELECT id FROM maker ORDER BY id").fetchall() == [(1,), (101,)], "the trigger is there"
    assert _sql(base, "by_name") == "CREATE INDEX by_name ON item (name)"
    _alter(base, "ALTER TABLE item DROP CONSTRAINT fk")
    base.execute("UPDATE item SET maker = 9 WHERE id = 2")


def test_a_foreign_key_that_rows_break_changes_nothing() -> None:
    base = _item()
    base.execute("UPDATE item SET maker = 7")
    before = base.execute("SELECT * FROM sqlite_schema").fetchall()
    with pytest.raises(sqlite3.IntegrityError):
        _alter(base, "ALTER TABLE ONLY public.item ADD FOREIGN KEY (maker) REFERENCES maker (id)")
    assert base.execute("SELECT * FROM sqlite_schema").fetchall() == before


def test_what_is_unique_becomes_an_index() -> None:
    base = _item()
    _alter(base, "ALTER TABLE item ADD CONSTRAINT once UNIQUE (name, maker)")
    assert _sql(base, "once") == 'CREATE UNIQUE INDEX "once" ON "item" (name, maker)'
    assert _sql(base, "item") == _ITEM
    _alter(base, "ALTER TABLE item DROP CONSTRAINT IF EXISTS once")
    _alter(base, "ALTER TABLE item DROP CONSTRAINT IF EXISTS once")
    with pytest.raises(PgFault, match="once"):
        _alter(base, "ALTER TABLE item DROP CONSTRAINT once")


def test_types_defaults_and_nulls_are_changed_together() -> None:
    base = _item()
    _alter(
        base,
        "ALTER TABLE item ALTER COLUMN name TYPE varchar(40) USING name::varchar(40), ALTER name SET DEFAULT 'none',"
        " ALTER COLUMN name DROP NOT NULL, ALTER COLUMN id TYPE bigint, ALTER maker SET DEFAULT 1 + 1",
    )
    base.execute("INSERT INTO item DEFAULT VALUES")
    assert base.execute("SELECT name, maker, id FROM item WHERE id > 2").fetchall() == [("none", 2, 3)]
    base.execute("UPDATE item SET name = NULL WHERE id = 3")
    kinds = {row[1]: row[2] for row in base.execute("PRAGMA table_info(item)")}
    assert kinds == {"id": "INTEGER", "name": "varchar(40)", "maker": "INT"}
    _alter(base, "ALTER TABLE item ALTER COLUMN name DROP DEFAULT")
    assert "none" not in _sql(base, "item")


def test_a_column_goes_with_its_indexes() -> None:
    base = _item()
    _alter(base, 'ALTER TABLE "item" DROP COLUMN "name" CASCADE')
    assert [row[1] for row in base.execute("PRAGMA table_info(item)")] == ["id", "maker"]
    assert base.execute("SELECT name FROM sqlite_schema WHERE name = 'by_name'").fetchall() == []


def test_a_table_whose_rows_are_referred_to_is_not_made_anew() -> None:
    base = _item()
    base.execute("CREATE TABLE sale (item INT REFERENCES item (id) ON DELETE CASCADE)")
    _alter(base, "ALTER TABLE item ALTER COLUMN maker TYPE text")
    base.execute("INSERT INTO sale VALUES (1)")
    with pytest.raises(AssertionError, match="sale"):
        _alter(base, "ALTER TABLE item ALTER COLUMN maker TYPE int")
    assert base.execute("SELECT count(*) FROM sale").fetchone() == (1,)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE item ADD COLUMN a INT DEFAULT 1 NOT NULL",
        "ALTER TABLE item RENAME TO other",
        "ALTER TABLE item DROP COLUMN a",
        "ALTER TABLE item ALTER COLUMN a SET NOT NULL",
        "ALTER TABLE item ADD CONSTRAINT c CHECK (a > 0)",
        "ALTER TABLE",
        "ALTER INDEX a RENAME TO b",
        "SELECT 1",
    ],
)
def test_what_sqlite_knows_is_left_to_it(sql: str) -> None:
    assert alteration_of(sql) is None


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE item ALTER COLUMN a TYPE int USING lower(a)",
        "ALTER TABLE item ADD CONSTRAINT c UNIQUE USING INDEX i",
        "ALTER TABLE item ADD COLUMN a INT, ALTER COLUMN b TYPE int",
        "ALTER TABLE item ALTER COLUMN missing TYPE int",
        "ALTER TABLE missing ALTER COLUMN a TYPE int",
    ],
)
def test_what_is_not_served_is_refused(sql: str) -> None:
    with pytest.raises(PgFault):
        _alter(_item(), sql)


_WORDS = (
    "ALTER TABLE t ADD CONSTRAINT DROP COLUMN TYPE SET DEFAULT NOT NULL UNIQUE ( ) , 'a' USING :: CASCADE "
    "IF EXISTS . FOREIGN KEY"
)


@given(st.lists(st.sampled_from(_WORDS.split()), max_size=14))
def test_any_words_are_understood_or_refused(words: list[str]) -> None:
    try:
        alteration_of(" ".join(["ALTER", "TABLE", *words]))
    except PgFault:
        pass
