"""Faults around replicas and their rates, drawn per seed; `rsm_spark.testing.nemesis` carries them out.

Swarm testing: each weight is zero in many seeds, so that the others get room.
"""

from __future__ import annotations

import random
from typing import Self

import msgspec

from ledger.testing.metadata import MetadataRates
from rsm_spark.testing.ledger_world import TwinFaults

_ZERO = 0.0

EVENTS = (
    "kill",
    "kill_leader",
    "pause",
    "ambush",
    "cut_metadata",
    "cut_bookies",
    "expire",
    "expire_leader",
    "metadata_down",
    "metadata_move",
    "elect_wrongly",
    "recover_foreign",
    "lose_disk",
    "rot_snapshot",
    "skew",
    "kill_bookie",
    "pause_bookie",
    "cut_bookie",
)
"""The weights among the attributes of `ReplicaFaults`, in the order in which they are drawn from."""


class ReplicaFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of the faults in one seed.

    Attributes:
        interval_s: Mean time between two events.
        heal_s: Longest time until a cut or an outage ends.
        pause_s: Longest time that a stopped process stands still.
        kill: Weight of kill -9 of a replica.
        kill_leader: Weight of kill -9 of the leader.
        pause: Weight of a stopped replica (SIGSTOP), often the leader.
        ambush: Weight of a stop of whichever replica is next found between two steps of a take-over, roll or trim.
        cut_metadata: Weight of a path between a replica and the metadata store that is cut, one way or both.
        cut_bookies: Weight of a replica that reaches no bookie (twin of the ledger only).
        expire: Weight of an expired session of a replica.
        expire_leader: The same of the leader.
        metadata_down: Weight of an outage of the whole metadata store.
        metadata_move: Weight of a replica that is thrown off its metadata server: watches are set anew elsewhere.
        elect_wrongly: Weight of an election that names another one while the first believes in itself.
        recover_foreign: Weight of an auto-recovery that closes a ledger that is being written (twin only).
        lose_disk: Weight of a replica that loses its disk; not before the one before is whole again.
        rot_snapshot: Weight of a row that changes in a replica's newest snapshot; likewise.
        skew: Weight of a wall clock that jumps by up to an hour.
        kill_bookie: Weight of a killed bookie, or one whose power is cut; one at a time (real bookies only).
        pause_bookie: Weight of a stopped bookie (real bookies only).
        cut_bookie: Weight of a cut path between a replica and a bookie (real bookies only).
        metadata: Rates of the metadata store.
        twin: What the twin of the ledger does to its users.

    """

    interval_s: float = 1.2
    heal_s: float = 12.0
    pause_s: float = 12.0
    kill: float = _ZERO
    kill_leader: float = _ZERO
    pause: float = _ZERO
    ambush: float = _ZERO
    cut_metadata: float = _ZERO
    cut_bookies: float = _ZERO
    expire: float = _ZERO
    expire_leader: float = _ZERO
    metadata_down: float = _ZERO
    metadata_move: float = _ZERO
    elect_wrongly: float = _ZERO
    recover_foreign: float = _ZERO
    lose_disk: float = _ZERO
    rot_snapshot: float = _ZERO
    skew: float = _ZERO
    kill_bookie: float = _ZERO
    pause_bookie: float = _ZERO
    cut_bookie: float = _ZERO
    metadata: MetadataRates = MetadataRates(lag_rate=_ZERO)
    twin: TwinFaults = msgspec.field(default_factory=TwinFaults)

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """Draw the rates of one seed: at least one event has a weight."""
        weights = {name: rng.choice((_ZERO, _ZERO, 1.0, 3.0)) for name in EVENTS}
        for name in ("metadata_down", "lose_disk", "rot_snapshot", "skew"):
            weights[name] = rng.choice((_ZERO, _ZERO, 0.5, 1.0))
        weights[rng.choice(("elect_wrongly", "ambush", "kill_leader", "pause"))] = 2.0
        return cls(
            interval_s=rng.choice((0.6, 1.5, 4.0)),
            heal_s=rng.choice((1.0, 4.0, 12.0)),
            pause_s=rng.choice((0.5, 2.0, 2.0, 12.0)),
            **weights,
            metadata=MetadataRates(
                lost_reply_rate=rng.choice((_ZERO, _ZERO, 0.01, 0.05, 0.15)),
                lost_request_rate=rng.choice((_ZERO, _ZERO, 0.03)),
                late_rate=rng.choice((_ZERO, 0.3, 0.8)),
                lost_watch_rate=rng.choice((_ZERO, _ZERO, 0.3, 1.0)),
                lag_rate=rng.choice((_ZERO, 0.2, 0.8)),
                lag_s_max=rng.choice((0.3, 2.0)),
            ),
            twin=TwinFaults(
                add_failure=rng.choice((_ZERO, _ZERO, 0.01, 0.03, 0.1)),
                slow=rng.choice((_ZERO, _ZERO, 0.01, 0.05)),
                create_failure=rng.choice((_ZERO, _ZERO, 0.2)),
                read_failure=rng.choice((_ZERO, _ZERO, 0.05)),
            ),
        )
