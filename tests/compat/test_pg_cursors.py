"""Named cursors of psycopg, and `yield_per` of SQLAlchemy, on replicas of SQL tables: at the leader, at a follower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve, until_led

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_ROWS = 20_000
_LARGE = "SELECT id, v FROM item ORDER BY id"


@pytest.fixture
def places(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """Where two replicas are found, with a table of 4 MiB."""
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        found = [place(serve(replicas, name, "--command-s-max", "60")) for name in "ab"]

        def fill() -> None:
            with psycopg.connect(**found[1], user="ann") as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, v TEXT)")
                for first in range(0, _ROWS, 5_000):
                    connection.execute(
                        "WITH RECURSIVE n(i) AS (SELECT %s::int UNION ALL SELECT i + 1 FROM n LIMIT 5000) "
                        "INSERT INTO item SELECT i, printf('%%0200d', i) FROM n",
                        (first,),
                    )

        until_led(fill)
        yield found


def test_named_cursors_read_results_of_any_size(places: list[dict[str, Any]]) -> None:
    for at in places:
        with psycopg.connect(**{**at, "autocommit": False}, user="ann") as connection:
            _read_in_a_transaction(connection)
            _read_beside(connection)
            _held(connection)


def _read_in_a_transaction(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor("small") as cursor:
        cursor.itersize = 7
        cursor.execute("SELECT id, v FROM item WHERE id < %s ORDER BY id", (100,))
        assert [(column.name, column.type_code) for column in cursor.description or ()] == [("id", 20), ("v", 25)]
        assert cursor.fetchone() == (0, "0" * 200)
        connection.execute("UPDATE item SET v = v WHERE id = 1")
        cursor.scroll(8)
        assert [row[0] for row in cursor] == list(range(9, 100))
        assert cursor.fetchmany(3) == []
    with connection.cursor("binary", binary=True) as cursor:
        cursor.execute("SELECT count(*) FROM item WHERE id < 5")
        assert cursor.fetchall() == [(5,)]
    connection.commit()
    with pytest.raises(psycopg.errors.FeatureNotSupported), connection.cursor("back", scrollable=True) as cursor:
        cursor.execute(_LARGE)
    connection.rollback()


def _read_beside(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor("large") as cursor:
        cursor.itersize = 3_000
        cursor.execute(_LARGE)
        assert [row[0] for row in cursor] == list(range(_ROWS))
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="WITH HOLD"):
        connection.execute("DELETE FROM item")
    connection.rollback()
    assert len(connection.execute(_LARGE).fetchall()) == _ROWS, "nothing of it was done"
    connection.commit()


def _held(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor("held", withhold=True) as cursor:
        cursor.execute(_LARGE)
        assert cursor.fetchone() == (0, "0" * 200)
        connection.execute("UPDATE item SET v = v || '!' WHERE id = 19999")
        connection.commit()
        rows = cursor.fetchall()
        assert (len(rows), rows[-1]) == (_ROWS - 1, (19_999, f"{19_999:0200d}")), "all of one commit"
        connection.execute("UPDATE item SET v = replace(v, '!', '') WHERE id = 19999")
        connection.commit()
    with pytest.raises(psycopg.errors.InvalidCursorName):
        connection.execute("FETCH 1 FROM held")
    connection.rollback()


def test_yield_per_of_sqlalchemy_reads_by_a_cursor(places: list[dict[str, Any]]) -> None:
    at = places[1]
    engine = sa.create_engine(f"postgresql+psycopg://ann@{at['host']}:{at['port']}/{at['dbname']}")
    try:
        with engine.connect() as connection:
            result = connection.execute(sa.text(_LARGE).execution_options(yield_per=500))
            assert isinstance(result.cursor, psycopg.ServerCursor)
            parts = [len(part) for part in result.partitions(500)]
        assert (sum(parts), set(parts)) == (_ROWS, {500})
    finally:
        engine.dispose()
