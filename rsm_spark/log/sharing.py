"""Ledgers that several logs use: a fork shares the closed ledgers of its origin, and who goes last deletes them.

    <root>/sharing/<log id of the owner>                    ledgers that the owner has let go of while others used them
    <root>/sharing/<log id of the owner>/<another log id>   ledgers of the owner that the other log uses

The owner is the log that made a ledger, as the ledger's own metadata say before any chain names it.

1. A fork notes what it will use, then reads its origin's chain again. What is still there, stays: whoever takes it out
   of that chain looks at the notes after that.
2. A log lets go of a ledger after its chain has ceased to name it. It says so here first, then looks at what the others
   say: of two that go at the same time, at least the later one sees that it is the last.
3. The last one deletes the ledger, then takes back what it said here. Until then the chain, or the note of a deletion,
   holds the ledger's id, so that all of it is done again after a crash: each step may come twice.
4. Owner and chain may be gone for long: nobody looks for another log by its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from ledger.client.client import LedgerClient
from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, MetadataDeniedError, NodeExistsError, NoNodeError, NoSuchLedgerError
from ledger.ports import MetadataStore
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.orphans import maker_of
from rsm_spark.errors import CorruptLogError

_Note = TypeVar("_Note")


class LedgerUse(msgspec.Struct, frozen=True):
    """Use that a log makes of another one's ledgers.

    Attributes:
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        ledger_ids: Ledgers that it uses.
        leaving: Ledgers that it uses no more, and is about to delete if nobody else does.

    """

    log: str
    log_id: str
    ledger_ids: tuple[int, ...]
    leaving: tuple[int, ...] = ()


class UnsharedLedgers(NamedTuple):
    """Outcome of a deletion of ledgers, ascending.

    Attributes:
        deleted: By this call.
        kept: Other logs use them.

    """

    deleted: list[int]
    kept: list[int]


class _LetGo(msgspec.Struct, frozen=True):
    ledger_ids: tuple[int, ...] = ()


_Change = Callable[[LedgerUse], LedgerUse]


async def uses_of(store: MetadataStore, log: str, rsm_root: str, unread: list[str]) -> dict[str, tuple[LedgerUse, int]]:
    """Return what logs of a name use of other logs' ledgers, by node; several may have had it, each with another id.

    Args:
        store: Session with the metadata store.
        log: The name.
        rsm_root: Where logs live.
        unread: Takes the nodes that this log-in may not read: they are of strangers, of this name or of others.

    Returns:
        Each note, with the version of its node.

    """
    root = f"{rsm_root}/sharing"
    found: dict[str, tuple[LedgerUse, int]] = {}
    await store.sync(root)
    for owner in await _names(store, root, unread):
        for user in await _names(store, f"{root}/{owner}", unread):
            path = f"{root}/{owner}/{user}"
            try:
                with contextlib.suppress(NoNodeError):  # It has just gone.
                    value, version = await store.get(path)
                    use = _decoded(LedgerUse, value, path)
                    if use.log == log:
                        found[path] = use, version
            except MetadataDeniedError:
                unread.append(path)
    return found


async def notes_of(store: MetadataStore, log_id: str, root: str) -> dict[str, tuple[LedgerUse, int]]:
    """Return what one log has noted, by node, each note with the version of its node.

    Args:
        store: Session with the metadata store.
        log_id: Of the log, 32 hex digits.
        root: Of the notes.

    Raises:
        MetadataError: One of them cannot be read.

    """
    found = {}
    for owner in await _owners(store, root):
        path = f"{root}/{owner}/{log_id}"
        with contextlib.suppress(NoNodeError):
            value, version = await store.get(path)
            found[path] = _decoded(LedgerUse, value, path), version
    return found


async def _owners(store: MetadataStore, root: str) -> list[str]:
    await store.sync(root)
    try:
        return await store.children(root)
    except NoNodeError:
        return []


async def _names(store: MetadataStore, path: str, unread: list[str]) -> list[str]:
    try:
        with contextlib.suppress(NoNodeError):
            return await store.children(path)
    except MetadataDeniedError:
        unread.append(path)
    return []


class SharedLedgers:
    """Ledgers that one log shares with others.

    Args:
        client: Connected ledger client.
        log_id: Of the log, 32 hex digits.
        rsm_root: Where logs live.

    """

    def __init__(self, client: LedgerClient, log_id: str, rsm_root: str = DEFAULT_RSM_ROOT) -> None:
        self._client = client
        self._store = client.store
        self._log_id = log_id
        self._root = f"{rsm_root}/sharing"

    # ---- what it uses

    async def use(self, log: str, ledger_ids: Mapping[str, Collection[int]]) -> None:
        """Note what this log, which is being made, is going to use besides; read the origin's chain again afterwards.

        Args:
            log: Its name.
            ledger_ids: By the log id of their owner.

        Raises:
            MetadataError: The metadata store cannot be asked; some of it may be noted.

        """
        for owner in sorted(ledger_ids):
            note = msgspec.json.encode(LedgerUse(log, self._log_id, tuple(ledger_ids[owner])))
            more = tuple(ledger_ids[owner])
            while True:
                with contextlib.suppress(NoNodeError):  # The node above went with the last other user: once more.
                    try:
                        await self._store.create(f"{self._root}/{owner}/{self._log_id}", note, parents=True)
                    except NodeExistsError:
                        if await self._rewrite(owner, partial(_joined, more)) is None:
                            continue
                    break

    async def used(self) -> list[int]:
        """Return the ledgers of others that this log uses, or is leaving, ascending."""
        notes = (await self._own_notes()).values()
        return sorted({ledger_id for note in notes for ledger_id in (*note.ledger_ids, *note.leaving)})

    async def users(self) -> list[LedgerUse]:
        """Return what other logs use of this one's ledgers."""
        return await _users_of(self._store, self._root, self._log_id)

    async def is_used(self, ledger_id: int) -> bool:
        """Return whether another log uses a ledger of this one."""
        return any(ledger_id in user.ledger_ids for user in await self.users())

    # ---- what it lets go of

    async def delete(
        self, ledger_ids: Collection[int], on_progress: Callable[[int, int], None] = lambda _done, _all: None
    ) -> UnsharedLedgers:
        """Delete ledgers that no chain of this log names any more, but for those that other logs use.

        Args:
            ledger_ids: The chain, or the note of a deletion, holds them until this has returned.
            on_progress: Called after each ledger: how many are deleted, of how many.

        Raises:
            LedgerError, MetadataError: The metadata store cannot be asked: call again.

        """
        kept = await self._let_go(set(ledger_ids))
        going = sorted(set(ledger_ids) - kept)
        deleted = []
        for number, ledger_id in enumerate(going, start=1):
            with contextlib.suppress(NoSuchLedgerError):  # By a call before, whose reply may have been lost.
                await self._client.delete(ledger_id)
                deleted.append(ledger_id)
            on_progress(number, len(going))
        await self._forget(set(ledger_ids))
        return UnsharedLedgers(deleted, sorted(kept))

    async def _let_go(self, going: set[int]) -> set[int]:
        """Say that this log uses some ledgers no more; return those that others still use."""
        for owner in await self._own_notes():
            await self._rewrite(owner, lambda note: _left(note, going))
        by_owner: dict[str, set[int]] = {}
        for ledger_id in sorted(going):
            with contextlib.suppress(NoSuchLedgerError):
                owner = maker_of((await self._client.metadata(ledger_id)).custom) or self._log_id
                by_owner.setdefault(owner, set()).add(ledger_id)
        kept: set[int] = set()
        for owner, mine in sorted(by_owner.items()):
            kept |= await (self._hand_over(mine) if owner == self._log_id else self._not_last(owner, mine))
        return kept

    async def _forget(self, going: set[int]) -> None:
        """Take back what was said of ledgers that are deleted, unless others use them."""
        for owner in await self._own_notes():
            left = await self._rewrite(owner, lambda note: _forgotten(note, going))
            if left is not None and not left.ledger_ids and not left.leaving:
                with contextlib.suppress(NoNodeError):
                    await self._store.delete(f"{self._root}/{owner}/{self._log_id}")
        for owner in await _owners(self._store, self._root):
            # It has users, or has just got one; or it is of strangers, whose own deletions look after it.
            with contextlib.suppress(NoNodeError, NodeExistsError, MetadataDeniedError):
                if not await self._store.children(f"{self._root}/{owner}"):
                    await self._store.delete(f"{self._root}/{owner}")

    async def _hand_over(self, ledger_ids: set[int]) -> set[int]:
        """Return which of the own ledgers others still use, after it is noted that their owner does not."""
        used = ledger_ids & await self._used_by_others(self._log_id)
        path = f"{self._root}/{self._log_id}"
        while used:
            with contextlib.suppress(BadVersionError, NoNodeError):
                value, version = await self._store.get(path)
                # Who is leaving one may not have looked here yet.
                named = {one for user in await self.users() for one in (*user.ledger_ids, *user.leaving)}
                known = set(_decoded(_LetGo, value or b"{}", path).ledger_ids)
                noted = msgspec.json.encode(_LetGo(tuple(sorted((known | used) & named))))
                await self._store.set(path, noted, version)
                return ledger_ids & await self._used_by_others(self._log_id)
            used = ledger_ids & await self._used_by_others(self._log_id)
        return used

    async def _not_last(self, owner: str, ledger_ids: set[int]) -> set[int]:
        """Return which ledgers of another log that one, or a third one, still uses."""
        path = f"{self._root}/{owner}"
        let_go: set[int] = set()
        await self._store.sync(path)
        with contextlib.suppress(NoNodeError):
            let_go = set(_decoded(_LetGo, (await self._store.get(path)).value or b"{}", path).ledger_ids)
        return (ledger_ids - let_go) | (ledger_ids & await self._used_by_others(owner))

    async def _used_by_others(self, owner: str) -> set[int]:
        users = await _users_of(self._store, self._root, owner)
        return {ledger_id for user in users if user.log_id != self._log_id for ledger_id in user.ledger_ids}

    # ---- notes

    async def _own_notes(self) -> dict[str, LedgerUse]:
        """Return what this log has noted, by owner."""
        notes = await notes_of(self._store, self._log_id, self._root)
        return {path.split("/")[-2]: use for path, (use, _) in notes.items()}

    async def _rewrite(self, owner: str, change: _Change) -> LedgerUse | None:
        """Change the own note about an owner's ledgers; return what it says then, None if there is none."""
        path = f"{self._root}/{owner}/{self._log_id}"
        while True:
            try:
                value, version = await self._store.get(path)
            except NoNodeError:
                return None
            before = _decoded(LedgerUse, value, path)
            after = change(before)
            if after == before:
                return after
            with contextlib.suppress(BadVersionError, NoNodeError):
                await self._store.set(path, msgspec.json.encode(after), version)
                return after


