"""The notebooks about Spark read real logs, each in a kernel with a Spark session of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from tests.e2e.test_notebooks import executed, runs_as_kept

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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorials_notebook_shows_again_what_it_is_kept_with(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    runs_as_kept("spark", start_cluster(), tmp_path)
