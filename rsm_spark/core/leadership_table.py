"""The phases of a leadership and which event leads from one to which other, as a table.

FOLLOW    does not lead                              ElectionWon -> CLAIM
CLAIM     raises the chain's epoch                   done -> RECOVER
RECOVER   closes the last ledger, replays the log    done -> CREATE
CREATE    needs a new ledger                         done -> CHAIN
CHAIN     puts it into the chain                     done -> SENT (the batch again) | LEAD
LEAD      may propose                                BatchComposed -> SENT, RollDue -> CLOSE,
                                                     TrimDue, LedgersDeleted, DetachDue,
                                                     FormatRaiseDue, KeyAdoptDue -> AMEND
AMEND     writes the chain, its ledgers that are
          written and read stay as they are          done -> LEAD
SENT      one entry is on its way                    confirmed -> LEAD, failed -> CLOSE
CLOSE     learns the end of its own ledger           done -> CREATE

any       deposed, session lost or resigned -> FOLLOW
"""

from __future__ import annotations

from enum import StrEnum

from rsm_spark.core.leadership_events import (
    AddFailed,
    BatchComposed,
    ChainRead,
    ChainWriteFailed,
    ChainWritten,
    DetachDue,
    ElectionWon,
    EntryConfirmed,
    Event,
    FormatRaiseDue,
    KeyAdoptDue,
    LedgerCreated,
    LedgerEndLearned,
    LedgerGone,
    LedgerRecovered,
    LedgersDeleted,
    Replayed,
    Resigned,
    RollDue,
    TrimDue,
)


class Phase(StrEnum):
    """Phase of a leadership; see the module."""

    FOLLOW = "follow"
    CLAIM = "claim"
    RECOVER = "recover"
    CREATE = "create"
    CHAIN = "chain"
    LEAD = "lead"
    SENT = "sent"
    CLOSE = "close"
    AMEND = "amend"


TRANSITIONS: dict[Phase, dict[type[Event], frozenset[Phase]]] = {
    Phase.FOLLOW: {ElectionWon: frozenset({Phase.CLAIM})},
    Phase.CLAIM: {
        ChainRead: frozenset({Phase.CLAIM, Phase.RECOVER, Phase.FOLLOW}),
        ChainWritten: frozenset({Phase.RECOVER}),
        ChainWriteFailed: frozenset({Phase.CLAIM}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
    Phase.RECOVER: {
        LedgerRecovered: frozenset({Phase.RECOVER}),
        LedgerGone: frozenset({Phase.RECOVER}),
        ChainRead: frozenset({Phase.FOLLOW}),
        Replayed: frozenset({Phase.CREATE}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
    Phase.CREATE: {
        LedgerCreated: frozenset({Phase.CHAIN}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
    Phase.CHAIN: {
        ChainRead: frozenset({Phase.CHAIN, Phase.LEAD, Phase.SENT, Phase.FOLLOW}),
        ChainWritten: frozenset({Phase.LEAD, Phase.SENT}),
        ChainWriteFailed: frozenset({Phase.CHAIN}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
    Phase.LEAD: {
        BatchComposed: frozenset({Phase.SENT}),
        RollDue: frozenset({Phase.CLOSE}),
        TrimDue: frozenset({Phase.AMEND}),
        LedgersDeleted: frozenset({Phase.AMEND, Phase.LEAD}),
        DetachDue: frozenset({Phase.AMEND, Phase.LEAD}),
        FormatRaiseDue: frozenset({Phase.AMEND, Phase.LEAD}),
        KeyAdoptDue: frozenset({Phase.AMEND, Phase.LEAD}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
    Phase.SENT: {
        EntryConfirmed: frozenset({Phase.LEAD}),
        AddFailed: frozenset({Phase.CLOSE}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
    Phase.CLOSE: {
        LedgerEndLearned: frozenset({Phase.CREATE, Phase.FOLLOW}),
        LedgerGone: frozenset({Phase.CLOSE}),
        ChainRead: frozenset({Phase.FOLLOW}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
    Phase.AMEND: {
        ChainRead: frozenset({Phase.AMEND, Phase.LEAD, Phase.FOLLOW}),
        ChainWritten: frozenset({Phase.LEAD}),
        ChainWriteFailed: frozenset({Phase.AMEND}),
        Resigned: frozenset({Phase.FOLLOW}),
    },
}
"""Legal events per phase and where they may lead. Any other event is the shell's mistake."""
