"""Settings of auto-recovery."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.core.placement import PlacementPolicy
from ledger.options import MIB, Option


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times and limits of one process.

    Attributes:
        watch_s: How often the bookies are looked at even if nobody told of a change.
        audit_s: Interval of the look for ledgers that name a lost bookie.
        poll_s: How often a worker looks for marks.
        retry_s_min: Pause after a ledger that could not be repaired; it doubles up to the next.
        retry_s_max: Longest such pause.
        ledger_count: Ledgers that one worker repairs at a time.
        window_bytes: Payload bytes under way of one copy.
        metadata_reads: Ledger nodes that are read at a time.
        placement: How the place of a lost bookie is filled.
        tail_grace_s: Time in which an entry of an open ledger comes to a bookie from the writer.
        self_repair_s: How often a bookie looks for damage of its own.

    """

    lost_bookie_delay_s: Annotated[
        int,
        Option(
            "How long a bookie is missing before it counts as lost; used where the cluster has no value "
            "yet (see `rsm autorecovery set-delay`).",
            ge=0,
        ),
    ] = 60
    open_ledger_grace_s: Annotated[
        float,
        Option(
            "For this time the writer of an open ledger may replace a lost bookie itself; then the ledger is closed.",
            ge=0.0,
        ),
    ] = 30.0
    watch_s: float = 10.0
    audit_s: float = 3_600.0
    check_s: Annotated[
        float, Option("Time between two checks of all copies of all ledgers; 0 = no checks.", ge=0.0)
    ] = 86_400.0
    poll_s: float = 5.0
    retry_s_min: float = 1.0
    retry_s_max: float = 300.0
    ledger_count: int = 4
    window_bytes: int = 8 << 20
    copy_bytes_per_s: Annotated[
        int,
        Option(
            "Most MiB that one copy reads and writes in a second; 0 = no limit.", name="copy_mib_per_s", unit=MIB, ge=0
        ),
    ] = 64 << 20
    metadata_reads: int = 32
    placement: PlacementPolicy = "random"
    tail_grace_s: float = 2.0
    self_repair_s: float = 30.0
