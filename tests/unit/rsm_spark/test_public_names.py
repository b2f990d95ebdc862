"""The package's public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rsm_spark


def test_every_public_name_is_there_and_listed() -> None:
    assert sorted(rsm_spark._MODULES) == sorted(rsm_spark.__all__) == dir(rsm_spark)
    for name in rsm_spark.__all__:
        assert getattr(rsm_spark, name) is not None


def test_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        rsm_spark.Nothing  # noqa: B018


@pytest.mark.parametrize("name", ["", "TableMachine", "ServiceClient", "MapClient"])
def test_importing_loads_only_what_is_used(name: str) -> None:
    heavy = "[m for m in ('pyspark', 'pyarrow', 'kazoo', 'deltalake') if m in sys.modules]"
    program = f"import sys, rsm_spark; {f'rsm_spark.{name};' if name else ''} print({heavy})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
