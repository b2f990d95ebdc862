from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from connectors.errors import OptionError
from connectors.source.arrow import arrow_schema
from connectors.source.batch import LedgerBatchReader
from connectors.source.schema import RAW_COLUMNS, RECORD_COLUMNS, ddl_of
from connectors.source.source import LedgerSource
from connectors.source.stream import LedgerStreamReader


def test_the_columns_for_spark_and_for_arrow_are_the_same() -> None:
    for columns in (RAW_COLUMNS, RECORD_COLUMNS):
        found = [f"{field.name} {field.dataType.simpleString()}" for field in from_arrow_schema(arrow_schema(columns))]
        assert ", ".join(found) == ddl_of(columns)


def test_readers_are_made_without_connecting_and_can_be_pickled() -> None:
    from pyspark.cloudpickle import dumps, loads

    source = LedgerSource({"log": "orders", "metadatauri": "zk://127.0.0.1:1/ledgers"})
    schema = from_arrow_schema(arrow_schema(RECORD_COLUMNS))
    assert isinstance(loads(dumps(source.reader(schema))), LedgerBatchReader)
    assert isinstance(loads(dumps(source.streamReader(schema))), LedgerStreamReader)


def test_a_schema_of_the_users_is_refused() -> None:
    with pytest.raises(OptionError, match=r"leave out \.schema"):
        LedgerSource({"log": "orders"}).reader(from_arrow_schema(arrow_schema(RAW_COLUMNS)))


def test_being_found_by_name_imports_nothing_that_only_readers_need() -> None:
    script = (
        "import sys, pyspark.sql.datasource, pyspark.sql.types; before = set(sys.modules); import pyspark_ledger;"
        "heavy = ('pyarrow', 'numpy', 'kazoo', 'google.protobuf', 'deltalake');"
        "print(*[name for name in heavy if name in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
