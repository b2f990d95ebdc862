"""How one seed's replicas are set up: drawn, so that every feature meets every fault somewhere."""

from __future__ import annotations

import random

from rsm_spark.runtime.settings import ReplicaSettings

__all__ = ["draw_settings"]


def draw_settings(rng: random.Random) -> ReplicaSettings:
    """Draw the settings of one seed."""
    return ReplicaSettings(
        roll_s=rng.choice((2.0, 5.0, 20.0)),
        checkpoint_records=rng.choice((5, 20, 100)),
        snapshot_s=rng.choice((2.0, 10.0, 0.0)),
        snapshot_bytes=rng.choice((0, 2_000)),
        session_ttl_ms=rng.choice((5_000, 3_600_000)),
        entry_commands_max=rng.choice((3, 2000)),
        ensemble_size=rng.choice((2, 3)),
        retention_ms=rng.choice((1_000, 5_000, 48 * 3_600_000)),
        trim_s=rng.choice((0.5, 3.0)),
        verify_s=rng.choice((0.7, 3.0)),
        scrub_s=5.0,
    )
