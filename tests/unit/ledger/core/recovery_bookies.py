"""Bookies for a recovery to be tried on: what each holds, and what it does wrong."""

from __future__ import annotations

import random
from collections import deque

from ledger.core.entry import Answer, Entry, Miss, MissKind
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.core.recovery import CloseLedger, Effect, FailRecovery, FenceRead, Recovery, ReplaceBookie, WriteBack

__all__ = ["ABSENT", "DENIED", "E2", "E3", "UNKNOWN", "Bookies", "entry", "metadata_of", "recover"]

ABSENT = Miss(MissKind.ABSENT, "ENOENTRY")
UNKNOWN = Miss(MissKind.UNKNOWN, "timeout")
DENIED = Miss(MissKind.DENIED, "EUA")


def metadata_of(quorum: QuorumConfig, *segments: Segment) -> LedgerMetadata:
    names = tuple("abcde"[: quorum.ensemble_size])
    return LedgerMetadata(
        quorum=quorum,
        state=LedgerState.IN_RECOVERY,
        segments=segments or (Segment(0, names),),
        digest_type=DigestType.CRC32C,
        password=b"",
    )


def entry(entry_id: int, lac: int = -1) -> Entry:
    return Entry(entry_id, lac, 10 * (entry_id + 1), b"p%d" % entry_id)


class Bookies:
    """What each bookie holds; answers a recovery's effects."""

    def __init__(self, spares: str = "") -> None:
        self.held: dict[str, dict[int, Entry]] = {}
        self.unknown: set[str] = set()
        self.unwritable: set[str] = set()
        self.denied: set[str] = set()
        self.fenced: set[str] = set()
        self.spares = deque(spares)

    def answer(self, bookie: str, entry_id: int) -> Answer:
        if bookie in self.unknown:
            return UNKNOWN
        if bookie in self.denied:
            return DENIED
        self.fenced.add(bookie)
        held = self.held.get(bookie, {})
        if entry_id == -1:
            return held[max(held)] if held else ABSENT
        return held.get(entry_id, ABSENT)

    def carry_out(self, recovery: Recovery, effect: Effect) -> list[Effect]:
        if isinstance(effect, FenceRead):
            return recovery.on_answers(
                [(effect.bookie_id, effect.entry_id, self.answer(effect.bookie_id, effect.entry_id))]
            )
        if isinstance(effect, WriteBack):
            if effect.bookie_id in self.unknown | self.unwritable | self.denied:
                return recovery.on_store_failed(effect.bookie_id, "timeout")
            written = effect.entry
            self.held.setdefault(effect.bookie_id, {})[written.entry_id] = Entry(
                written.entry_id, effect.last_add_confirmed, written.length, written.payload
            )
            return recovery.on_stored(effect.bookie_id, [written.entry_id])
        if isinstance(effect, ReplaceBookie):
            spare = self.spares.popleft() if self.spares else None
            assert spare not in effect.excluded
            return recovery.on_replacement(effect.bookie_id, spare)
        raise AssertionError(effect)

    def run(self, recovery: Recovery, rng: random.Random | None = None) -> CloseLedger | FailRecovery:
        effects = recovery.start()
        while effects:
            effect = effects.pop(rng.randrange(len(effects)) if rng else 0)
            if isinstance(effect, CloseLedger | FailRecovery):
                assert recovery.is_over
                return effect
            effects += self.carry_out(recovery, effect)
            recovery.validate()
        raise AssertionError("neither closed nor failed, and nothing to do")


def recover(bookies: Bookies, metadata: LedgerMetadata) -> CloseLedger | FailRecovery:
    return bookies.run(Recovery(1, metadata))


E3 = metadata_of(QuorumConfig(3, 3, 2))
E2 = metadata_of(QuorumConfig(2, 2, 2))
