"""Programs of users, run as children: in a folder and an environment that know nothing of this project."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["CHILD_S", "child_environment", "run_child"]

# Wide: Spark's processes start slowly where others have the processors.
CHILD_S = 600
_TRIES = 4
# Spark gives a Python process ten seconds to start, and has no setting for it: on a loaded machine that is too little.
_LATE = "Python worker failed to connect back"
_OURS = ("PYTHONPATH", "PYSPARK_", "SPARK_")


def child_environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without what it says about Spark and Python."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**inherited, "SPARK_LOCAL_IP": "127.0.0.1", **more}


def run_child(command: list[str], folder: Path, **environment: str) -> dict[str, Any]:
    """Run a program that may be run again; return the object in the last line of its standard output."""
    for attempt in range(_TRIES):
        done = subprocess.run(
            command,
            cwd=folder,
            env=child_environment(**environment),
            capture_output=True,
            text=True,
            timeout=CHILD_S,
            check=False,
        )
        said = done.stdout + done.stderr
        if done.returncode == 0:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        if _LATE not in said or attempt == _TRIES - 1:
            break
    raise AssertionError("\n".join(line for line in said.splitlines() if " INFO " not in line and "\tat " not in line))
