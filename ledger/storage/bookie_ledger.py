"""State of one ledger on a bookie, and every decision about it. Pure: the caller journals, answers and wakes.

The rules (facts: BookKeeper's answers; safety 22-24):

1. The first add or fence brings a ledger into being and pins its master key; another key changes nothing.
2. A fenced ledger takes recovery adds and explicit LACs, nothing else. Fencing is never undone.
3. A decision and the insertion of its entry into the readable tail are one step: nothing may be awaited
   between `refuse_add` and `take_add`.
4. In limbo (this bookie lost data once) every ledger that may have been concerned counts as fenced, and what
   is not found is unknown.
"""

from __future__ import annotations

from hmac import compare_digest

from ledger.core.metadata import NO_ENTRY
from ledger.wire.codes import FenceState, Status

NO_LIMBO = -1
"""`limbo_ledger_id_max` of a bookie that never lost anything."""


class BookieLedger:
    """One ledger in the memory of a bookie.

    Attributes:
        ledger_id: Its id.
        master_key: Pinned; empty only if its record was lost, then any key but an empty one is refused.
        is_fenced: No ordinary add any more.
        is_fence_durable: The fence is on disk; before that nobody may be told of it.
        is_deleted: The collector deleted it; a stale writer must not bring it back.
        last_entry_id: Highest entry taken, or `NO_ENTRY`.
        last_add_confirmed: Highest LAC that an entry's header or an explicit LAC named.
        explicit_lac: Sealed body of the highest explicit LAC, or empty.
        explicit_lac_id: The LAC in it, or `NO_ENTRY`.
        generation: Sequence number of the journal file that last took anything about it.
        tail: Entries in that journal file: entry id -> place. Owned by the store.
        floor_entry_id: Highest entry that may be held outside of `tail`, or `NO_ENTRY`. Owned by the store.
        waiters: Long polls; owned by the server.

    Invariants: `last_add_confirmed` and `explicit_lac_id` never go back; `is_fence_durable` only if fenced.

    """

    __slots__ = (
        "explicit_lac",
        "explicit_lac_id",
        "floor_entry_id",
        "generation",
        "is_deleted",
        "is_fence_durable",
        "is_fenced",
        "last_add_confirmed",
        "last_entry_id",
        "ledger_id",
        "master_key",
        "tail",
        "waiters",
    )

    def __init__(
        self,
        ledger_id: int,
        master_key: bytes,
        *,
        is_fenced: bool = False,
        is_deleted: bool = False,
        last_entry_id: int = NO_ENTRY,
        last_add_confirmed: int = NO_ENTRY,
        explicit_lac: bytes = b"",
    ) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.is_fenced = is_fenced
        self.is_fence_durable = is_fenced
        self.is_deleted = is_deleted
        self.last_entry_id = last_entry_id
        self.explicit_lac = explicit_lac
        self.explicit_lac_id = int.from_bytes(explicit_lac[8:16], "big", signed=True) if explicit_lac else NO_ENTRY
        self.last_add_confirmed = max(last_add_confirmed, self.explicit_lac_id)
        self.generation = NO_ENTRY
        self.floor_entry_id = last_entry_id
        self.tail: dict[int, int] = {}
        self.waiters: list[object] = []

    def has_key(self, master_key: bytes | None) -> bool:
        """Return whether this is the ledger's master key.

        If the record of the key was lost to damage (empty key) any will do: the ledger is in limbo and so fenced,
        and a refusal would be a lie that keeps everybody from recovering it.
        """
        if not self.master_key:
            return master_key is not None
        return master_key is not None and compare_digest(self.master_key, master_key)

    def refuse_add(self, master_key: bytes, *, is_recovery: bool) -> Status | None:
        """Return why an add must not be taken, or None if it may; changes nothing."""
        if not self.has_key(master_key):
            return Status.EUA
        if self.is_deleted or (self.is_fenced and not is_recovery):
            return Status.EFENCED
        return None

    def take_add(self, entry_id: int, last_add_confirmed: int) -> bool:
        """Note an entry that goes to journal and tail now; return whether the LAC moved."""
        self.last_entry_id = max(self.last_entry_id, entry_id)
        if last_add_confirmed <= self.last_add_confirmed:
            return False
        self.last_add_confirmed = last_add_confirmed
        return True

    def refuse_fence(self, master_key: bytes | None) -> Status | None:
        """Return why a fence must not be taken, or None; a fence without key is refused too."""
        return None if self.has_key(master_key) else Status.EUA

    def take_fence(self) -> bool:
        """Fence; return whether it is news, so that it must be journalled before anybody hears of it."""
        is_news = not self.is_fenced
        self.is_fenced = True
        return is_news

    def tell_fence(self, master_key: bytes, limbo_ledger_id_max: int) -> tuple[Status, FenceState]:
        """Return whether the ledger is fenced, as far as this bookie can know.

        A fence counts from when it is taken. OPEN is a promise about the past: nobody who fenced here was answered.
        In limbo the fence may be what was lost.
        """
        if self.is_deleted or is_in_limbo(self.ledger_id, limbo_ledger_id_max):
            return missing_ledger_status(self.ledger_id, limbo_ledger_id_max), FenceState.UNKNOWN
        if not self.has_key(master_key):
            return Status.EUA, FenceState.UNKNOWN
        return Status.EOK, FenceState.FENCED if self.is_fenced else FenceState.OPEN

    def take_explicit_lac(self, last_add_confirmed: int, body: bytes) -> bool:
        """Keep an explicit LAC if it is higher than the one held; return whether it moved."""
        if last_add_confirmed <= self.explicit_lac_id:
            return False
        self.explicit_lac = body
        self.explicit_lac_id = last_add_confirmed
        self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)
        return True

    def validate(self) -> None:
        assert self.is_fenced or not self.is_fence_durable
        assert self.explicit_lac_id <= self.last_add_confirmed


def is_in_limbo(ledger_id: int, limbo_ledger_id_max: int) -> bool:
    """Return whether this bookie may have held, and lost, a part of the ledger."""
    return 0 <= ledger_id <= limbo_ledger_id_max


def missing_ledger_status(ledger_id: int, limbo_ledger_id_max: int) -> Status:
    """Return the answer to a read of a ledger of which nothing is held."""
    return Status.EUNKNOWNLEDGERSTATE if is_in_limbo(ledger_id, limbo_ledger_id_max) else Status.ENOLEDGER


def missing_entry_status(ledger_id: int, limbo_ledger_id_max: int) -> Status:
    """Return the answer to a read of an entry that is not held, of a ledger that is."""
    return Status.EUNKNOWNLEDGERSTATE if is_in_limbo(ledger_id, limbo_ledger_id_max) else Status.ENOENTRY
