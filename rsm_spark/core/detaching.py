"""The step in which a log ceases to share ledgers: copies of its own take their places in its chain.

A copy has the entries of the shared ledger under the same numbers, up to where the chain ends it. So every position in
the shared ledger is one in the copy (`ChainLedger.copy_of`), and what the chain says of the ledger stays.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rsm_spark.core.chain import ChainLedger, LogChain


class LedgerCopy(msgspec.Struct, frozen=True):
    """A closed ledger of a log's own, with what the log has of a shared one.

    Attributes:
        shared_id: The shared ledger.
        ledger_id: The copy.
        created_ms: Wall clock when it was created.
        length: Its payload bytes.

    """

    shared_id: int
    ledger_id: int
    created_ms: int
    length: int


def shared_ledgers(chain: LogChain) -> list[ChainLedger]:
    """Return the ledgers of a chain that another log made."""
    return [ledger for ledger in chain.ledgers if ledger.log_id]


def with_copies(chain: LogChain, copies: Iterable[LedgerCopy]) -> LogChain:
    """Return a chain in which copies have taken the places of what is shared; those of other ledgers are left out."""
    by_shared = {copy.shared_id: copy for copy in copies}
    ledgers = tuple(
        _own(ledger, by_shared[ledger.ledger_id]) if ledger.log_id and ledger.ledger_id in by_shared else ledger
        for ledger in chain.ledgers
    )
    if ledgers == chain.ledgers:
        return chain
    there = {ledger.ledger_id for ledger in ledgers}
    gone = tuple(ledger.ledger_id for ledger in chain.ledgers if ledger.ledger_id not in there)
    places = {ledger_id: by_shared[ledger_id].ledger_id for ledger_id in gone}
    return msgspec.structs.replace(
        chain,
        ledgers=ledgers,
        first_ledger_id=places.get(chain.first_ledger_id, chain.first_ledger_id),
        deleting=(*chain.deleting, *gone),
        quarantined=tuple(
            msgspec.structs.replace(one, ledger_id=places.get(one.ledger_id, one.ledger_id))
            for one in chain.quarantined
        ),
    )


def _own(ledger: ChainLedger, copy: LedgerCopy) -> ChainLedger:
    assert ledger.closed is not None, "what is shared is closed"
    return msgspec.structs.replace(
        ledger,
        ledger_id=copy.ledger_id,
        created_ms=copy.created_ms,
        closed=msgspec.structs.replace(ledger.closed, length=copy.length),
        log_id="",
        copy_of=(*ledger.copy_of, ledger.ledger_id),
    )
