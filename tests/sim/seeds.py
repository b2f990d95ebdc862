"""Which seeds a run takes: the first from the commit, so that each commit tries others; how many is the caller's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["first_seed", "seed_count"]


def seed_count(default: int) -> int:
    """Number of seeds: `make sim SEEDS=n` sets RSM_SIM_SEEDS."""
    return int(os.environ.get("RSM_SIM_SEEDS", default))


def first_seed() -> int:
    """RSM_SIM_FIRST_SEED replays one that failed; otherwise the commit decides, or 0 outside of a repository."""
    given = os.environ.get("RSM_SIM_FIRST_SEED")
    if given:
        return int(given)
    call = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(call, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return int(done.stdout[:7], 16) * 1_000 if done.returncode == 0 else 0
