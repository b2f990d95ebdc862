from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from connectors.errors import OptionError
from connectors.spark.arrow import RAW_ARROW, RECORDS_ARROW
from connectors.spark.batch import LedgerBatchReader
from connectors.spark.schema import RAW_DDL, RECORDS_DDL
from connectors.spark.source import LedgerSource
from connectors.spark.stream import LedgerStreamReader


def test_the_columns_for_spark_and_for_arrow_are_the_same() -> None:
    for ddl, schema in ((RAW_DDL, RAW_ARROW), (RECORDS_DDL, RECORDS_ARROW)):
        columns = [f"{field.name} {field.dataType.simpleString()}" for field in from_arrow_schema(schema)]
        assert ", ".join(columns) == ddl


def test_readers_are_made_without_connecting_and_can_be_pickled() -> None:
    from pyspark.cloudpickle import dumps, loads

    source = LedgerSource({"log": "orders", "metadatauri": "zk://127.0.0.1:1/ledgers"})
    assert isinstance(loads(dumps(source.reader(from_arrow_schema(RECORDS_ARROW)))), LedgerBatchReader)
    assert isinstance(loads(dumps(source.streamReader(from_arrow_schema(RECORDS_ARROW)))), LedgerStreamReader)


def test_a_schema_of_the_users_is_refused() -> None:
    with pytest.raises(OptionError, match=r"leave out \.schema"):
        LedgerSource({"log": "orders"}).reader(from_arrow_schema(RAW_ARROW))


def test_being_found_by_name_imports_nothing_that_only_readers_need() -> None:
    script = (
        "import sys, pyspark.sql.datasource, pyspark.sql.types; before = set(sys.modules); import pyspark_ledger;"
        "heavy = ('pyarrow', 'numpy', 'kazoo', 'google.protobuf', 'deltalake');"
        "print(*[name for name in heavy if name in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
