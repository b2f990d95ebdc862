"""Effects that `ledger.core.writer` asks its shell to carry out."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ledger.errors import LedgerError


class SendEntries(msgspec.Struct, frozen=True):
    """Seal the payloads and send each to its write set.

    Attributes:
        first_entry_id: Id of the first; the others follow.
        last_add_confirmed: To go into every header.
        lengths: Cumulative payload bytes, one per entry.

    """

    first_entry_id: int
    last_add_confirmed: int
    lengths: list[int]


class ResendEntries(msgspec.Struct, frozen=True):
    """Send these entries to this position again, with the bytes that were sealed before.

    Confirmed entries among them whose bytes have been let go are left out; the pending ones never are.
    """

    position: int
    entry_ids: list[int]


class ConfirmEntries(msgspec.Struct, frozen=True, gc=False):
    """Acknowledge all entries up to this one (inclusive)."""

    last_entry_id: int


class FailPending(msgspec.Struct, frozen=True):
    """Fail every pending append: the writer is frozen."""

    error: LedgerError


class ChangeEnsemble(msgspec.Struct, frozen=True):
    """Replace the bookies at `positions_to_change`; end it with `on_ensemble_changed` or `on_no_spare`."""


class UseEnsemble(msgspec.Struct, frozen=True):
    """The metadata hold this ensemble: forget the bookies that were at these positions, send to the new ones."""

    bookies: tuple[str, ...]
    positions: tuple[int, ...]


Effect: TypeAlias = SendEntries | ResendEntries | ConfirmEntries | FailPending | ChangeEnsemble | UseEnsemble
