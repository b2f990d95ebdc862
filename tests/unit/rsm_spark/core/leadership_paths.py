"""Where a leadership may stand, and the events that lead there."""

from __future__ import annotations

from rsm_spark.core.batching import Batch
from rsm_spark.core.chain import (
    ChainLedger,
    Leadership,
    LogChain,
    encode_chain,
)
from rsm_spark.core.envelope import Envelope
from rsm_spark.core.leadership import LeaderProtocol
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
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import StateTip

ME = Leadership("one", "11" * 16)
LOG_ID = "ab" * 16
TIP = StateTip(10, b"\x01" * 32, 3, 1000)
OPEN_LEDGER = ChainLedger(7, 5, 3, 4)
CHAIN = LogChain(LOG_ID, 7, 3, Leadership("two", "22" * 16), (OPEN_LEDGER,))
BATCH = Batch(b"payload", b"\x02" * 32, Envelope(b"", 4, 11, 10, 1100, 2, TIP.prefix_hash), (), ())

EVENTS: dict[type, Event] = {
    type(event): event
    for event in (
        ElectionWon(), ChainRead(encode_chain(CHAIN), 5), ChainWritten(6), ChainWriteFailed(),
        LedgerRecovered(7, 3, 99), LedgerGone(7), Replayed(TIP, LogPosition(7, 3)), LedgerCreated(8, 6),
        BatchComposed(BATCH), RollDue(), EntryConfirmed(0), AddFailed(), LedgerEndLearned(-1, 0), Resigned("lost"),
        TrimDue((7,)), LedgersDeleted((7,)), FormatRaiseDue(2), DetachDue(()),
    )
}  # fmt: skip


def at(*events: Event) -> LeaderProtocol:
    """Return a leadership to which this has happened."""
    protocol = LeaderProtocol(ME, "log", TIP, None, format_level=2)
    for event in events:
        protocol.handle(event)
        protocol.validate()
    return protocol


CLAIMED = (ElectionWon(), ChainRead(encode_chain(CHAIN), 5), ChainWritten(6))
REPLAYED = (*CLAIMED, LedgerRecovered(7, 3, 99), Replayed(TIP, LogPosition(7, 3)))
CHAINED = (*REPLAYED, LedgerCreated(8, 6), ChainWritten(7))
STARTED = (*CHAINED, BatchComposed(BATCH), EntryConfirmed(0))
SENT = (*STARTED, BatchComposed(BATCH))
PATHS: dict[Phase, tuple[Event, ...]] = {
    Phase.FOLLOW: (),
    Phase.CLAIM: CLAIMED[:2],
    Phase.RECOVER: CLAIMED,
    Phase.CREATE: REPLAYED,
    Phase.CHAIN: CHAINED[:-1],
    Phase.LEAD: STARTED,
    Phase.SENT: SENT,
    Phase.CLOSE: (*SENT, AddFailed()),
    Phase.AMEND: (*STARTED, TrimDue((7,))),
}
