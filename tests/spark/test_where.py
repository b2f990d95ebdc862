"""Where a query may look: what starts and ends mean is in test_kafka_semantics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledger.client.client import LedgerClient
from tests.spark.conftest import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def login_file(tmp_path: Path) -> Path:
    file = tmp_path / "login"
    file.write_text("digest:reader:hush\n")
    return file


@pytest.fixture
def secured_log(log: Any, login_file: Path, cluster: Any, loop: Any) -> Iterator[WrittenLog]:
    """A log whose chain only its writer's log-in may read; `log` has made the open folder above it."""
    client = loop.run(LedgerClient.connect(cluster.metadata_uri, zk_auth_file=str(login_file)))
    yield WrittenLog(f"{log.name}-secured", cluster, loop, client)
    loop.run(client.close())


def test_a_log_that_needs_a_log_in_is_read_with_the_drivers_file(
    spark: SparkSession, secured_log: WrittenLog, login_file: Path
) -> None:
    secured_log.fill(2)
    reader = spark.read.format("ledger").options(**secured_log.options())
    with pytest.raises(Exception, match="does not let us") as caught:
        reader.load().count()
    assert "zkAuthFile" in str(caught.value)
    assert reader.option("zkAuthFile", str(login_file)).load().count() == secured_log.revision
    with pytest.raises(Exception, match="cannot read the ZooKeeper log-in") as caught:
        reader.option("zkAuthFile", "/nowhere").load().count()
    assert "hush" not in str(caught.value)
