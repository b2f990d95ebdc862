"""The broker's commands of the README, on bookies of the test session."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from ledger.dev import DevCluster
from tests.e2e.test_broker_docs import Started

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LINES = re.findall(r"^\.venv/bin/rsm ((?:broker|worker|task) .*?)(?: &)?$", README, re.MULTILINE)


def test_the_task_broker_in_four_commands_works(cluster: DevCluster, tmp_path: Path, unique_name: str) -> None:
    environment = os.environ | {
        "RSM_METADATA_URI": cluster.metadata_uri,
        "RSM_BROKER__LOG": unique_name,
        "RSM_WORKER__LOG": unique_name,
    }
    broker, worker, *calls = (["rsm", *shlex.split(line)] for line in LINES)
    assert [call[1] for call in calls] == ["task", "task"]
    broker[broker.index("dev/b1")] = str(tmp_path / "b1")
    broker[broker.index("7364")] = "0"
    started = [Started(broker, ROOT, environment, errors=tmp_path)]
    try:
        url = f"http://{started[0].ready()['http_address']}"
        started.append(Started(worker, ROOT, environment, errors=tmp_path))
        started[1].ready()
        deadline = time.monotonic() + 60
        printed = ""
        while "finished" not in printed:
            assert time.monotonic() < deadline, printed
            for call in calls if not printed else calls[-1:]:
                done = subprocess.run(
                    [sys.executable, "-m", "rsm_spark", *call[1:], "--url", url],
                    env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
                )  # fmt: skip
                assert done.returncode == 0, done.stderr
                printed = done.stdout
        assert "greet" in printed
    finally:
        for server in reversed(started):
            server.stop()
