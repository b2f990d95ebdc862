"""What docs/spark-applications.md shows runs as it stands there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.log.key_file import new_key, write_key_file
from tests.integration.broker_processes import brokers
from tests.integration.worker_processes import started

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

_TEXT = (Path(__file__).parents[2] / "docs" / "spark-applications.md").read_text()
_PROGRAM = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)[0]
_WORKER, *_COMMANDS = (shlex.split(line) for line in re.findall(r"```sh\n(.*?)```", _TEXT, re.DOTALL)[0].splitlines())


def test_the_program_of_the_page_is_deployed_submitted_and_waited_for(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    (tmp_path / "count_days.py").write_text(_PROGRAM)
    # Policies that name types need a log of a level that one with a key has.
    key = tmp_path / "log.key"
    write_key_file(key, [new_key()], replace=False)
    assert _WORKER[:3] == ["rsm", "worker", "run"]
    with (
        brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2", "--log-key", str(key))) as (process,),
        started(tmp_path, "documented", *_WORKER[3:], *found) as worker,
    ):
        worker._read_ready()
        for command in _COMMANDS:
            rsm = [sys.executable, "-m", "rsm_spark", *command[1:], "--url", process.url]
            done = subprocess.run(rsm, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
            assert done.returncode == 0, done.stderr + worker.errors()
    assert json.loads(done.stdout)["output"] == "7 days\n"
