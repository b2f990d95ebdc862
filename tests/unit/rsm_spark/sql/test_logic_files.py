"""Statements and queries as sqllogictest has them: answers are plain SQLite's, files of replicas are the same.

Drawn ones run always. The public files are not part of this repository: `RSM_SQLLOGICTEST=/path/to/sqllogictest/test`
runs those below a folder, `RSM_SQLLOGICTEST_S=3600` as much as so many seconds hold.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

import apsw
import pytest

from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.engine.scripts import split_script
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlQuery
from tests.sets import examples
from tests.unit.rsm_spark.sql.drawn_queries import DrawnQueries
from tests.unit.rsm_spark.sql.logic_records import LogicRecord, agrees, records_of, shown
from tests.unit.rsm_spark.sql.plain_sqlite import PlainSqlite
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents, contents_of, transaction

_STATEMENTS_AT_ONCE = 200
_PUBLIC = os.environ.get("RSM_SQLLOGICTEST", "")
_PUBLIC_S = float(os.environ.get("RSM_SQLLOGICTEST_S", "600"))
_REFUSED = ("REINDEX", "PRAGMA", "ANALYZE", "VACUUM", "ATTACH", "CREATE TEMP")


class LogicRun:
    """Runs records on replicas of tables and on plain SQLite, and compares.

    Args:
        folder: Of the replicas' files.

    Attributes:
        queries, statements: So many were compared.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.queries = self.statements = 0
        self._pair = SqlPair(folder)
        self._plain = PlainSqlite()
        self._reader = SqlReader(self._pair.leader.path, SqlSettings(), lambda: 0.0)
        self._waiting: list[LogicRecord] = []
        # What a file expects behind a record that was left out may rest on that one; plain SQLite left it out too.
        self._has_skipped = False

    def run(self, records: Iterable[LogicRecord]) -> None:
        """Run records in order; at their end compare all files."""
        for record in records:
            if record.sql.upper().startswith(_REFUSED):
                self._has_skipped = True  # Not for replicated tables; docs/sql.md says so.
                continue
            if record.fails is None:
                self._flush()
                self._query(record)
                continue
            self._waiting.append(record)
            if len(self._waiting) >= _STATEMENTS_AT_ONCE:
                self._flush()
        self._flush()
        assert contents(self._pair.leader.path) == contents(self._pair.follower.path)
        assert contents(self._pair.leader.path) == contents_of(self._plain.connection)

    def _flush(self) -> None:
        """Run the statements that wait in one entry: leader and follower are compared behind it."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        answers = self._pair.run(*(transaction(*split_script(record.sql)) for record in waiting))
        for record, answer in zip(waiting, answers[-len(waiting) :], strict=True):
            failed = self._plain.run(split_script(record.sql))
            assert bool(failed) == (answer.fault is not None), (record, failed, answer.fault)
            if not self._has_skipped and not record.place.startswith("drawn"):
                assert bool(failed) == record.fails, (record, failed)
            self.statements += 1

    def _query(self, record: LogicRecord) -> None:
        reply = self._reader.read(SqlQuery(record.sql)).reply
        complaint = ""
        plain: Any = []
        try:
            plain = self._plain.connection.execute(record.sql).fetchall()
        except apsw.Error as error:
            complaint = str(error)
        assert bool(complaint) == (reply.fault is not None), (record, complaint, reply.fault)
        if complaint:
            return
        rows = reply.results[0].rows
        has_order = record.sort == "nosort"
        mine, others = ([repr(row) for row in found] for found in (rows, plain))
        assert (mine == others) if has_order else (sorted(mine) == sorted(others)), record
        if record.answer is not None and not self._has_skipped:
            assert agrees(record.answer, shown(rows, record.types, record.sort)), record
        self.queries += 1

    def close(self) -> None:
        self._reader.close()
        self._pair.close()


@pytest.mark.parametrize("seed", range(examples(4)))
def test_drawn_queries_have_the_answers_of_plain_sqlite(tmp_path: Path, seed: int) -> None:
    drawn = DrawnQueries(random.Random(seed))
    run = LogicRun(tmp_path)
    try:
        run.run(drawn.schema())
        for _ in range(10):
            run.run([drawn.change() for _ in range(3)] + [drawn.query() for _ in range(15)])
        assert run.queries > 100
        assert run.statements > 60
    finally:
        run.close()


def test_records_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "t.test"
    path.write_text(
        "# a file\nhash-threshold 8\n\nstatement ok\nCREATE TABLE t (a)\n\n"
        "onlyif mysql # not here\nstatement ok\nNONSENSE\n\n"
        "skipif mysql\nstatement error\nINSERT INTO u VALUES (1)\n\n"
        "statement ok\nINSERT INTO t VALUES (3), (NULL), (20)\n\n"
        "query IR rowsort label-1\nSELECT a, a * 0.5\nFROM t\n----\n20\n10.000\n3\n1.500\nNULL\nNULL\n\n"
        "query T nosort\nSELECT a FROM t ORDER BY a\n----\n"
        "3 values hashing to 09a8b3ebd1a9bb05b4b8b1e2b53a5b0c\n\nhalt\n\n"
        "statement ok\nNONSENSE\n"
    )
    found = list(records_of(path))
    assert [record.fails for record in found] == [False, True, False, None, None]
    assert found[3].sql == "SELECT a, a * 0.5\nFROM t"
    assert not agrees(found[4].answer or (), shown([(None,), (3,), (20,)], "T", "nosort"))
    run = LogicRun(tmp_path / "files")
    try:
        run.run(found[:4])
        assert (run.queries, run.statements) == (1, 3)
        wrong = found[3]._replace(answer=("1",))
        with pytest.raises(AssertionError):
            run.run([wrong])
    finally:
        run.close()


@pytest.mark.slow
@pytest.mark.skipif(not _PUBLIC, reason="RSM_SQLLOGICTEST names the folder of the public files")
@pytest.mark.timeout(0)
def test_the_public_files_have_the_answers_of_plain_sqlite(tmp_path: Path) -> None:
    end_s = time.monotonic() + _PUBLIC_S
    done = queries = statements = 0
    for number, path in enumerate(sorted(Path(_PUBLIC).rglob("*.test"), key=lambda one: (one.stat().st_size, one))):
        if time.monotonic() > end_s:
            break
        run = LogicRun(tmp_path / str(number))
        try:
            run.run(takewhile(lambda _: time.monotonic() < end_s, records_of(path)))
        finally:
            run.close()
        done, queries, statements = done + 1, queries + run.queries, statements + run.statements
    assert done, f"{_PUBLIC} has no file that ends in .test"
    print(f"{done} files, {statements} statements, {queries} queries")  # noqa: T201 - what was run is the point
