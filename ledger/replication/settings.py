"""What auto-recovery may be told."""

from __future__ import annotations

import msgspec

from ledger.core.placement import PlacementPolicy

__all__ = ["ReplicationSettings"]


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times and limits of one process.

    Attributes:
        lost_bookie_delay_s: How long a bookie is missing before its ledgers are marked; used only where the cluster
            has no such value yet (the node `lostBookieRecoveryDelay`, which BookKeeper's auditor reads too).
        open_ledger_grace_s: How long the writer of an open ledger has to leave a lost bookie by itself, before the
            ledger is recovered and so closed.
        watch_s: How often the bookies are looked at even if nobody told of a change.
        audit_s: Interval of the look for ledgers that name a lost bookie.
        check_s: Interval of the check of all copies of all ledgers; 0 never checks.
        poll_s: How often a worker looks for marks.
        retry_s_min: Pause after a ledger that could not be repaired; it doubles up to the next.
        retry_s_max: Longest such pause.
        ledger_count: Ledgers that one worker repairs at a time.
        window_bytes: Payload bytes under way of one copy.
        copy_bytes_per_s: What one copy may read and write in a second; 0 is without limit.
        metadata_reads: Ledger nodes that are read at a time.
        placement: How the place of a lost bookie is filled.
        self_repair_s: How often a bookie looks for damage of its own.

    """

    lost_bookie_delay_s: int = 60
    open_ledger_grace_s: float = 30.0
    watch_s: float = 10.0
    audit_s: float = 3_600.0
    check_s: float = 86_400.0
    poll_s: float = 5.0
    retry_s_min: float = 1.0
    retry_s_max: float = 300.0
    ledger_count: int = 4
    window_bytes: int = 8 << 20
    copy_bytes_per_s: int = 64 << 20
    metadata_reads: int = 32
    placement: PlacementPolicy = "random"
    self_repair_s: float = 30.0
