"""Coverage of an ensemble: enough bookies have answered for what is to be known of each of its write sets."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence

from ledger.core.quorum import QuorumConfig, write_set


def is_covered(ensemble: Sequence[str], heard: Collection[str], quorum: QuorumConfig) -> bool:
    """Return whether the bookies that were not heard hold an ack quorum in no write set of the ensemble.

    With a write quorum as large as the ensemble these are E - AQ + 1 answers.

    Args:
        ensemble: Bookie ids by position.
        heard: Bookies that gave a valid answer.
        quorum: Replication of the ledger.

    """
    return all(
        sum(ensemble[position] not in heard for position in write_set(entry_id, quorum)) < quorum.ack_quorum
        for entry_id in range(quorum.ensemble_size)
    )


def is_quorum_of_each(positions: int, quorum: QuorumConfig) -> bool:
    """Return whether positions, as bits, are an ack quorum of every write set: then others alone never cover it."""
    return _is_quorum_of_each(positions & (1 << quorum.ensemble_size) - 1, quorum)


@functools.lru_cache(maxsize=4096)  # A reader asks several times a message, of the same few sets.
def _is_quorum_of_each(positions: int, quorum: QuorumConfig) -> bool:
    return all(
        sum(positions >> position & 1 for position in write_set(first, quorum)) >= quorum.ack_quorum
        for first in range(quorum.ensemble_size)
    )
