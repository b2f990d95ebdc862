"""Plan of a ledger's repair: what it lacks, and what to do about it.

Three cases, of settled fragments only (see `ledger.replication.core.fragments`):

    replace   a position's bookie is lost: its whole share goes to a spare, which then takes the place by CAS
    refill    a position's bookie serves but lacks entries of its share, or holds bad bytes: they go there again
    settle    the last segment of an open ledger names a lost bookie, or somebody left it in recovery: it must be
              recovered first, once its writer has had time to help itself

Of a bookie that serves but does not say what it holds nothing is known: the ledger is looked at again later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from ledger.core.metadata import NO_ENTRY, LedgerMetadata, LedgerState
from ledger.core.quorum import QuorumConfig
from ledger.replication.core.fragments import Fragment, Share, fragments_of, share_of
from ledger.replication.core.held_entries import HeldEntries


class Replace(msgspec.Struct, frozen=True):
    """Copy what a lost bookie held to another one, which takes its position."""

    fragment: Fragment
    position: int

    @property
    def bookie_id(self) -> str:
        return self.fragment.bookies[self.position]

    def share(self, quorum: QuorumConfig) -> Share:
        """Return what is to be copied."""
        return share_of(self.fragment, self.position, quorum)


class Refill(msgspec.Struct, frozen=True):
    """Copy entries to a bookie that should have them."""

    bookie_id: str


class RepairPlan(msgspec.Struct, frozen=True):
    """Steps of the repair of one ledger.

    Attributes:
        refills: First, for they need no new bookie.
        replaces: Then, one after the other: each changes the metadata.
        must_settle: The last segment needs a recovery before it can be repaired.
        silent: Bookies that serve and did not say what they hold.

    """

    refills: tuple[Refill, ...] = ()
    replaces: tuple[Replace, ...] = ()
    must_settle: bool = False
    silent: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing is left to do."""
        return not (self.refills or self.replaces or self.must_settle or self.silent)


def named_bookies(metadata: LedgerMetadata) -> list[str]:
    """Return every bookie that some segment names, sorted."""
    return sorted({bookie_id for segment in metadata.segments for bookie_id in segment.bookies})


def missing_entries(
    metadata: LedgerMetadata,
    bookie_id: str,
    held: HeldEntries,
    bad: Collection[int] = (),
    *,
    confirmed: int = NO_ENTRY,
) -> Iterator[int]:
    """Yield the entries of settled fragments that a bookie should hold and does not, ascending.

    Args:
        metadata: Of the ledger.
        bookie_id: The bookie.
        held: What it says that it holds.
        bad: Entries of which it is known to hold bad bytes.
        confirmed: Those of the last segment of an open ledger too, up to this one.

    """
    for fragment in fragments_of(metadata, confirmed):
        for position, named in enumerate(fragment.bookies):
            if named != bookie_id:
                continue
            share = share_of(fragment, position, metadata.quorum)
            if not bad:
                yield from held.missing(share)
                continue
            yield from sorted({*held.missing(share), *(entry_id for entry_id in bad if entry_id in share)})


def plan_repair(
    metadata: LedgerMetadata,
    *,
    lost: Collection[str],
    holdings: Mapping[str, HeldEntries | None],
    bad: Mapping[str, Collection[int]] | None = None,
) -> RepairPlan:
    """Return what a ledger needs.

    Args:
        metadata: Of the ledger.
        lost: Bookies that are gone for good, as far as anybody can tell.
        holdings: What those that serve say that they hold; None if one did not say. Others are left alone.
        bad: Entries of which a bookie is known to hold bad bytes.

    """
    fragments = fragments_of(metadata)
    replaces = tuple(
        Replace(fragment, position)
        for fragment in fragments
        if fragment.is_settled
        for position, bookie_id in enumerate(fragment.bookies)
        if bookie_id in lost
    )
    refills: list[Refill] = []
    silent: list[str] = []
    for bookie_id in named_bookies(metadata):
        if bookie_id in lost or bookie_id not in holdings:
            continue
        held = holdings[bookie_id]
        if held is None:
            silent.append(bookie_id)
        elif next(missing_entries(metadata, bookie_id, held, (bad or {}).get(bookie_id, ())), None) is not None:
            refills.append(Refill(bookie_id))
    last = fragments[-1]
    must_settle = not last.is_settled and (
        metadata.state == LedgerState.IN_RECOVERY or any(bookie_id in lost for bookie_id in last.bookies)
    )
    return RepairPlan(tuple(refills), replaces, must_settle, tuple(silent))
