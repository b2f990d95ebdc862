"""Environments of Python with packages of others, for their programs: made from a lock once, kept in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_CACHE = Path(
    os.environ.get("RSM_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rsm-spark"
)
_INSTALL_S = 1_500


def foreign_environment(lock: Path) -> Path:
    """Return the folder of programs of an environment with what a lock names; skip the test where it cannot be had."""
    made = _CACHE / f"{lock.stem}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not made.exists():
        found = sorted(_CACHE.glob("uv-*/bin/uv"))
        if not found:
            pytest.skip("no uv in the cache: make setup")
        new = made.with_name(f"{made.name}.new.{os.getpid()}")
        # Under another name until it is whole: its programs find their Python beside them, wherever that is.
        _run([found[-1], "venv", "--quiet", "--no-project", "--relocatable", "--python", "3.11", new])
        locked: list[str | Path] = ["--require-hashes", "--requirements", lock]
        _run([found[-1], "pip", "install", "--quiet", "--python", new / "bin" / "python", *locked])
        try:
            new.rename(made)
        except OSError:  # Somebody else has made it meanwhile.
            shutil.rmtree(new)
    return made / "bin"


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_S)
    if done.returncode != 0:
        pytest.skip(f"packages cannot be installed: {done.stderr[-500:]}")
