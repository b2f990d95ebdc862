"""Places in a log."""

from __future__ import annotations

from typing import NamedTuple

NO_REVISION = 0
"""Revision of an empty state: the first record of a log has revision 1."""


class LogPosition(NamedTuple):
    """One entry of a log. Positions are ordered by the log's chain, not by comparing ledger ids."""

    ledger_id: int
    entry_id: int
