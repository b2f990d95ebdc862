"""Older releases of the project, as git has them."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

__all__ = ["BEFORE_KEYS", "older_release"]

_ROOT = Path(__file__).parents[2]
BEFORE_KEYS = "528af58"
"""The last commit whose logs have format level 1, and whose bookies have no landmarks."""


def older_release(commit: str, folder: Path) -> Path:
    """Put a release into a folder; a test is skipped where the project has no history."""
    got = subprocess.run(["git", "archive", commit], cwd=_ROOT, capture_output=True, check=False)
    if got.returncode:
        pytest.skip(f"this copy of the project has no history: git archive {commit}: {got.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(got.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
