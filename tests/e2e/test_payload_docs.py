"""What docs/payloads.md shows runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ledger.dev import DevCluster
from tests.integration.store_processes import stores

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "payloads.md").read_text()
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)


def test_the_program_of_the_page_reads_what_an_onlooker_cannot(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    subprocess.run(["/bin/sh", "-ec", COMMANDS], cwd=tmp_path, check=True)
    environment = os.environ | {"RSM_METADATA_URI": cluster.metadata_uri, "PYTHONPATH": str(ROOT)}
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a")
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.replace('"orders"', f'"{unique_name}"')],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["b'card 4711'", "False", "True", "b'card 4711'", "b'paid'"]
