"""A bookie leaves a cluster for good: its ledgers get other bookies, then its cookie is deleted.

The work itself is auto-recovery's. What is done here: the ledgers that name the bookie are marked at once, without the
cluster's delay, and looked at until none of them names it. The cookie is deleted only then, so that an attempt that is
cut short at any point is gone on with by the next one.

A bookie may leave while it serves: an order to drain it has it take no more adds, and auto-recovery take its places
(see `ledger.replication.marks`). It goes on giving copies meanwhile, so that no entry lacks one at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ledger.core.metadata import LedgerMetadata
from ledger.errors import (
    LedgerError,
    MetadataError,
    NoNodeError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    UsageError,
)
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
_OBEY_S: Final = 30.0


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
    """Has the ledgers of one bookie moved to others.

    Args:
        ledgers: Metadata of the cluster.
        bookie_id: The bookie.
        is_drain: It serves, and goes on serving until it is empty. If not, it serves no more.
        wall_ms: Wall clock, for marks.

    """

    def __init__(
        self, ledgers: LedgerStore, bookie_id: str, *, wall_ms: Callable[[], int], is_drain: bool = False
    ) -> None:
        self._ledgers = ledgers
        self._bookie_id = bookie_id
        self._wall_ms = wall_ms
        self._is_drain = is_drain
        self._marks = MarkStore(ledgers.store, ledgers.root, "")

    async def check(self) -> None:
        """Check what can be told without looking at ledgers; `begin` does it too.

        Raises:
            UsageError: The bookie serves although it must not, or the other way round.
            LedgerError: Auto-recovery is switched off for the cluster.

        """
        await self._check_serving()
        if not await self._marks.is_enabled():
            raise LedgerError(
                f"bookie {self._bookie_id}: auto-recovery is switched off, and nobody would copy what it holds; switch "
                "it on: rsm autorecovery enable"
            )

    async def has_cookie(self) -> bool:
        """Return whether the cluster has such a bookie, dead or alive."""
        return await self._ledgers.store.exists(paths.cookie_path(self._ledgers.root, self._bookie_id)) is not None

    async def begin(self) -> LedgersLeft:
        """Mark every ledger that names the bookie; return them. A drain is ordered first, and obeyed when this returns.

        Raises:
            UsageError: The bookie serves although it must not, or the other way round.
            NotEnoughBookiesError: A ledger lies on all bookies that take entries, so that none can take its place.
            LedgerError: There is no such bookie, auto-recovery is switched off for the cluster, or the bookie does not
                obey the order to drain it.

        """
        await self._ledgers.store.sync(self._ledgers.root)
        writable = [one for one in await self._ledgers.writable_bookies() if one != self._bookie_id]
        await self.check()
        left, found = await self._look()
        if not self._is_drain and not found and not left.unread and not await self.has_cookie():
            raise LedgerError(
                f"bookie {self._bookie_id}: no ledger names it, and it has no cookie; `rsm cluster bookies` shows "
                "those that there are"
            )
        for ledger_id, metadata in found.items():
            self._check_spare(ledger_id, metadata, writable)
        await self._marks.ensure_layout()
        if self._is_drain:
            await self._marks.set_draining(self._bookie_id, is_draining=True)
            await self._wait_until_obeyed()
            left, _ = await self._look()  # What was created until then.
        await self._mark(left)
        return left

    async def wait(self, left: LedgersLeft, tell: Callable[[LedgersLeft], None]) -> LedgersLeft:
        """Wait until no ledger names the bookie; return what is left then: ledgers that nobody can read, or none.

        Args:
            left: What `begin` returned.
            tell: Told what is left whenever that has changed, and every ten seconds.

        Raises:
            UsageError: The bookie came back, or went away in the middle of a drain.

        """
        while left.ledger_ids:
            await self._wait_for(left, tell)
            # A writer that did not know yet that the bookie leaves may have named it meanwhile.
            await self._ledgers.store.sync(self._ledgers.root)
            left, _ = await self._look()
            await self._mark(left)
        return left

    async def end(self) -> bool:
        """Delete the bookie's cookie, if no ledger names the bookie any more; return whether there was one.

        Disks that come back under this id later are known for disks that were given up.

        Raises:
            UsageError: It serves.
            LedgerError: A ledger names it, or cannot be read; the cookie is kept.

        """
        store, root = self._ledgers.store, self._ledgers.root
        path = paths.cookie_path(root, self._bookie_id)
        await store.sync(root)
        await self._check_serving()
        try:
            _, version = await store.get(path)
        except NoNodeError:
            await self._marks.set_draining(self._bookie_id, is_draining=False)
            return False
        left, _ = await self._look()
        if left.ledger_ids or left.unread:
            ids = ", ".join(map(str, (left.ledger_ids or left.unread)[:5]))
            why = "name it" if left.ledger_ids else "cannot be read, and may name it"
            raise LedgerError(f"the cookie of bookie {self._bookie_id} is kept: ledgers {ids} {why}")
        await remember_cookie(store, root, self._bookie_id)
        await self._check_serving()
        await store.delete(path, version)
        await self._marks.set_draining(self._bookie_id, is_draining=False)
        return True

    async def _look(self) -> tuple[LedgersLeft, dict[int, LedgerMetadata]]:
        """Return what names the bookie, with the metadata."""
        found: dict[int, LedgerMetadata] = {}
        unread: list[int] = []
        async for ledger_id, metadata in read_each(self._ledgers, await self._ledgers.list()):
            if metadata is None:
                unread.append(ledger_id)
            elif self._bookie_id in named_bookies(metadata):
                found[ledger_id] = metadata
        return LedgersLeft(self._bookie_id, tuple(found), tuple(unread)), found

    async def _mark(self, left: LedgersLeft) -> None:
        for ledger_id in left.ledger_ids:
            await self._marks.mark(ledger_id, [self._bookie_id], self._wall_ms())

    async def _wait_for(self, left: LedgersLeft, tell: Callable[[LedgersLeft], None]) -> None:
        """Wait until these ledgers name the bookie no more."""
        hints = Hints()
        while left.ledger_ids:
            await self._check_serving(hints)
            rest = await self._watch(left.ledger_ids[:_WATCHED_MAX], hints)
            still = (*rest, *left.ledger_ids[_WATCHED_MAX:])
            if still == left.ledger_ids:
                await hints.wait(_LOOK_S)
            left = LedgersLeft(self._bookie_id, still, left.unread)
            tell(left)

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

    async def _wait_until_obeyed(self) -> None:
        hints = Hints()
        path = paths.read_only_path(self._ledgers.root)
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + _OBEY_S
        while self._bookie_id not in await self._ledgers.read_only_bookies(watch=hints.on(path)):
            if loop.time() >= give_up_s:
                raise LedgerError(
                    f"bookie {self._bookie_id} is to be drained and still takes entries after {_OBEY_S:.0f} s: it is "
                    "of an older release, or Apache's. Make it read-only by its HTTP API (PUT /api/v1/bookie/state/"
                    "readonly), or start it again with --read-only; then give this command again. The order stands "
                    f"until: rsm cluster drain {self._bookie_id} --undo"
                )
            await hints.wait(give_up_s - loop.time())

    async def _check_serving(self, hints: Hints | None = None) -> None:
        root = self._ledgers.root
        writable, read_only = paths.available_path(root), paths.read_only_path(root)
        serving = [
            *await self._ledgers.writable_bookies(watch=hints.on(writable) if hints else None),
            *await self._ledgers.read_only_bookies(watch=hints.on(read_only) if hints else None),
        ]
        if self._is_drain and self._bookie_id not in serving:
            raise UsageError(
                f"bookie {self._bookie_id} does not serve, and gives nothing away: start it, or take it out as it is: "
                f"rsm cluster decommission {self._bookie_id}"
            )
        if not self._is_drain and self._bookie_id in serving:
            raise UsageError(
                f"bookie {self._bookie_id} serves: stop it first, or have it emptied while it serves: "
                f"rsm cluster drain {self._bookie_id}. One that was killed counts as serving until its session with "
                "ZooKeeper has ended, some ten seconds: then ask again"
            )

    def _check_spare(self, ledger_id: int, metadata: LedgerMetadata, writable: Sequence[str]) -> None:
        for segment in metadata.segments:
            if self._bookie_id in segment.bookies and not any(one not in segment.bookies for one in writable):
                raise NotEnoughBookiesError(
                    f"bookie {self._bookie_id}: ledger {ledger_id} lies on {', '.join(segment.bookies)}, and no other "
                    "bookie takes entries: start one more",
                    ledger_id=ledger_id,
                )
