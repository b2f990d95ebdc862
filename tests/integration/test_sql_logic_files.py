"""Fixed files in the format of sqllogictest, run by three replicas one of which is killed: answers and files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from ledger.dev import DevCluster
from rsm_spark.sql import SqlClient, SqlError
from tests.integration.store_processes import stores
from tests.integration.write_logic_files import FOLDER, KINDS, written
from tests.unit.rsm_spark.sql.logic_records import LogicRecord, agrees, records_of, shown
from tests.unit.rsm_spark.sql.plain_sqlite import PlainSqlite
from tests.unit.rsm_spark.sql.sql_pair import contents, contents_of

SQL = ("rsm_spark", "sql", "serve")
FILES = sorted(FOLDER.glob("*.test"))


class LogicFiles:
    """Runs the records of files on a log's tables and on plain SQLite.

    Args:
        client: Does statements, and each second query: the leader answers.
        reader: Does the other queries: followers answer.

    Attributes:
        plain: SQLite alone, with the tables of all files.
        done: Records so far.

    """

    def __init__(self, client: SqlClient, reader: SqlClient) -> None:
        self.plain = PlainSqlite()
        self.done = 0
        self._client = client
        self._reader = reader

    async def run(self, path: Path, after: Callable[[], Awaitable[None]]) -> None:
        """Run a file's records, each behind the one before; call `after` behind each."""
        for record in records_of(path):
            await (self._query(record) if record.fails is None else self._statement(record))
            self.done += 1
            await after()

    async def _statement(self, record: LogicRecord) -> None:
        complaint = ""
        try:
            await self._client.execute(record.sql)
        except SqlError as error:
            complaint = str(error)
        failed = self.plain.run([record.sql])
        assert bool(complaint) == bool(failed) == record.fails, (record, complaint, failed)

    async def _query(self, record: LogicRecord) -> None:
        client = self._client if self.done % 2 else self._reader
        rows = (await client.query(record.sql)).rows
        found = shown(rows, record.types, record.sort)
        plain = self.plain.connection.execute(record.sql).fetchall()
        assert found == shown(plain, record.types, record.sort), record
        assert record.answer is not None
        assert agrees(record.answer, found), (record, found)


def test_the_files_are_what_their_seeds_make() -> None:
    assert [path.stem for path in FILES] == sorted(KINDS)
    for path in FILES:
        assert path.read_text() == written(path.stem), f"python -m {written.__module__} writes {path.name} anew"


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_answers_and_files_are_those_of_sqlite_and_of_every_replica(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    total = sum(1 for path in FILES for _ in records_of(path))
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, "--snapshot-s", "2", command=SQL)
        async with (
            await SqlClient.connect(log, uri, timeout_s=120) as client,
            await SqlClient.connect(log, uri, timeout_s=120, read_from="followers") as reader,
        ):
            files = LogicFiles(client, reader)
            half = asyncio.Event()

            async def tell() -> None:
                if files.done >= total // 2:
                    half.set()

            async def kill() -> None:
                await half.wait()
                victim = await replicas.leader()
                replicas.gone(victim.replica_id).kill()
                await asyncio.to_thread(replicas.start, victim.replica_id, "--snapshot-s", "2", command=SQL)

            async with asyncio.TaskGroup() as group:
                group.create_task(kill())
                for path in FILES:
                    group.create_task(files.run(path, tell))
            assert files.done == total > 1_500
            await client.execute("CREATE TABLE the_end (a)")
            files.plain.run(["CREATE TABLE the_end (a)"])
            last = await client.query("SELECT count(*) FROM the_end")
            said = await replicas.agree(last.revision)
    assert len({one["digest"] for one in said}) == 1
    expected = contents_of(files.plain.connection)
    assert len(expected) > len(FILES)
    for name in "abc":
        assert contents(tmp_path / name / "tables.db") == expected, name
    wrong = apsw.Connection(str(tmp_path / "a" / "tables.db"))
    wrong.execute("UPDATE expressions_t SET a = -1 WHERE rowid = (SELECT min(rowid) FROM expressions_t)")
    wrong.close()
    assert contents(tmp_path / "a" / "tables.db") != expected, "the comparison sees one value"
