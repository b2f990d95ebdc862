"""The commands for SQL tables that move rows and talk: import, export, dump, and the shell."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ledger.dev import DevCluster
from ledger.exit_codes import ExitCode
from rsm_spark.sql import BlockingSqlClient
from tests.integration.store_processes import stores
from tests.integration.test_store_cluster import run_cli

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SQL = ("rsm_spark", "sql", "serve")
PATIENT = ("--command-s-max", "60")
ROOT = Path(__file__).parents[2]
ALL = [f"SELECT * FROM {name}" for name in ("item", "sale", "dear")]  # noqa: S608 - constants
_SCHEMA = (
    "CREATE TABLE item (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, price REAL, b BLOB, two AS (price*2))",
    "CREATE TABLE sale (item INTEGER REFERENCES item, n INTEGER)",
    "CREATE INDEX by_item ON sale (item)",
    "CREATE VIEW dear AS SELECT name FROM item WHERE price > 1",
    "CREATE TRIGGER low AFTER INSERT ON sale BEGIN UPDATE item SET price = price + 1 WHERE id = new.item; END",
)


def rows_of(client: BlockingSqlClient, sql: str) -> list[tuple[Any, ...]]:
    return list(client.query(sql).rows)


def command(uri: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "rsm_spark", "sql", *arguments, "--metadata-uri", uri]


def test_tables_go_out_and_come_back_whole(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    copy, at = f"{log}-copy", ("--log", log)
    (tmp_path / "copies").mkdir()
    with stores(uri, log, tmp_path) as replicas, stores(uri, copy, tmp_path / "copies") as copies:
        replicas.start("a", *PATIENT, command=SQL)
        (tmp_path / "copies").mkdir(exist_ok=True)
        copies.start("b", *PATIENT, command=SQL)
        with BlockingSqlClient.connect(log, uri, timeout_s=60) as shop:
            shop.transaction(_SCHEMA)
            items = [(f"n{n}; 'x'\n", n / 3, bytes([n % 256, 0])) for n in range(700)]
            for first in range(0, len(items), 100):
                shop.executemany("INSERT INTO item (name, price, b) VALUES (?, ?, ?)", items[first : first + 100])
            shop.execute("INSERT INTO item (name) VALUES (?)", ("a\0b",))
            shop.execute("INSERT INTO sale VALUES (5, 9223372036854775807), (NULL, -1)")
            shop.execute("DELETE FROM item WHERE id = 701")
            shop.execute("INSERT INTO item (name, b) VALUES ('', x'')")
            shop.execute("DELETE FROM item WHERE id = 702")
            shop.execute("INSERT INTO item (name, b) VALUES ('', x'')")
            everything = [rows_of(shop, sql) for sql in ALL]
            for name in ("item.csv", "item.parquet", "item.db", "shop.db"):
                which = () if name == "shop.db" else ("--table", "item")
                code, (said,) = run_cli(uri, "sql", "export", str(tmp_path / name), *which, *at)
                assert (code, said["rows"]) == (0, 701 + (2 if name == "shop.db" else 0)), name
            assert run_cli(uri, "sql", "export", str(tmp_path / "item.csv"), "--table", "item", *at)[0] == 2
            code, (said,) = run_cli(uri, "sql", "dump", "--output", str(tmp_path / "shop.sql"), *at)
            assert (code, said["rows"]) == (0, 703)
        with sqlite3.connect(tmp_path / "shop.db") as plain:
            assert [plain.execute(sql).fetchall() for sql in ALL] == everything
            assert plain.execute("SELECT seq FROM sqlite_sequence").fetchall() == [(703,)]
        with sqlite3.connect(":memory:") as plain:
            plain.executescript((tmp_path / "shop.sql").read_text())
            assert [plain.execute(sql).fetchall() for sql in ALL] == everything
        assert run_cli(uri, "sql", "script", str(tmp_path / "shop.sql"), "--log", copy)[0] == 0
        with BlockingSqlClient.connect(copy, uri, timeout_s=60) as other:
            assert [rows_of(other, sql) for sql in ALL] == everything
            written = "SELECT id, name, price, b FROM {} ORDER BY id"
            for name in ("item.csv", "item.parquet"):
                # What a generated column shows is no column to write.
                code, _ = run_cli(uri, "sql", "import", str(tmp_path / name), "--table", "item", "--log", copy)
                assert code in set(ExitCode)
            sql = "SELECT id, name, price, b FROM item"
            for number, suffix in enumerate(("csv", "parquet", "db")):
                file = tmp_path / f"again.{suffix}"
                if suffix == "db":
                    file = tmp_path / "item.db"
                else:
                    assert run_cli(uri, "sql", "export", str(file), "--query", sql, "--log", copy)[0] == 0
                other.execute(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, name TEXT, price REAL, b BLOB)")
                code, (said,) = run_cli(
                    uri, "sql", "import", str(file), "--table", f"t{number}", "--source-table", "item", "--log", copy
                )  # fmt: skip
                assert (code, said["rows"], said["rows_before"]) == (0, 701, 0), suffix
                assert rows_of(other, written.format(f"t{number}")) == rows_of(other, written.format("item")), suffix
                code, (said,) = run_cli(
                    uri, "sql", "import", str(file), "--table", f"t{number}", "--source-table", "item", "--log", copy
                )  # fmt: skip
                assert (code, said["rows"], said["rows_before"]) == (0, 0, 701), "it is done already"


def test_nothing_is_written_of_a_file_with_a_wrong_value(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, at = cluster.metadata_uri, ("--log", unique_name)
    file = tmp_path / "item.csv"
    file.write_text("name,stock\n" + "\n".join(f"n{n},{n}" for n in range(300)) + "\nlast,many\n")
    with stores(uri, unique_name, tmp_path) as replicas:
        replicas.start("a", *PATIENT, command=SQL)
        with BlockingSqlClient.connect(unique_name, uri, timeout_s=60) as shop:
            assert run_cli(uri, "sql", "import", str(file), "--table", "item", *at)[0] == 2, "there is no table"
            shop.execute("CREATE TABLE item (name TEXT PRIMARY KEY, stock INTEGER)")
            done = subprocess.run(
                command(uri, "import", str(file), "--table", "item", *at),
                capture_output=True, text=True, cwd=ROOT, check=False,
            )  # fmt: skip
            assert done.returncode == 2
            assert "row 301, column stock: 'many' is no INTEGER" in done.stderr.replace("\n", " ")
            assert rows_of(shop, "SELECT count(*) FROM item") == [(0,)]
            assert run_cli(uri, "sql", "import", str(file), "--table", "made", "--create", *at)[0] == 0
            assert rows_of(shop, "SELECT typeof(stock), count(*) FROM made GROUP BY 1") == [("text", 301)]
            # A row that breaks a constraint: what is before its transaction stays, and the complaint names it.
            file.write_text(file.read_text().replace("last,many", "n7,1\nend,2"))
            done = subprocess.run(
                command(uri, "import", str(file), "--table", "item", "--batch-rows", "50", *at),
                capture_output=True, text=True, cwd=ROOT, check=False,
            )  # fmt: skip
            said = " ".join(done.stderr.split())
            assert done.returncode == 2
            assert "row 301 of the file" in said
            assert "UNIQUE constraint failed" in said
            assert "300 rows of it are done" in said
            assert rows_of(shop, "SELECT count(*) FROM item") == [(300,)]
            file.write_text(file.read_text().replace("n7,1\nend", "n7b,1\nend"))
            again = ("--skip-rows", "300", "--name", "again")
            code, (told,) = run_cli(uri, "sql", "import", str(file), "--table", "item", *again, *at)
            assert (code, told["rows"]) == (0, 2)


def test_an_import_that_is_killed_goes_on_and_inserts_each_row_once(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, at = cluster.metadata_uri, ("--log", unique_name)
    file = tmp_path / "big.parquet"
    count = 30_000
    pq.write_table(pa.table({"n": list(range(count)), "v": ["x" * 50] * count}), file)
    start = command(uri, "import", str(file), "--table", "big", "--batch-rows", "200", *at, "--json")
    with stores(uri, unique_name, tmp_path) as replicas:
        replicas.start("a", *PATIENT, command=SQL)
        with BlockingSqlClient.connect(unique_name, uri, timeout_s=60) as shop:
            shop.execute("CREATE TABLE big (id INTEGER PRIMARY KEY, n INTEGER, v TEXT)")
            seen = 0
            for _ in range(3):
                process = subprocess.Popen(start, stdout=subprocess.DEVNULL, cwd=ROOT)
                try:
                    while rows_of(shop, "SELECT count(*) FROM big") == [(seen,)]:
                        assert process.poll() is None
                        time.sleep(0.01)
                finally:
                    process.kill()
                    process.wait()
                ((seen,),) = rows_of(shop, "SELECT count(*) FROM big")
            done = subprocess.run(start, capture_output=True, text=True, cwd=ROOT, check=True)
            said = json.loads(done.stdout)
            assert said["rows"] + said["rows_before"] == count
            assert said["rows_before"] >= seen > 0
            found = rows_of(shop, "SELECT count(*), count(DISTINCT n), sum(n) FROM big")
            assert found == [(count, count, count * (count - 1) // 2)]


def test_the_shell_takes_statements_from_standard_input(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, at = cluster.metadata_uri, ("--log", unique_name)

    def talk(text: str, *options: str) -> tuple[int, str, str]:
        done = subprocess.run(
            command(uri, "shell", *at, *options), input=text, capture_output=True, text=True, cwd=ROOT, check=False
        )
        return done.returncode, done.stdout, done.stderr

    with stores(uri, unique_name, tmp_path) as replicas:
        replicas.start("a", *PATIENT, command=SQL)
        code, told, _ = talk(
            "CREATE TABLE item (id INTEGER PRIMARY KEY,\n name TEXT); INSERT INTO item (name) VALUES ('a;b'), (NULL);\n"
            "CREATE INDEX by_name ON item (name);\n.tables\n.schema item\n.timing on\n"
            "BEGIN;\nUPDATE item SET name = 'c' WHERE id = 2;\nSELECT name FROM item WHERE id = 2;\nROLLBACK;\n"
            "SELECT * FROM item ORDER BY id\n;\n\\watch 0.1 2\n"
            "EXPLAIN QUERY PLAN SELECT * FROM item WHERE name = 'a';\n"
            "EXPLAIN QUERY PLAN DELETE FROM item WHERE name = 'a'"
        )
        assert code == 0
        assert told.count("1   a;b\n2   NULL\n") == 3
        assert "name\nitem\n" in told
        assert "CREATE INDEX by_name ON item (name);\n" in told
        assert "name\nc\n" in told
        assert " ms)\n" in told
        assert told.count("INDEX by_name (name=?)") == 2
        code, told, complaint = talk("SELECT 1;\nSELECT * FROM nothing;\nSELECT 2;\n", "--json")
        assert code == 1
        assert [json.loads(line)["rows"] for line in told.splitlines()] == [[[1]]]
        assert "nothing" in complaint
        for wrong in (".nonsense\n", "\\watch\n", "BEGIN; SELECT 1;", "COMMIT;"):
            assert talk(wrong)[0] == 2, wrong
        count = 3_000
        code, told, _ = talk(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) "
            "SELECT i, printf('%0200d', i) FROM n;", "--json"
        )  # fmt: skip
        lines = [json.loads(line)["rows"] for line in told.splitlines()]
        assert len(lines) > 1, "slices"
        assert [row[0] for rows in lines for row in rows] == list(range(1, count + 1))


def test_the_shell_at_a_terminal_completes_remembers_and_is_interrupted(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    with stores(uri, unique_name, tmp_path) as replicas:
        replicas.start("a", "--read-s-max", "60", *PATIENT, command=SQL)
        with BlockingSqlClient.connect(unique_name, uri, timeout_s=60) as shop:
            shop.execute("CREATE TABLE warehouse (id INTEGER PRIMARY KEY, shelf_number INTEGER)")
            shop.execute("INSERT INTO warehouse VALUES (1, 4711)")
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm"}
        with _Terminal(command(uri, "shell", "--log", unique_name), environment) as terminal:
            terminal.until("sql>")
            terminal.type("SELECT shelf_nu\t", until="mber")
            terminal.type(" FROM wareh\t", until="ouse")
            terminal.type(";\r", until="4711")
            terminal.type("SELECT oops;\r", until="oops")
            terminal.until("sql>")
            terminal.type("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;\r")
            terminal.until("\r\n")
            time.sleep(1)
            terminal.interrupt()
            terminal.type("SELECT 40 +\r", until="->")
            terminal.type("2;\r", until="42")
            terminal.type(".quit\r")
            assert terminal.code() == 0
        history = tmp_path / "state" / "rsm-spark" / "sql-history"
        assert history.stat().st_mode & 0o077 == 0
        assert "+SELECT shelf_number FROM warehouse;" in history.read_text()
        with _Terminal(command(uri, "shell", "--log", unique_name), environment) as terminal:
            terminal.until("sql>")
            terminal.type("\x1b[A\x1b[A\x1b[A", until="SELECT 40 +")
            terminal.type("\x03\x04")
            assert terminal.code() == 0


class _Terminal:
    """A program at a terminal."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._screen, inside = pty.openpty()
        self._process = subprocess.Popen(
            arguments, stdin=inside, stdout=inside, stderr=inside, env=environment, cwd=ROOT, start_new_session=True
        )
        os.close(inside)
        self._seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._screen)

    def type(self, text: str, *, until: str = "") -> None:
        os.write(self._screen, text.encode())
        if until:
            self.until(until)

    def interrupt(self) -> None:
        os.kill(self._process.pid, signal.SIGINT)
        self.until("sql>")

    def until(self, text: str) -> None:
        self._read(lambda: text in _ESCAPES.sub("", self._seen))
        self._seen = _ESCAPES.sub("", self._seen).partition(text)[2]

    def _read(self, is_enough: Callable[[], bool]) -> None:
        end_s = time.monotonic() + 60
        while not is_enough():
            ready, _, _ = select.select([self._screen], [], [], max(0.0, end_s - time.monotonic()))
            assert ready, self._seen
            more = os.read(self._screen, 65_536).decode(errors="replace")
            self._seen += more
            if "\x1b[6n" in more:  # It asks where the cursor is.
                os.write(self._screen, b"\x1b[1;1R")

    def code(self) -> int:
        with contextlib.suppress(OSError):  # The program is gone, and with it the terminal's other end.
            self._read(lambda: False)
        return self._process.wait(60)
