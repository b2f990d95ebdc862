"""Spark's Thrift server, as BI tools and dbt use it: a log as a table in a Hive metastore, over JDBC."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import test_sink
from tests.spark.children import CHILD_S, child_environment

target = test_sink.target
_ROOT = Path(__file__).resolve().parents[2]
_BIN = Path(sysconfig.get_path("purelib")) / "pyspark" / "bin"
_CLASS = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_QUIET = ["--silent=true", "--showHeader=false", "--outputformat=tsv2"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * CHILD_S)]


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Callable[..., list[list[str]]]]:
    """Return what asks the server by a session of its own: rows of all statements, as texts."""
    port, environment = _free_port(), child_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(_ROOT))
    settings = {
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
    }  # fmt: skip
    command = [str(_BIN / "spark-submit"), "--master", "local[2]", "--class", _CLASS, "--name", "thrift"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    place = ["--hiveconf", f"hive.server2.thrift.port={port}", "--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "spark-internal", *place], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )

    def asked(*statements: str) -> list[list[str]]:
        url = f"jdbc:hive2://127.0.0.1:{port}/default"
        told = [part for one in statements for part in ("-e", one)]
        done = subprocess.run(
            [_BIN / "beeline", "-u", url, "-n", "ann", *_QUIET, *told],
            cwd=tmp_path, env={**environment, "PATH": os.environ["PATH"]}, capture_output=True, text=True,
            timeout=CHILD_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        lines = (line.rpartition("default> ")[2] for line in done.stdout.splitlines())  # Behind its prompts.
        return [line.split("\t") for line in lines if line.strip()]

    try:
        deadline = time.monotonic() + CHILD_S
        while True:
            assert server.poll() is None, (tmp_path / "server.log").read_text()[-3000:]
            assert time.monotonic() < deadline, "the server does not listen"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            except OSError:
                time.sleep(0.5)
            else:
                break
        yield asked
    finally:
        server.terminate()
        server.wait(60)


def test_a_log_is_a_table_for_clients_of_jdbc(ask: Callable[..., list[list[str]]], log: Any, target: Any) -> None:
    log.fill(5)

    def options(given: dict[str, str]) -> str:
        return ", ".join(f"`{key}` '{value}'" for key, value in given.items())

    ask(
        f"CREATE TABLE orders USING ledger OPTIONS ({options(log.options(rows='table'))})",
        f"CREATE TABLE totals USING ledger OPTIONS ({options(target.options())})",
    )
    # Another session, which has the tables from the metastore alone.
    assert ask("SELECT count(*), max(_revision) FROM orders") == [[str(log.revision - 1), str(log.revision)]]
    described = ask("DESCRIBE orders")
    assert [row[:2] for row in described[:2]] == [["key", "binary"], ["value", "binary"]]
    ask("INSERT INTO totals SELECT concat('bi/', decode(key, 'UTF-8')), count(*) FROM orders GROUP BY key")
    assert target.value(b"bi/key-7") == b"1"
