"""COPY in binary over PostgreSQL's port of a replica that is a process: psycopg and asyncpg, in and out."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve, until_led

pytestmark = pytest.mark.asyncio
KINDS = ["int8", "text", "timestamp", "bytea", "numeric", "float8", "uuid"]


async def test_rows_are_copied_in_and_out_in_binary(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at = place(serve(replicas, "a"))
        await asyncio.to_thread(_of_psycopg, at)
        where = {"host": at["host"], "port": at["port"], "database": at["dbname"], "user": "ann"}
        one = await asyncpg.connect(**where)
        await _of_asyncpg(one)
        await one.close()


def _of_psycopg(at: dict[str, Any]) -> None:
    rows = [
        (n, f"tab\t{n}\n\\", datetime(2026, 1, 2, 3, 4, 5), b"\0\xff", Decimal("1.5"), 2.5, UUID(int=n))
        for n in range(2_000)
    ]
    with psycopg.connect(**at, user="ann") as one, one.cursor() as cursor:
        until_led(
            lambda: cursor.execute(
                "CREATE TABLE c (id INTEGER PRIMARY KEY, v TEXT, at TIMESTAMP, b BYTEA, n NUMERIC, f FLOAT, u UUID)"
            )
        )
        with cursor.copy("COPY c FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(KINDS)
            for row in rows:
                copy.write_row(row)
        with cursor.copy("COPY (SELECT * FROM c ORDER BY id) TO STDOUT (FORMAT BINARY)") as copy:
            copy.set_types(KINDS)
            assert list(copy.rows()) == rows


async def _of_asyncpg(one: Any) -> None:
    await one.execute("CREATE TABLE r (id INT PRIMARY KEY, v TEXT, at TIMESTAMPTZ, d DATE, n NUMERIC, ok BOOLEAN)")
    at = datetime(2026, 1, 2, 3, 4, 5, 6_000, UTC)
    rows = [(n, None if n % 7 == 0 else f"é{n}", at, at.date(), Decimal("1.25"), n % 2 == 0) for n in range(5_000)]
    assert await one.copy_records_to_table("r", records=rows) == "COPY 5000"
    assert [tuple(row) for row in await one.fetch("SELECT * FROM r ORDER BY id")] == rows
    with pytest.raises(asyncpg.UniqueViolationError):
        await one.copy_records_to_table("r", records=[(9_000, "x"), (1, "y")], columns=["id", "v"])
    assert await one.fetchval("SELECT id FROM r ORDER BY id DESC LIMIT 1") == 4_999
    out = io.BytesIO()
    assert await one.copy_from_query("SELECT * FROM r ORDER BY id", output=out, format="binary") == "COPY 5000"
    await one.execute("DELETE FROM r")
    out.seek(0)
    assert await one.copy_to_table("r", source=out, format="binary") == "COPY 5000"
    assert [tuple(row) for row in await one.fetch("SELECT * FROM r ORDER BY id")] == rows
