"""Arithmetic of quorums: the bookies of an entry, and when it counts as stored. No IO, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.errors import UsageError


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Replication of one ledger, fixed at creation.

    Attributes:
        ensemble_size: Bookies that share the ledger (E).
        write_quorum: Bookies that store each entry (Qw).
        ack_quorum: Answers needed before an entry is acknowledged (Qa).

    Invariant: 1 <= ack_quorum <= write_quorum <= ensemble_size.

    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        """Refuse a configuration that breaks the invariant."""
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            msg = (
                f"ensemble {self.ensemble_size}, write quorum {self.write_quorum}, ack quorum "
                f"{self.ack_quorum}: need 1 <= ack quorum <= write quorum <= ensemble"
            )
            raise UsageError(msg)

    @property
    def coverage_count(self) -> int:
        """Answers of one write set that leave no ack quorum untouched: Qw - Qa + 1."""
        return self.write_quorum - self.ack_quorum + 1


def write_set(entry_id: int, quorum: QuorumConfig) -> tuple[int, ...]:
    """Return the ensemble positions that store an entry (round robin).

    Args:
        entry_id: 0-based id of the entry.
        quorum: Replication of the ledger.

    Returns:
        `write_quorum` distinct positions, each in ``range(ensemble_size)``.

    Source: BookKeeper's ``RoundRobinDistributionSchedule``; position 0 of entry *n* is ``n % E``.

    """
    first = entry_id % quorum.ensemble_size
    return tuple((first + i) % quorum.ensemble_size for i in range(quorum.write_quorum))
