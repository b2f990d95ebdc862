"""What Spark shows of errors that this project raises while a query is planned: the sentence, without frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource

from tests.spark.conftest import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ForeignSource(DataSource):
    """Somebody else's, which raises where ours did before."""

    @classmethod
    def name(cls) -> str:
        return "foreign"

    def schema(self) -> str:
        raise ValueError("of somebody else")


def _said(read: Any) -> str:
    with pytest.raises(Exception, match="ledger|table|log") as caught:  # noqa: PT011 - whichever Spark makes of it
        read().collect()
    return str(caught.value)


def test_an_error_of_ours_is_a_sentence_and_others_keep_their_traces(spark: SparkSession, log: WrittenLog) -> None:
    def read(source: str = "ledger", **more: str) -> Any:
        options = {**log.options(), **more}
        return lambda: spark.read.format(source).options(**options).load()

    spark.dataSource.register(ForeignSource)
    for wrong, why in (
        (read(log="nowhere"), "there is no log nowhere"),
        (read(startingOfsets="latest"), "unknown option"),
        (read("ledger_state", table="nothing"), "has no table nothing: its tables are map"),
        (read(rows="table", table="nothing"), "option table is nothing: machine map has map"),
    ):
        said = _said(wrong)
        assert why in said
        assert "Traceback" not in said, said
        assert "File " not in said, said
    with pytest.raises(Exception, match="of somebody else") as caught:  # noqa: PT011
        spark.read.format("foreign").load()
    assert "Traceback" in str(caught.value)


def test_a_sink_that_is_refused_says_so_in_a_sentence(spark: SparkSession, log: WrittenLog) -> None:
    frame = spark.range(1)
    with pytest.raises(Exception, match="option") as caught:  # noqa: PT011
        frame.write.format("ledger").options(log=log.name, metadataUri=log.metadata_uri).mode("append").save()
    assert "Traceback" not in str(caught.value), str(caught.value)
