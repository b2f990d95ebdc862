"""Taking a bookie out of a cluster for good: its ledgers get other bookies, then its cookie is deleted.

The work itself is auto-recovery's. What is done here: the ledgers that name the bookie are marked at once, without the
cluster's delay, and looked at until none of them names it. The cookie is deleted only then, so that an attempt that is
cut short at any point is gone on with by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ledger.core.metadata import LedgerMetadata
from ledger.errors import LedgerError, MetadataError, NoNodeError, NoSuchLedgerError, NotEnoughBookiesError, UsageError
from ledger.replication.core.repair_plan import named_bookies
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.replication.metadata_reading import read_each
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import remember_cookie

_WATCHED_MAX: Final = 64
"""Ledgers that are watched at a time: a change of one has these read again, not all."""
_LOOK_S: Final = 10.0
"""Interval at which all is looked at again, should a watch have been lost."""


class LedgersLeft(msgspec.Struct, frozen=True):
    """Ledgers that still name a bookie.

    Attributes:
        bookie_id: The bookie.
        ledger_ids: The ledgers, ascending.
        unread: Ledgers whose metadata are damaged, so that nobody can tell; ascending.

    """

    bookie_id: str
    ledger_ids: tuple[int, ...]
    unread: tuple[int, ...] = ()


class BookieDecommission:
    """Takes one bookie out.

    Args:
        ledgers: Metadata of the cluster.
        bookie_id: The bookie; it serves no more.

    """

    def __init__(self, ledgers: LedgerStore, bookie_id: str) -> None:
        self._ledgers = ledgers
        self._bookie_id = bookie_id
        self._marks = MarkStore(ledgers.store, ledgers.root, "")

    async def begin(self, now_ms: int) -> LedgersLeft:
        """Mark every ledger that names the bookie; return them.

        Args:
            now_ms: Wall clock, for the marks.

        Raises:
            UsageError: It serves.
            NotEnoughBookiesError: A ledger lies on all bookies that take entries, so that none can take its place.
            LedgerError: There is no such bookie, or auto-recovery is switched off for the cluster.

        """
        await self._ledgers.store.sync(self._ledgers.root)
        writable = await self._ledgers.writable_bookies()
        await self._check_absent()
        if not await self._marks.is_enabled():
            raise LedgerError(
                f"bookie {self._bookie_id}: auto-recovery is switched off, and nobody would copy what it held; switch "
                "it on: rsm autorecovery enable"
            )
        left, found = await self._look(await self._ledgers.list())
        if not found and not left.unread and not await self._has_cookie():
            raise LedgerError(
                f"bookie {self._bookie_id}: no ledger names it, and it has no cookie; `rsm cluster bookies` shows "
                "those that there are"
            )
        for ledger_id, metadata in found.items():
            self._check_spare(ledger_id, metadata, writable)
        await self._marks.ensure_layout()
        for ledger_id in found:
            await self._marks.mark(ledger_id, [self._bookie_id], now_ms)
        return left

    async def wait(self, left: LedgersLeft, tell: Callable[[LedgersLeft], None]) -> LedgersLeft:
        """Wait until no ledger names the bookie; return what is left then: ledgers that nobody can read, or none.

        Args:
            left: What `begin` returned.
            tell: Told what is left whenever it is less, and every ten seconds.

        Raises:
            UsageError: It serves again: what it holds is there again, and nothing is copied any more.

        """
        hints = Hints()
        while left.ledger_ids:
            await self._check_absent(hints)
            rest = await self._watch(left.ledger_ids[:_WATCHED_MAX], hints)
            still = (*rest, *left.ledger_ids[_WATCHED_MAX:])
            if still != left.ledger_ids:
                left = LedgersLeft(self._bookie_id, still, left.unread)
                tell(left)
                continue  # Others are watched in place of those that are done.
            await hints.wait(_LOOK_S)
            tell(left)
        # Writers may have named it since: one that did not know yet that it is gone.
        await self._ledgers.store.sync(self._ledgers.root)
        return (await self._look(await self._ledgers.list()))[0]

    async def end(self) -> bool:
        """Delete the bookie's cookie, if no ledger names the bookie any more; return whether there was one.

        Disks that come back under this id later are known for disks that were given up.

        Raises:
            UsageError: It serves again.
            LedgerError: A ledger names it, or cannot be read; the cookie is kept.

        """
        store, root = self._ledgers.store, self._ledgers.root
        path = paths.cookie_path(root, self._bookie_id)
        await store.sync(root)
        try:
            _, version = await store.get(path)
        except NoNodeError:
            return False
        left, _ = await self._look(await self._ledgers.list())
        if left.ledger_ids or left.unread:
            ids = ", ".join(map(str, (left.ledger_ids or left.unread)[:5]))
            why = "name it" if left.ledger_ids else "cannot be read, and may name it"
            raise LedgerError(f"the cookie of bookie {self._bookie_id} is kept: ledgers {ids} {why}")
        await remember_cookie(store, root, self._bookie_id)
        await self._check_absent()
        await store.delete(path, version)
        return True

    async def _look(self, ids: Sequence[int]) -> tuple[LedgersLeft, dict[int, LedgerMetadata]]:
        """Return what names the bookie, with the metadata."""
        found: dict[int, LedgerMetadata] = {}
        unread: list[int] = []
        async for ledger_id, metadata in read_each(self._ledgers, ids):
            if metadata is None:
                unread.append(ledger_id)
            elif self._bookie_id in named_bookies(metadata):
                found[ledger_id] = metadata
        return LedgersLeft(self._bookie_id, tuple(found), tuple(unread)), found

    async def _watch(self, ids: Sequence[int], hints: Hints) -> list[int]:
        """Return which of these ledgers still name the bookie; each of them is watched."""
        still: list[int] = []
        for ledger_id in ids:
            # By the ledger's number: what is watched is its node, wherever that is.
            watch = hints.on(str(ledger_id))
            try:
                metadata, _ = await self._ledgers.read(ledger_id, watch=watch)
            except NoSuchLedgerError:
                hints.forget(str(ledger_id))
                continue
            except MetadataError:
                hints.forget(str(ledger_id))
                raise
            if self._bookie_id in named_bookies(metadata):
                still.append(ledger_id)
        return still

    async def _check_absent(self, hints: Hints | None = None) -> None:
        root = self._ledgers.root
        writable, read_only = paths.available_path(root), paths.read_only_path(root)
        serving = [
            *await self._ledgers.writable_bookies(watch=hints.on(writable) if hints else None),
            *await self._ledgers.read_only_bookies(watch=hints.on(read_only) if hints else None),
        ]
        if self._bookie_id in serving:
            raise UsageError(
                f"bookie {self._bookie_id} serves: stop it first. Its ledgers keep the copies that it holds, and so it "
                "stays in the cluster"
            )

    async def _has_cookie(self) -> bool:
        return await self._ledgers.store.exists(paths.cookie_path(self._ledgers.root, self._bookie_id)) is not None

    def _check_spare(self, ledger_id: int, metadata: LedgerMetadata, writable: Sequence[str]) -> None:
        for segment in metadata.segments:
            if self._bookie_id in segment.bookies and not any(one not in segment.bookies for one in writable):
                raise NotEnoughBookiesError(
                    f"bookie {self._bookie_id}: ledger {ledger_id} lies on {', '.join(segment.bookies)}, and no other "
                    "bookie takes entries: start one more",
                    ledger_id=ledger_id,
                )
