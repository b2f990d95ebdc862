"""The notebook about the source reads a real log, in a kernel with a Spark session of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_notebooks import executed

_CHECK = """
import json

print(json.dumps({
    "records": int(records.count()),
    "folds": {f"{row.table_name} {row.fold}": int(row["count"]) for _, row in folds.iterrows() if row.table_name},
    "upserts": changes.where("_fold = 'upsert'").count(),
    "deletes": changes.where("_fold = 'delete'").count(),
}))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_source_notebook_reads_a_log_in_three_ways(log: Any, tmp_path: Path) -> None:
    log.fill(30)
    log.delete(b"key-3", b"key-4")
    log.roll()
    log.fill(2)
    variables = {"RSM_LOG": log.name, "RSM_METADATA_URI": log.metadata_uri}
    _, told = executed("ledger_source.ipynb", tmp_path, variables, _CHECK)
    assert told == {
        "records": log.revision,
        "folds": {"map upsert": 320, "map delete": 2},
        "upserts": 320,
        "deletes": 2,
    }