async def _users_of(store: MetadataStore, root: str, owner: str) -> list[LedgerUse]:
    path = f"{root}/{owner}"
    await store.sync(path)
    found = []
    try:
        with contextlib.suppress(NoNodeError):
            for name in await store.children(path):
                with contextlib.suppress(NoNodeError):  # It has just gone.
                    found.append(_decoded(LedgerUse, (await store.get(f"{path}/{name}")).value, path))
    except MetadataDeniedError as error:
        raise MetadataDeniedError(
            f"which other logs use ledgers of the log with id {owner} cannot be looked at, so none of them is deleted: "
            f"{error}"
        ) from error
    return found


def _joined(more: tuple[int, ...], note: LedgerUse) -> LedgerUse:
    known = set(note.ledger_ids)
    new = tuple(one for one in more if one not in known)
    return msgspec.structs.replace(note, ledger_ids=(*note.ledger_ids, *new))


def _left(note: LedgerUse, going: set[int]) -> LedgerUse:
    leaving = tuple(ledger_id for ledger_id in note.ledger_ids if ledger_id in going)
    staying = tuple(ledger_id for ledger_id in note.ledger_ids if ledger_id not in going)
    return msgspec.structs.replace(note, ledger_ids=staying, leaving=(*note.leaving, *leaving))


def _forgotten(note: LedgerUse, going: set[int]) -> LedgerUse:
    return msgspec.structs.replace(note, leaving=tuple(one for one in note.leaving if one not in going))


def _decoded(kind: type[_Note], value: bytes, path: str) -> _Note:
    try:
        return json_decoder(kind).decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"{path}: it does not say who uses which ledgers: {error}. Nothing is deleted") from error
