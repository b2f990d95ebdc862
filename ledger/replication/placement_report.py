"""Report of the ledgers that break the cluster's placement rule, counted from their metadata."""

from __future__ import annotations

import msgspec

from ledger.core.placement_rule import ClusterPlacement
from ledger.replication.metadata_reading import read_each
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.placement_rules import read_placement


class MisplacedLedger(msgspec.Struct, frozen=True):
    """A ledger whose copies lie closer together than the rule allows.

    Attributes:
        ledger_id: The ledger.
        first_entries: First entries of the segments that break the rule.

    """

    ledger_id: int
    first_entries: tuple[int, ...]


class PlacementReport(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of one cluster at one moment, and what breaks it.

    Attributes:
        placement: Rule and places; None = there is no rule.
        unplaced: Bookies that serve, and of which nobody said where they stand; sorted.
        ledger_count: Ledgers that were looked at.
        misplaced: Those that break the rule, ascending.

    """

    placement: ClusterPlacement | None
    unplaced: tuple[str, ...] = ()
    ledger_count: int = 0
    misplaced: tuple[MisplacedLedger, ...] = ()


async def report_placement(ledgers: LedgerStore) -> PlacementReport:
    """Look at all ledgers, if there is a rule.

    Raises:
        CorruptMetadataError: The rule is damaged.
        LedgerError: There is no cluster, or the metadata store does not answer.

    """
    await ledgers.store.sync(ledgers.root)
    placement = await read_placement(ledgers)
    if placement is None:
        return PlacementReport(placement=None)
    serving = sorted({*await ledgers.writable_bookies(), *await ledgers.read_only_bookies()})
    misplaced: list[MisplacedLedger] = []
    ledger_count = 0
    async for ledger_id, metadata in read_each(ledgers, sorted(await ledgers.list())):
        if metadata is None:
            continue
        ledger_count += 1
        quorum = metadata.quorum.write_quorum
        firsts = [one.first_entry_id for one in metadata.segments if placement.lacking(one.bookies, quorum)]
        if firsts:
            misplaced.append(MisplacedLedger(ledger_id, tuple(firsts)))
    return PlacementReport(
        placement=placement,
        unplaced=tuple(one for one in serving if placement.place(one) is None),
        ledger_count=ledger_count,
        misplaced=tuple(misplaced),
    )
