"""Spark's Thrift server, as BI tools use it: a log as a table in a Hive metastore, over JDBC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark import test_sink
from tests.spark.children import CHILD_S
from tests.spark.thrift_server import thrift_server

target = test_sink.target
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * CHILD_S)]


def test_a_log_is_a_table_for_clients_of_jdbc(log: Any, target: Any, tmp_path: Path) -> None:
    log.fill(5)

    def options(given: dict[str, str]) -> str:
        return ", ".join(f"`{key}` '{value}'" for key, value in given.items())

    with thrift_server(tmp_path, {}) as server:
        server.ask(
            f"CREATE TABLE orders USING ledger OPTIONS ({options(log.options(rows='table'))})",
            f"CREATE TABLE totals USING ledger OPTIONS ({options(target.options())})",
        )
        # Another session, which has the tables from the metastore alone.
        told = server.ask("SELECT count(*), max(_revision) FROM orders")
        assert told == [[str(log.revision - 1), str(log.revision)]]
        described = server.ask("DESCRIBE orders")
        assert [row[:2] for row in described[:2]] == [["key", "binary"], ["value", "binary"]]
        server.ask("INSERT INTO totals SELECT concat('bi/', decode(key, 'UTF-8')), count(*) FROM orders GROUP BY key")
        assert target.value(b"bi/key-7") == b"1"
