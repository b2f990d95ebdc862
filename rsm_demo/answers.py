"""Asks the leader and the Delta table for everything they have. Delta is read by `deltalake` alone, as a user would."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from rsm_demo.accounts import accounts_of, map_digest
from rsm_spark.map.client.client import MapClient


class AnswerSource(NamedTuple):
    """Tail number -> [where, flights, cancelled, delay minutes, by airline] of a source, and a digest over its rows."""

    rows: dict[str, Any]
    map_digest: str


async def from_leader(metadata_uri: str, log_name: str) -> AnswerSource:
    """Scan the whole map, linearizably."""
    async with await MapClient.connect(log_name, metadata_uri) as client:
        pairs = [(row.key, row.value) async for row in client.scan()]
    return AnswerSource(accounts_of(pairs), map_digest(pairs))


def from_delta(place: Path) -> AnswerSource:
    """Read the whole table."""
    table = pa.table(DeltaTable(str(place)).to_pyarrow_table(columns=["key", "value"]))
    columns = (table.column(name).to_pylist() for name in ("key", "value"))
    pairs = list(zip(*columns, strict=True))
    return AnswerSource(accounts_of(pairs), map_digest(pairs))


def damage_a_row(place: Path) -> str:
    """Change the value of the first key of the table behind everybody's back; return the key."""
    table = DeltaTable(str(place))
    keys = table.to_pyarrow_table(columns=["key"]).column("key").to_pylist()
    victim = min(bytes(key) for key in keys if key is not None)
    table.update(updates={"value": "X'5b226e6f7768657265222c302c302c305d'"}, predicate=f"key = X'{victim.hex()}'")
    return victim.decode()
