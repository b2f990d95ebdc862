"""Rows of a service's table as Spark's tasks and driver send them, to real replicas: looked up, written, refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import rsm_spark as rsm
from connectors.errors import OptionError
from connectors.sink.commands import commands_of
from connectors.sink.described_table import with_table
from connectors.sink.marks import BatchName
from connectors.sink.options import SinkOptions, parse_sink_options
from connectors.sink.task import write_part
from connectors.sink.writer import end_batch
from ledger.dev import DevCluster
from rsm_spark.errors import InvalidCommandError
from tests.integration.store_processes import stores
from tests.unit.rsm_spark.core.typed_stock import Stock

_STOCK = ("rsm_spark", "serve", "tests.unit.rsm_spark.core.typed_stock:Stock")
_SCHEMA = StructType(
    [
        StructField("shop", StringType()),
        StructField("number", LongType()),
        StructField("title", StringType()),
        StructField("amount", IntegerType()),
    ]
)


@pytest.fixture
def options(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a", command=_STOCK)
        yield {"log": unique_name, "metadataUri": cluster.metadata_uri, "as": "table", "table": "goods"}


def _options(given: dict[str, str], **more: str) -> SinkOptions:
    return with_table(parse_sink_options({**given, "writer": "w", **more}, is_stream=False))


def _write(options: SinkOptions, batch: int, count: int, amount: int = 1) -> None:
    """Write a batch of two parts, as two tasks and the driver do."""
    messages = []
    for part in range(2):
        rows = [{"shop": f"s{part}", "number": n, "title": "tea", "amount": amount} for n in range(count)]
        types: list[tuple[str, pa.DataType]] = [
            ("shop", pa.string()), ("number", pa.int64()), ("title", pa.string()), ("amount", pa.int32()),
        ]  # fmt: skip
        batches = pa.Table.from_pylist(rows, pa.schema(types)).to_batches(max_chunksize=1_000)
        name = BatchName("w", "c", "r", batch)
        messages.append(write_part(iter(batches), options, commands_of(options, _SCHEMA), name, part))
    end_batch(list(messages), options, _SCHEMA)


def test_batches_are_written_once_and_what_does_not_fit_is_refused(options: dict[str, str]) -> None:
    found = _options(options)
    assert [field.name for field in found.table_fields[:3]] == ["shop", "number", "title"]
    for batch, count in ((0, 100), (1, 6_000)):
        for _ in range(2):
            _write(found, batch, count)
    with pytest.raises(InvalidCommandError, match=r"row of key \('s0', 0\): Expected `int` >= 0 - at `\$.amount`"):
        _write(found, 2, 10, amount=-1)

    async def amounts() -> list[int]:
        async with await rsm.ServiceClient.connect(options["log"], options["metadataUri"], timeout_s=60) as stock:
            left = await stock.call(Stock.take, "s1", 5_999)
            return [left, *[await stock.call(Stock.amount, shop, n) for shop, n in (("s0", 0), ("s1", 6_000))]]

    assert asyncio.run(amounts()) == [0, 1, -1]
    with pytest.raises(OptionError, match="table 'orders' of log .* takes no rows as they are"):
        _options(options, table="orders")
    with pytest.raises(OptionError, match="has no table 'nowhere'; its service has goods, orders"):
        _options(options, table="nowhere")
