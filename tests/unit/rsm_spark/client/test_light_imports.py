"""What a client, and a command that is one, loads: nothing of a replica at work, of which it would use nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_SHOW = "import json, sys; import {}; print(json.dumps(sorted(sys.modules)))"
_AT_WORK = (
    "rsm_spark.runtime.replica",
    "rsm_spark.runtime.leading",
    "ledger.client.write_handle",
    "ledger.bookie",
    "lmdb",
)
_HEAVY = ("pandas", "numpy", "pyarrow", "pyspark", "pydantic", "rich")


@pytest.mark.parametrize("module", ["rsm_spark.map", "rsm_spark.client.service_client", "rsm_spark.map.cli.map"])
def test_a_client_loads_nothing_of_a_replica_at_work(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", _SHOW.format(module)], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert module in loaded
    assert [name for name in loaded if name.startswith(_AT_WORK) or name.split(".")[0] in _HEAVY] == []
