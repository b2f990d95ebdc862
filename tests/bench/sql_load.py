"""A load of SQL as a process of its own: PostgreSQL's protocol by asyncpg, or rqlite's HTTP.

    python -P -m tests.bench.sql_load '{"door": "pg", "address": "127.0.0.1:5432", "database": "bench", "op": "updates",
        "callers": 64, "seconds": 5}'

Each caller has a connection, and one statement outstanding. It prints `{"per_s", "p50_ms", "p99_ms", "count"}`. `op`:

* `create`: the table, empty; `bulk`: `rows` more of it, by COPY or as INSERTs of many rows, rows a second
* `updates`, `selects`: one row by its primary key; `selects_local`: what one server knows, asking nobody else
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
import uvloop

from tests.bench.figure import percentile

__all__ = ["BULK_INSERT_ROWS", "ROWS", "TABLE", "VALUE"]

ROWS: Final = 10_000
VALUE: Final = "v" * 100
TABLE: Final = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, v TEXT)"
UPDATE: Final = "UPDATE t SET n = n + 1, v = {} WHERE id = {}"
SELECT: Final = "SELECT v FROM t WHERE id = {}"
BULK_INSERT_ROWS: Final = 1_000
_TIMEOUT_S: Final = 120

Call = Callable[[int], Awaitable[object]]
Options = dict[str, Any]


def _rows(options: Options) -> list[tuple[int, int, str]]:
    first = int(options.get("first", 1))
    return [(number, 0, VALUE) for number in range(first, first + int(options["rows"]))]


class PgDoor:
    """A server that speaks PostgreSQL's protocol: ours and PostgreSQL itself.

    Args:
        options: `address`, `database`, `is_ours`.

    """

    def __init__(self, options: Options) -> None:
        self._options = options

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        host, _, port = self._options["address"].rpartition(":")
        connection = await asyncpg.connect(
            host=host, port=int(port), database=self._options["database"], user="postgres", ssl=False,
            timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S,
        )  # fmt: skip
        try:
            yield connection
        finally:
            await connection.close()

    async def create(self) -> None:
        """Make the table anew."""
        async with self._connected() as connection:
            await connection.execute("DROP TABLE IF EXISTS t")
            await connection.execute(TABLE)

    async def bulk(self) -> None:
        """Copy rows in."""
        async with self._connected() as connection:
            if self._options.get("is_ours"):
                await connection.execute("SET rsm.copy = 'batches'")
            await connection.copy_records_to_table("t", records=_rows(self._options), columns=("id", "n", "v"))

    @asynccontextmanager
    async def caller(self, op: str) -> AsyncIterator[Call]:
        """Prepare a statement on a connection."""
        async with self._connected() as connection:
            if op == "selects_local" and self._options.get("is_ours"):
                await connection.execute("SET rsm.read = 'stale'")
            sql = UPDATE.format("$2", "$1") if op == "updates" else SELECT.format("$1")
            statement = await connection.prepare(sql)
            # Ours says `text` of a parameter without a type, and asyncpg then takes nothing else.
            are_texts = statement.get_parameters()[0].name == "text"

            async def _call(key: int) -> None:
                values: list[Any] = [str(key) if are_texts else key]
                if op == "updates":
                    await statement.fetch(*values, VALUE)
                    assert statement.get_statusmsg() == "UPDATE 1"
                else:
                    assert await statement.fetchval(*values) == VALUE

            yield _call


class RqliteDoor:
    """A node of rqlite.

    Args:
        options: `address`.

    """

    def __init__(self, options: Options) -> None:
        self._options = options

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Callable[[str, Any], Awaitable[Any]]]:
        host, _, port = self._options["address"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def _post(path: str, body: Any) -> Any:
            content = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
            writer.write(head.encode() + b"%d\r\n\r\n" % len(content) + content)
            answer = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            found = json.loads(await reader.readexactly(int(lengths[0].partition(b":")[2])))
            assert "error" not in found["results"][0], found
            return found["results"][0]

        try:
            yield _post
        finally:
            writer.close()
            await writer.wait_closed()

    async def create(self) -> None:
        """Make the table anew."""
        async with self._connected() as post:
            await post("/db/execute", ["DROP TABLE IF EXISTS t"])
            await post("/db/execute", [TABLE])

    async def bulk(self) -> None:
        """Insert many rows at a time."""
        rows = _rows(self._options)
        async with self._connected() as post:
            for first in range(0, len(rows), BULK_INSERT_ROWS):
                part = rows[first : first + BULK_INSERT_ROWS]
                sql = "INSERT INTO t (id, n, v) VALUES " + ", ".join(["(?, ?, ?)"] * len(part))  # noqa: S608 - our own words
                await post("/db/execute", [[sql, *(value for row in part for value in row)]])

    @asynccontextmanager
    async def caller(self, op: str) -> AsyncIterator[Call]:
        """Keep a connection."""
        level = "none" if op == "selects_local" else "linearizable"
        async with self._connected() as post:

            async def _update(key: int) -> None:
                found = await post("/db/execute", [[UPDATE.format("?", "?"), VALUE, key]])
                assert found["rows_affected"] == 1, found

            async def _select(key: int) -> None:
                found = await post(f"/db/query?level={level}", [[SELECT.format("?"), key]])
                assert found["values"] == [[VALUE]], found

            yield _update if op == "updates" else _select


async def _drive(door: PgDoor | RqliteDoor, op: str, callers: int, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    async with AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(door.caller(op)) for _ in range(callers)]
        for call in calls:
            await call(1)
        began = time.perf_counter()
        end = began + seconds

        async def _call(number: int) -> None:
            call, rng = calls[number], random.Random(number)
            at = time.perf_counter()
            while at < end:
                await call(rng.randint(1, ROWS))
                now = time.perf_counter()
                latencies.append(now - at)
                at = now

        await asyncio.gather(*(_call(number) for number in range(callers)))
        took_s = time.perf_counter() - began
    return {
        "per_s": len(latencies) / took_s,
        "p50_ms": percentile(latencies, 0.5) * 1_000,
        "p99_ms": percentile(latencies, 0.99) * 1_000,
        "count": len(latencies),
    }


async def _run(options: Options) -> dict[str, float]:
    door = PgDoor(options) if options["door"] == "pg" else RqliteDoor(options)
    op = options["op"]
    if op == "create":
        await door.create()
        return {}
    if op == "bulk":
        began = time.perf_counter()
        await door.bulk()
        return {"per_s": options["rows"] / (time.perf_counter() - began), "count": options["rows"]}
    return await _drive(door, op, int(options["callers"]), float(options["seconds"]))


def main() -> None:
    """Run what the first argument says."""
    sys.stdout.write(json.dumps(uvloop.run(_run(json.loads(sys.argv[1])))) + "\n")


if __name__ == "__main__":
    main()
