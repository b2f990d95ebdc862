"""The chart as helm renders it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

__all__ = ["CHART", "helm", "rendered", "tools_folder"]

_ROOT = Path(__file__).resolve().parents[2]
CHART = _ROOT / "containers" / "chart"


def helm() -> str:
    """Return the path of helm; skip the test where there is none."""
    found = shutil.which("helm", path=f"{os.environ['PATH']}:{tools_folder()}")
    if found is None:
        pytest.skip("no helm: tools/container_tools.sh builds it")
    return found


def tools_folder() -> Path:
    """Return where tools/container_tools.sh puts what it builds."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = sorted(Path(os.environ.get("RSM_CACHE_DIR") or cache / "rsm-spark").glob("container-tools-????????????"))
    return folders[-1] if folders else Path("/nonexistent")


def rendered(release: str, *words: str) -> list[dict[str, Any]]:
    """Return what the chart makes."""
    # A helm that `go install` built takes an old Kubernetes for given.
    command = [helm(), "template", release, str(CHART), "--kube-version", "1.31.0", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]
