"""Limbo: this bookie lost data that it had acknowledged, and remembers so until it is repaired (safety 24).

While in limbo, "not found" means "unknown", and every ledger that may have been concerned counts as fenced:
the lost bytes may have been its fence. Ledgers created later than the loss are served as usual.

Limbo is left when everything that may have been lost is here again (`ledger.replication.limbo_repair`). What cannot be
had again is who was fenced: a writer that was recovered meanwhile may not know it yet, and this bookie may have been
one of the few that refused it. So the ledgers of a limbo take no ordinary add any more, for good.
"""

from __future__ import annotations

import msgspec

from ledger.core.bookie_ledger import NO_LIMBO
from ledger.store.disk import Disk, read_file, write_atomically

__all__ = ["LEDGER_ID_MAX", "Limbo", "load_limbo", "save_limbo"]

_FILE_NAME = "limbo.json"
LEDGER_ID_MAX = (1 << 63) - 1


class Limbo(msgspec.Struct, frozen=True):
    """Why and for which ledgers this bookie cannot tell what it held.

    Attributes:
        ledger_id_max: Ledgers up to this id are concerned; `LEDGER_ID_MAX` until the metadata was asked for the
            newest ledger at the time of the loss; -1 if nothing was ever lost.
        reasons: What was found damaged, for the operator.
        repaired_ledger_id_max: Ledgers up to this id were concerned once and are repaired; -1 if none were.

    """

    ledger_id_max: int = NO_LIMBO
    reasons: tuple[str, ...] = ()
    repaired_ledger_id_max: int = NO_LIMBO

    @property
    def fenced_ledger_id_max(self) -> int:
        """Ledgers up to this id count as fenced, whatever is known of them."""
        return max(self.ledger_id_max, self.repaired_ledger_id_max)

    def with_losses(self, losses: list[str]) -> Limbo:
        """Return the limbo after more losses: again every ledger that exists by now."""
        if not losses:
            return self
        return Limbo(LEDGER_ID_MAX, (*self.reasons, *losses)[-20:], self.repaired_ledger_id_max)

    def bounded(self, ledger_id_max: int) -> Limbo:
        """Return the limbo limited to ledgers up to this id, the newest that existed when the loss was found."""
        return Limbo(ledger_id_max, self.reasons, self.repaired_ledger_id_max)

    def repaired(self) -> Limbo:
        """Return what remains of the limbo when all that was lost is here again."""
        assert self.ledger_id_max < LEDGER_ID_MAX, "a limbo without bound would fence every ledger to come"
        return Limbo(repaired_ledger_id_max=self.fenced_ledger_id_max)


def load_limbo(disk: Disk, folder: str) -> Limbo:
    """Read the limbo state; a file that cannot be read puts every ledger in limbo."""
    path = f"{folder}/{_FILE_NAME}"
    if not disk.exists(path):
        return Limbo()
    try:
        return msgspec.json.decode(bytes(read_file(disk, path)), type=Limbo)
    except msgspec.DecodeError as error:
        return Limbo(LEDGER_ID_MAX, (f"{path} cannot be read: {error}",))


def save_limbo(disk: Disk, folder: str, limbo: Limbo) -> None:
    """Write the limbo state durably."""
    write_atomically(disk, folder, _FILE_NAME, msgspec.json.format(msgspec.json.encode(limbo)) + b"\n")
