"""Faults and their rates, drawn per seed; `ledger.testing.nemesis` carries them out.

Swarm testing: each rate is zero in many seeds. A defect that needs ten quiet seconds between two crashes is never
found where everything fails all the time, and one that needs two faults at once is never found where each is rare.
"""

from __future__ import annotations

import random
from typing import Self

import msgspec

from ledger.testing.metadata import MetadataRates
from ledger.testing.network import NetworkRates

_ZERO = 0.0

EVENTS = (
    "kill",
    "power",
    "power_all",
    "cut",
    "pause",
    "slow_disk",
    "full_disk",
    "reset",
    "expire",
    "metadata_move",
    "metadata_down",
    "kill_other",
    "skew",
    "rot",
    "misdirect",
    "wipe",
    "truncate",
    "delete",
    "zero",
    "roll_back",
    "index",
    "spoil",
)
"""The weights among the attributes of `Faults`, in the order in which they are drawn from."""
DAMAGES = EVENTS[EVENTS.index("rot") :]
"""Faults by which a disk may lose bytes that it had synced."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of the faults in one seed.

    Attributes:
        interval_s: Mean time between two events.
        heal_s: Mean time until a cut path, a pause or a full disk ends.
        restart_s: Longest time that a host stays down.
        kill: Weight of kill -9 of a server among the events.
        power: Weight of a power loss of a server: writes tear.
        power_all: Weight of a power loss of all servers at once.
        cut: Weight of a cut path, one way or both, between two hosts or around one.
        pause: Weight of a stopped process (SIGSTOP).
        slow_disk: Weight of a disk that becomes slow, or fast again.
        full_disk: Weight of a disk that has hardly any room left for a while.
        reset: Weight of the reset of the connections between two hosts.
        expire: Weight of an expired metadata session.
        metadata_move: Weight of sessions that are thrown off their metadata server.
        metadata_down: Weight of an outage of the whole metadata store.
        kill_other: Weight of kill -9 of a host that is no server.
        skew: Weight of a wall clock that jumps by up to an hour.
        rot: Weight of a flipped bit in a file of one server, drawn per seed: the only one whose
            disk is damaged; never in the last batch before a crash, which nobody can tell from a torn tail.
        misdirect: Weight of a write to that disk that lay elsewhere all the time, with the same exception.
        wipe: Weight of that disk's loss; the host starts on an empty one.
        truncate: Weight of a journal file on that disk that is cut short.
        delete: Weight of a journal file or a segment on that disk that is gone.
        zero: Weight of a journal file on that disk that is zeroed from a place on.
        roll_back: Weight of that disk's becoming an older copy of itself.
        index: Weight of an index on that disk that loses a row, or changes one.
        spoil: Weight of a place in a file on that disk that cannot be read any more.
        sync_error_rate: Share of disk syncs that fail.
        write_error_rate: Share of disk writes that find no space.
        read_error_rate: Share of reads from that disk that fail: at a start a bookie takes that for a loss.
        metadata: Rates of the metadata store.
        network: Rates of the network.

    """

    interval_s: float = 1.0
    heal_s: float = 2.0
    restart_s: float = 3.0
    kill: float = _ZERO
    power: float = _ZERO
    power_all: float = _ZERO
    cut: float = _ZERO
    pause: float = _ZERO
    slow_disk: float = _ZERO
    full_disk: float = _ZERO
    reset: float = _ZERO
    expire: float = _ZERO
    metadata_move: float = _ZERO
    metadata_down: float = _ZERO
    kill_other: float = _ZERO
    skew: float = _ZERO
    rot: float = _ZERO
    misdirect: float = _ZERO
    wipe: float = _ZERO
    truncate: float = _ZERO
    delete: float = _ZERO
    zero: float = _ZERO
    roll_back: float = _ZERO
    index: float = _ZERO
    spoil: float = _ZERO
    sync_error_rate: float = _ZERO
    write_error_rate: float = _ZERO
    read_error_rate: float = _ZERO
    metadata: MetadataRates = MetadataRates(lag_rate=_ZERO)
    network: NetworkRates = NetworkRates()

    @property
    def is_damaging(self) -> bool:
        """True if a disk may lose bytes that it had synced."""
        return self.read_error_rate > 0 or any(getattr(self, name) > 0 for name in DAMAGES)

    def with_damages(self, rng: random.Random) -> Self:
        """Draw further damages of one disk: where servers are bookies."""
        weight = (_ZERO, _ZERO, _ZERO, _ZERO, 1.0, 3.0)
        return msgspec.structs.replace(
            self,
            truncate=rng.choice(weight),
            delete=rng.choice(weight),
            zero=rng.choice(weight),
            roll_back=rng.choice(weight),
            index=rng.choice(weight),
            spoil=rng.choice(weight),
        )

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """Draw the rates of one seed."""
        weight = (_ZERO, _ZERO, 1.0, 3.0)
        seldom = (_ZERO, _ZERO, _ZERO, 1.0)
        return cls(
            interval_s=rng.choice((0.25, 0.8, 2.5)),
            heal_s=rng.choice((0.5, 2.0, 8.0)),
            restart_s=rng.choice((0.5, 4.0)),
            kill=rng.choice(weight),
            power=rng.choice(weight),
            power_all=rng.choice((_ZERO, _ZERO, 0.5, 1.0)),
            cut=rng.choice(weight) + 0.1,
            pause=rng.choice((_ZERO, _ZERO, 1.0)),
            slow_disk=rng.choice((_ZERO, _ZERO, 1.0)),
            full_disk=rng.choice(seldom),
            reset=rng.choice((_ZERO, 1.0)),
            expire=rng.choice((_ZERO, _ZERO, 1.0)),
            metadata_move=rng.choice((_ZERO, _ZERO, 1.0)),
            metadata_down=rng.choice((_ZERO, _ZERO, 0.3)),
            kill_other=rng.choice(weight),
            skew=rng.choice(seldom),
            rot=rng.choice((_ZERO, _ZERO, 1.0, 3.0)),
            misdirect=rng.choice(seldom),
            wipe=rng.choice(seldom),
            sync_error_rate=rng.choice((_ZERO, _ZERO, _ZERO, 0.002, 0.02)),
            write_error_rate=rng.choice((_ZERO, _ZERO, _ZERO, _ZERO, 0.005)),
            read_error_rate=rng.choice((_ZERO, _ZERO, _ZERO, 0.002, 0.02)),
            metadata=_draw_metadata(rng),
            network=_draw_network(rng),
        )


def _draw_metadata(rng: random.Random) -> MetadataRates:
    return MetadataRates(
        lost_reply_rate=rng.choice((_ZERO, _ZERO, 0.02, 0.08)),
        lost_request_rate=rng.choice((_ZERO, _ZERO, 0.02)),
        lost_watch_rate=rng.choice((_ZERO, _ZERO, 0.3, 1.0)),
        lag_rate=rng.choice((_ZERO, 0.2, 0.8)),
    )


def _draw_network(rng: random.Random) -> NetworkRates:
    return NetworkRates(
        latency_s_max=rng.choice((0.002, 0.002, 0.05)),
        slow_rate=rng.choice((_ZERO, _ZERO, 0.01)),
        loss_rate=rng.choice((_ZERO, _ZERO, 0.02, 0.2)),
        fragment_rate=rng.choice((_ZERO, 0.1, 0.5)),
        reset_rate=rng.choice((_ZERO, _ZERO, _ZERO, 0.002, 0.03)),
    )
