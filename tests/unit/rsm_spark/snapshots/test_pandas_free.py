"""Servers write snapshots without pandas."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from rsm_spark.snapshots.pandas_free import leave_pandas_out
leave_pandas_out()
import pyarrow as pa
assert pa.array([b"a", None]).to_pylist() == [b"a", None]
assert "pandas" not in sys.modules
import pandas
assert pandas.Series([1]).sum() == 1
"""


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_pyarrow_does_not_import_pandas_and_others_still_can() -> None:
    subprocess.run([sys.executable, "-P", "-c", _PROGRAM], check=True)
