"""What is deleted or made anew under a stream; trimmed logs are in test_kafka_semantics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rsm_spark.core.chain import chain_path
from tests.spark.conftest import WrittenLog
from tests.spark.streams import Batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.client.client import LedgerClient


def test_a_log_made_anew_ends_a_stream_or_is_read_from_its_first_record(
    spark: SparkSession, make_log: Any, cluster: Any, loop: Any, client: LedgerClient, tmp_path: Path
) -> None:
    log = make_log()
    options = log.options(startingOffsets="earliest")
    log.fill(2)
    strict = Batches(spark, options, {"availableNow": True}, tmp_path)
    strict.run_until(lambda: False)
    assert len(strict.rows) == log.revision
    loop.run(client.store.delete(chain_path(log.name)))
    with pytest.raises(Exception, match=f"log {log.name} is gone: the query stands before record {log.revision + 1}"):
        strict.run_until(lambda: False)
    # Longer than the old one: that the record is there does not mean that it is the same.
    anew = WrittenLog(log.name, cluster, loop, client)
    anew.fill(4)
    with pytest.raises(Exception, match=f"records from {log.revision + 1} on: the log was deleted and made anew"):
        strict.run_until(lambda: False)
    lax = Batches(spark, {**options, "failOnDataLoss": "false"}, {"availableNow": True}, tmp_path)
    lax.run_until(lambda: False)
    assert lax.rows == [(log.name, revision) for revision in range(1, anew.revision + 1)]
    assert lax.losses() == [{"log": log.name, "from": log.revision + 1, "to": None, "count": None}]


def test_a_deleted_ledger_ends_a_stream_or_is_left_out(
    spark: SparkSession, log: Any, loop: Any, client: LedgerClient, tmp_path: Path
) -> None:
    log.fill(3)
    log.roll()
    log.fill(2)
    first, second = log.ledger_ids
    options = {"metadataUri": log.metadata_uri, "ledgers": f"{first},{second}"}
    start = json.dumps({str(first): 1, str(second): -2})
    loop.run(client.delete(first))

    def count(fail_on_data_loss: str) -> int:
        reader = spark.read.format("ledger").options(**options, startingOffsets=start, failOnDataLoss=fail_on_data_loss)
        return reader.load().count()

    with pytest.raises(Exception, match=f"ledger {first} does not exist"):
        count("true")
    assert count("false") == 2
