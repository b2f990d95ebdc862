"""Marks of under-replicated ledgers, their locks, and the switches of auto-recovery, on a `MetadataStore`.

Everything here is shared with BookKeeper's own auditor and workers: either may set what the other takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from ledger.core.placement import Randomness
from ledger.errors import BadVersionError, MetadataError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore, SessionState
from ledger.replication.hints import Hints
from ledger.wire import underreplication as u
from ledger.wire.underreplication import Mark

_ATTEMPTS_MAX: Final = 20
_LEVEL_COUNT: Final = 4


class LedgerLock:
    """A ledger that this process works on. The lock goes with the session.

    Attributes:
        ledger_id: The ledger.
        path: Its node.
        session_id: Of the session that took it.

    """

    def __init__(self, store: MetadataStore, ledger_id: int, path: str) -> None:
        self.ledger_id = ledger_id
        self.path = path
        self.session_id = store.session_id
        self._store = store

    @property
    def is_held(self) -> bool:
        """True if the session that took it is known to live."""
        return self._store.session_state is SessionState.CONNECTED and self._store.session_id == self.session_id


class _Found(msgspec.Struct, frozen=True):
    mark: Mark
    version: int


class MarkStore:
    """Marks and locks through which auditors and workers work together.

    Args:
        store: Where the nodes are.
        root: BookKeeper's root node.
        owner: Name of this process in locks, unlike that of any other.

    """

    def __init__(self, store: MetadataStore, root: str, owner: str) -> None:
        self.store = store
        self.root = root
        self.owner = owner
        # Ledgers that this process has locked and works on.
        self._held: dict[int, None] = {}
        # Ledgers whose lock may be ours though we do not work on them: the reply to its creation or removal was lost.
        # With the session that it would belong to.
        self._strays: dict[int, int] = {}

    async def ensure_layout(self) -> None:
        """Create the nodes that are missing.

        Raises:
            CorruptMetadataError: Marks are kept in another way than ours.

        """
        try:
            u.check_layout((await self.store.get(u.layout_path(self.root))).value)
        except NoNodeError:
            await self._create_if_missing(u.layout_path(self.root), u.LAYOUT)
        for path in (
            u.mark_path(self.root),
            u.lock_path(self.root),
            u.election_path(self.root),
            u.draining_path(self.root),
        ):
            await self._create_if_missing(path, b"")

    # -- marks ---------------------------------------------------------------------------------------------

    async def mark(self, ledger_id: int, bookie_ids: Collection[str], now_ms: int) -> bool:
        """Mark a ledger, or add to its mark; return whether that was news.

        Raises:
            MetadataError: It may or may not be marked.

        """
        path = u.mark_path(self.root, ledger_id)
        for _ in range(_ATTEMPTS_MAX):
            try:
                await self.store.create(path, u.encode_mark(Mark(tuple(bookie_ids), now_ms)), parents=True)
            except NodeExistsError:
                await self.store.sync(path)  # The server asked may not know yet of what is in the way.
                found = await self._find(ledger_id)
                if found is None:
                    continue
                added = [bookie_id for bookie_id in bookie_ids if bookie_id not in found.mark.bookie_ids]
                if not added:
                    return False
                merged = Mark((*found.mark.bookie_ids, *added), now_ms)
                with contextlib.suppress(BadVersionError, NoNodeError):
                    await self.store.set(path, u.encode_mark(merged), found.version)
                    return True
            except NoNodeError:
                continue  # An emptied folder was removed between its creation and the mark's.
            else:
                return True
        raise MetadataError(
            f"ledger {ledger_id} could not be marked in {_ATTEMPTS_MAX} attempts: others change its mark"
        )

    async def read(self, ledger_id: int) -> tuple[Mark, int] | None:
        """Return a ledger's mark and its version, or None; none that was there before this call is missed.

        Raises:
            CorruptMetadataError: The mark is damaged.

        """
        await self.store.sync(u.mark_path(self.root, ledger_id))
        found = await self._find(ledger_id)
        return None if found is None else (found.mark, found.version)

    async def unmark(self, ledger_id: int, version: int) -> bool:
        """Remove a mark that nobody has added to; return whether it is gone."""
        path = u.mark_path(self.root, ledger_id)
        try:
            await self.store.delete(path, version)
        except BadVersionError:
            return False
        except NoNodeError:
            return True
        for _ in range(_LEVEL_COUNT):
            path = path.rpartition("/")[0]
            try:
                await self.store.delete(path)
            except (NodeExistsError, NoNodeError):
                break  # It has other marks.
        return True

    async def marked(
        self, *, rng: Randomness | None = None, limit: int | None = None, excluded: Collection[int] = ()
    ) -> list[int]:
        """Return the ids of marked ledgers.

        Args:
            rng: In random order, so that workers seldom meet; without it, ascending.
            limit: No more than this many.
            excluded: Ledgers that are passed over.

        """
        found: list[int] = []
        paths = [(u.mark_path(self.root), 0)]
        while paths and (limit is None or len(found) < limit):
            path, depth = paths.pop()
            try:
                names: Sequence[str] = await self.store.children(path)
            except NoNodeError:
                continue
            if rng is not None:
                names = sorted(names, key=lambda _: rng.random())
            if depth < _LEVEL_COUNT:
                paths += [(f"{path}/{name}", depth + 1) for name in reversed(names)]
            else:
                found += [i for i in map(u.ledger_id_of_mark, names) if i is not None and i not in excluded]
        return found[:limit]

    async def watch_marks(self, hints: Hints) -> None:
        """Leave a hint for when the first mark of many comes; not every mark is heard of."""
        path = u.mark_path(self.root)
        try:
            await self.store.children(path, watch=hints.on(path))
        except MetadataError:
            hints.forget(path)
            raise

    # -- locks ---------------------------------------------------------------------------------------------

    async def locked(self) -> list[int]:
        """Return the ids of the ledgers that somebody works on."""
        await self._remove_strays()
        try:
            names = await self.store.children(u.lock_path(self.root))
        except NoNodeError:
            return []
        return [ledger_id for ledger_id in map(u.ledger_id_of_mark, names) if ledger_id is not None]

    async def lock(self, ledger_id: int) -> LedgerLock | None:
        """Take a ledger's lock; None if somebody has it.

        Raises:
            MetadataError: It is not known whether it was taken; if so, it is given back at the next look.

        """
        if ledger_id in self._held or ledger_id in self._strays:
            return None
        path = u.lock_path(self.root, ledger_id)
        try:
            await self.store.create(path, u.encode_lock(self.owner), ephemeral=True, parents=True)
        except NodeExistsError:
            return None
        except MetadataError:
            self._strays[ledger_id] = self.store.session_id
            raise
        self._held[ledger_id] = None
        return LedgerLock(self.store, ledger_id, path)

    async def unlock(self, lock: LedgerLock) -> None:
        """Give a lock back; if no reply comes, it is tried again at the next look."""
        self._held.pop(lock.ledger_id, None)
        if self.store.session_id != lock.session_id:
            return  # It went with its session; what is there now is somebody else's.
        try:
            await self.store.delete(lock.path)
        except NoNodeError:
            return
        except MetadataError:
            self._strays[lock.ledger_id] = lock.session_id

    async def owner_of(self, ledger_id: int) -> str | None:
        """Return who works on a ledger; None if nobody does, or nobody knows who."""
        try:
            return u.decode_owner((await self.store.get(u.lock_path(self.root, ledger_id))).value)
        except NoNodeError:
            return None

    # -- switches ------------------------------------------------------------------------------------------

    async def is_enabled(self, hints: Hints | None = None) -> bool:
        """Return whether auto-recovery may work; `hints` tell when that changes."""
        path = u.disable_path(self.root)
        try:
            return await self.store.exists(path, watch=hints.on(path) if hints else None) is None
        except MetadataError:
            if hints:
                hints.forget(path)
            raise

    async def set_enabled(self, is_enabled: bool) -> None:
        """Stop auto-recovery of the whole cluster, or let it go on."""
        if is_enabled:
            with contextlib.suppress(NoNodeError):
                await self.store.delete(u.disable_path(self.root))
        else:
            await self._create_if_missing(u.disable_path(self.root), b"")

    async def draining(self, hints: Hints | None = None) -> list[str]:
        """Return the bookies that are to give away what they hold, sorted; `hints` tell when that changes."""
        path = u.draining_path(self.root)
        try:
            return sorted(await self.store.children(path, watch=hints.on(path) if hints else None))
        except NoNodeError:
            if hints:
                hints.forget(path)
            return []  # Nobody has made the folder yet: auto-recovery does at its start.

    async def is_draining(self, bookie_id: str, hints: Hints | None = None) -> bool:
        """Return whether a bookie is to give away what it holds; `hints` tell when that changes."""
        path = u.draining_path(self.root, bookie_id)
        return await self.store.exists(path, watch=hints.on(path) if hints else None) is not None

    async def set_draining(self, bookie_id: str, *, is_draining: bool) -> bool:
        """Order a bookie to be drained, or take the order back; return whether that changed anything."""
        path = u.draining_path(self.root, bookie_id)
        try:
            if is_draining:
                await self.store.create(path, b"", parents=True)
            else:
                await self.store.delete(path)
        except (NodeExistsError, NoNodeError):
            return False
        return True

    async def known_recovery_delay_s(self) -> int | None:
        """Return the cluster's delay; None if nobody has set one."""
        try:
            return max(0, u.decode_delay((await self.store.get(u.recovery_delay_path(self.root))).value))
        except NoNodeError:
            return None

    async def recovery_delay_s(self, default_s: int) -> int:
        """Return how long a bookie is missing before it counts as lost; `default_s` is set where none is."""
        path = u.recovery_delay_path(self.root)
        for _ in range(_ATTEMPTS_MAX):
            try:
                return max(0, u.decode_delay((await self.store.get(path)).value))
            except NoNodeError:
                await self._create_if_missing(path, u.encode_delay(default_s))
        return default_s

    async def set_recovery_delay_s(self, delay_s: int) -> None:
        """Set the delay of the whole cluster."""
        await self._put(u.recovery_delay_path(self.root), u.encode_delay(delay_s))

    async def checked_ms(self) -> int | None:
        """Return when all ledgers were last checked, wall clock; None if never."""
        try:
            return u.decode_check_time((await self.store.get(u.check_time_path(self.root))).value)
        except NoNodeError:
            return None

    async def set_checked_ms(self, checked_ms: int) -> None:
        """Note that all ledgers have been checked."""
        await self._put(u.check_time_path(self.root), u.encode_check_time(checked_ms))

    # -- nodes ---------------------------------------------------------------------------------------------

    async def _find(self, ledger_id: int) -> _Found | None:
        try:
            value, version = await self.store.get(u.mark_path(self.root, ledger_id))
        except NoNodeError:
            return None
        return _Found(u.decode_mark(value, ledger_id), version)

    async def _remove_strays(self) -> None:
        for ledger_id, session_id in list(self._strays.items()):
            path = u.lock_path(self.root, ledger_id)
            with contextlib.suppress(NoNodeError):
                await self.store.sync(path)
                is_ours = u.decode_owner((await self.store.get(path)).value) == self.owner
                if is_ours and self.store.session_id == session_id:
                    await self.store.delete(path)
            self._strays.pop(ledger_id, None)

    async def _put(self, path: str, value: bytes) -> None:
        try:
            await self.store.set(path, value, -1)
        except NoNodeError:
            await self._create_if_missing(path, value)

    async def _create_if_missing(self, path: str, value: bytes) -> None:
        with contextlib.suppress(NodeExistsError):
            await self.store.create(path, value, parents=True)
