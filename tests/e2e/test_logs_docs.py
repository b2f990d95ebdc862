"""What docs/logs.md shows runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ledger.dev import DevCluster

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "logs.md").read_text()
*PROGRAMS, SPARK = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)


def _run(command: list[str], cluster: DevCluster, name: str, folder: Path) -> str:
    """Run a block of the page, with names of its own."""
    environment = os.environ | {
        "RSM_METADATA_URI": cluster.metadata_uri,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    text = command[-1].replace('"clicks"', f'"{name}"').replace("visits", f"vis-{name}").replace("sales", f"s-{name}")
    text = text.replace('"orders"', f'"o-{name}"')
    done = subprocess.run(
        [*command[:-1], text], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_programs_of_the_page_run_and_spark_reads_what_they_appended(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    printed = [_run([sys.executable, "-c", program], cluster, unique_name, tmp_path) for program in PROGRAMS]
    assert len(printed[0].splitlines()) == 1001
    assert "b'ann' b'page=/'" in printed[0]
    shown = _run([sys.executable, "-c", SPARK], cluster, unique_name, tmp_path)
    heads, *rows = [line.split("|")[1:-1] for line in shown.splitlines() if line.startswith("|")]
    assert [head.strip() for head in heads] == ["position", "key", "txid", "payload", "_logged_at"]
    assert len(rows) == 20


def test_the_commands_of_the_page_do_what_they_say(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    printed = _run(["/bin/sh", "-ec", COMMANDS], cluster, unique_name, tmp_path)
    assert "2 records appended, the last position is 5" in printed
    assert "4 txid=7 page=/\n5 txid=7 page=/about\n" in printed
    assert "readers begin behind position 4" in printed
    assert printed.rstrip().splitlines()[-1].startswith(f"vis-{unique_name}: ")
