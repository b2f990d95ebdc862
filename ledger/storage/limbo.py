"""Limbo: this bookie lost data that it had acknowledged, and remembers so until it is repaired (safety 24).

While in limbo, "not found" means "unknown", and every ledger that may have been concerned counts as fenced:
the lost bytes may have been its fence. Ledgers created later than the loss are served as usual.

Limbo is left when everything that may have been lost is here again (`ledger.replication.limbo_repair`). What cannot be
had again is who was fenced: a writer that was recovered meanwhile may not know it yet, and this bookie may have been
one of the few that refused it. So the ledgers that existed then take no ordinary add any more, for good.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from ledger.decoding import json_decoder
from ledger.storage.bookie_ledger import NO_LIMBO
from ledger.storage.disk import Disk, read_file, write_atomically
from ledger.storage.unreadable import is_unreadable

_FILE_NAME = "limbo.json"
LEDGER_ID_MAX = (1 << 63) - 1
_GAP_MAX = 1 << 16


class Limbo(msgspec.Struct, frozen=True):
    """Ledgers of which this bookie cannot tell what it held, and the reasons.

    Attributes:
        ledger_id_max: Ledgers up to this id are concerned; `LEDGER_ID_MAX` until the metadata was asked for the
            newest ledger at the time of the loss; -1 if nothing was ever lost.
        reasons: What was found damaged, for the operator.
        fenced: Ranges of ledger ids, both ends included, ascending: ledgers of a limbo that was left.

    """

    ledger_id_max: int = NO_LIMBO
    reasons: tuple[str, ...] = ()
    fenced: tuple[tuple[int, int], ...] = ()

    def is_fencing(self, ledger_id: int) -> bool:
        """Return whether a ledger counts as fenced here, whatever else is known of it."""
        if ledger_id <= self.ledger_id_max:
            return True
        number = bisect_right(self.fenced, (ledger_id, LEDGER_ID_MAX))
        return number > 0 and self.fenced[number - 1][1] >= ledger_id

    def with_losses(self, losses: list[str]) -> Limbo:
        """Return the limbo after more losses: again every ledger that exists by now."""
        if not losses:
            return self
        return Limbo(LEDGER_ID_MAX, (*self.reasons, *losses)[-20:], self.fenced)

    def bounded(self, ledger_id_max: int) -> Limbo:
        """Return the limbo limited to ledgers up to this id, the newest that existed when the loss was found."""
        return Limbo(ledger_id_max, self.reasons, self.fenced)

    def repaired(self, ledger_ids: Sequence[int]) -> Limbo:
        """Return what remains of the limbo when all that was lost is here again.

        Args:
            ledger_ids: The ledgers that exist by now, ascending: those that the limbo concerned are among them.

        """
        return Limbo(fenced=_merged([*self.fenced, *id_ranges(ledger_ids)]))


def id_ranges(ledger_ids: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return ranges that cover ids. Small gaps are covered too: the ids in them have been given out before."""
    return _merged([(ledger_id, ledger_id) for ledger_id in ledger_ids])


def _merged(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first - merged[-1][1] <= _GAP_MAX:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def load_limbo(disk: Disk, folder: str) -> Limbo:
    """Read the limbo state; a file that cannot be read puts every ledger in limbo."""
    path = f"{folder}/{_FILE_NAME}"
    if not disk.exists(path):
        return Limbo()
    try:
        return json_decoder(Limbo).decode(bytes(read_file(disk, path)))
    except (msgspec.DecodeError, OSError) as error:
        if isinstance(error, OSError) and not is_unreadable(error):
            raise
        return Limbo(LEDGER_ID_MAX, (f"{path} cannot be read: {error}",))


def save_limbo(disk: Disk, folder: str, limbo: Limbo) -> None:
    """Write the limbo state durably."""
    write_atomically(disk, folder, _FILE_NAME, msgspec.json.format(msgspec.json.encode(limbo)) + b"\n")
