"""What one seed's cluster is made of: drawn, so that every feature meets every fault somewhere."""

from __future__ import annotations

import random
from typing import Self

import msgspec

from ledger.client.settings import ClientSettings
from ledger.replication.settings import ReplicationSettings
from ledger.storage.compaction import CompactionSettings
from ledger.storage.settings import StorageSettings
from ledger.testing.cluster import SIM_CLIENT, SIM_STORE

__all__ = ["Setup"]

_BOOKIE_COUNTS = (3, 3, 4, 5)
_REPLICATION = ReplicationSettings(
    lost_bookie_delay_s=2,
    open_ledger_grace_s=3.0,
    watch_s=1.0,
    audit_s=10.0,
    check_s=8.0,
    poll_s=0.5,
    retry_s_max=4.0,
    self_repair_s=3.0,
)
_COMPACTION = CompactionSettings(
    minor_interval_s=1.0,
    major_interval_s=3.0,
    segment_bytes=256 << 10,
    small_bytes=32 << 10,
    small_count=3,
    bytes_per_s=1 << 20,
)


class Setup(msgspec.Struct, frozen=True):
    """The cluster of one seed.

    Attributes:
        bookie_count: How many bookies.
        client: Of all clients but auto-recovery's.
        store: Of the bookies.
        collect_s: How often bookies look for deleted ledgers, and compact; never, if None.
        recovery_count: How many hosts run auto-recovery.
        replication: Of those, and of the bookies' own repair; None if neither is there.
        takes_any_ledger: Bookies do not ask the metadata for ledgers that they do not know.

    """

    bookie_count: int
    client: ClientSettings
    store: StorageSettings
    collect_s: float | None
    recovery_count: int
    replication: ReplicationSettings | None
    takes_any_ledger: bool = False

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """Draw the set-up of one seed."""
        bookie_count = rng.choice(_BOOKIE_COUNTS)
        recovery_count = rng.choice((0, 0, 1, 2))
        client = msgspec.structs.replace(
            SIM_CLIENT,
            protocol=rng.choice(("v2", "v3")),
            speculative_read_s=rng.choice((0.05, 0.5)),
            read_batch_bytes=rng.choice((4 << 10, 16 << 20)),
            quarantine_s=rng.choice((1.0, 30.0)),
            ensemble_change_after_s=rng.choice((None, 0.0, 0.3, 1.0)),
            explicit_lac_interval_s=rng.choice((None, None, 0.2)),
            placement=rng.choice(("random", "random", "free-space", "rack")),
            racks={f"b{number}": f"/rack{number % 2}" for number in range(bookie_count)},
        )
        store = msgspec.structs.replace(
            SIM_STORE,
            more_ledger_dirs=rng.choice(((), ("/more/current",))),
            compaction=rng.choice((SIM_STORE.compaction, _COMPACTION)),
        )
        return cls(
            bookie_count,
            client,
            store,
            collect_s=rng.choice((None, 0.7, 3.0)),
            recovery_count=recovery_count,
            replication=_REPLICATION if recovery_count else None,
        )
