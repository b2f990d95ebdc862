"""Mark of a log that ceases to share ledgers: which copies of them are being made, and which are whole.

    <root>/detaching/<log id>         the copies so far, and who makes them
    <root>/detaching/<log id>-alive   who makes them runs; goes with its session

1. A copy is noted before anything is written to it, and noted as whole once it is closed. Only whole ones may come into
   the chain, in one write, by the leader or, where no replica runs, by whoever made them.
2. Who goes on with another one's work first writes the mark: the other one cannot note anything any more. What is not
   whole is then deleted. What is whole stays while the chain names what it is a copy of: that write may still arrive.
3. What was shared is let go of as what is trimmed: it stands in `deleting` of the chain until that is done.
4. No leader takes a copy for an orphan. The mark, or the chain, holds its id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from ledger.client.client import LedgerClient
from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, MetadataUnavailableError, NodeExistsError, NoNodeError, NoSuchLedgerError
from ledger.ports import MetadataStore
from rsm_spark.core.chain import LogChain
from rsm_spark.core.detaching import LedgerCopy, shared_ledgers
from rsm_spark.core.orphans import maker_of
from rsm_spark.errors import CorruptLogError, LogError

_TRIES = 10


class _Noted(msgspec.Struct, frozen=True):
    ledger_id: int
    created_ms: int
    length: int = -1  # Of the whole copy; -1 = it is not whole.


class _Note(msgspec.Struct, frozen=True):
    owner: str = ""
    copies: dict[str, _Noted] = {}  # By id of the shared ledger.


class DetachMark:
    """Mark of one log, and the right to write it: one process at a time.

    Args:
        store: Session with the metadata store.
        log: Name of the log, for errors.
        log_id: Its uuid, 32 hex digits.
        rsm_root: Where logs live.
        owner: Drawn anew by each process.

    """

    def __init__(self, store: MetadataStore, log: str, log_id: str, rsm_root: str, owner: str) -> None:
        self._store = store
        self._log = log
        self._path = detaching_path(log_id, rsm_root)
        self._alive = f"{self._path}-alive"
        self._owner = owner
        self._note = _Note(owner)
        self._version = -1

    async def take(self) -> None:
        """Take the mark over, or set it.

        Raises:
            LogError: Another process has it.
            MetadataError: The metadata store cannot be asked.

        """
        try:
            await self._store.create(self._alive, ephemeral=True, parents=True)
        except NodeExistsError as error:
            raise LogError(
                f"log {self._log}: another rsm log detach is at work: wait for it. If it was killed, try again when "
                "its session with ZooKeeper has ended, some seconds later"
            ) from error
        with contextlib.suppress(NodeExistsError):
            await self._store.create(self._path, msgspec.json.encode(_Note()))
        await self._store.sync(self._path)
        value, self._version = await self._store.get(self._path)
        await self._write(_decoded(value, self._path).copies)

    async def leave(self, *, is_done: bool) -> None:
        """Let another process have the mark; take it away if all is done."""
        with contextlib.suppress(NoNodeError, BadVersionError):
            if is_done:
                await self._store.delete(self._path, self._version)
        with contextlib.suppress(NoNodeError):
            await self._store.delete(self._alive)

    @property
    def whole(self) -> dict[int, LedgerCopy]:
        """Copies that are whole, by shared ledger."""
        return {
            int(shared): LedgerCopy(int(shared), one.ledger_id, one.created_ms, one.length)
            for shared, one in self._note.copies.items()
            if one.length >= 0
        }

    def useless(self, chain: LogChain) -> list[int]:
        """Return the copies that no chain will ever name, ascending; they may be deleted.

        Args:
            chain: Of the log, read after `take`.

        """
        wanted = {str(ledger.ledger_id) for ledger in shared_ledgers(chain)}
        named = {ledger.ledger_id for ledger in chain.ledgers}
        copies = self._note.copies.items()
        is_kept = {one.ledger_id for shared, one in copies if one.length >= 0 and shared in wanted} | named
        return sorted(one.ledger_id for _, one in copies if one.ledger_id not in is_kept)

    async def begin(self, shared_id: int, ledger_id: int, created_ms: int) -> None:
        """Note a copy to which nothing is written yet.

        Raises:
            LogError: Another process has taken the mark over.
            MetadataError: The metadata store cannot be asked.

        """
        await self._write({**self._note.copies, str(shared_id): _Noted(ledger_id, created_ms)})

    async def end(self, shared_id: int, length: int) -> None:
        """Note that a copy is closed, and has all that the log has of the shared ledger; errors as `begin`."""
        whole = msgspec.structs.replace(self._note.copies[str(shared_id)], length=length)
        await self._write({**self._note.copies, str(shared_id): whole})

    async def forget(self, ledger_ids: Iterable[int]) -> None:
        """Note no more what is deleted, or in the chain; errors as `begin`."""
        gone = set(ledger_ids)
        left = {shared: one for shared, one in self._note.copies.items() if one.ledger_id not in gone}
        if left != self._note.copies:
            await self._write(left)

    async def _write(self, copies: dict[str, _Noted]) -> None:
        """Compare-and-set; a reply that is lost is judged by reading the mark again."""
        note = _Note(self._owner, copies)
        value = msgspec.json.encode(note)
        for _ in range(_TRIES):
            with contextlib.suppress(BadVersionError, NoNodeError, MetadataUnavailableError):
                self._version, self._note = await self._store.set(self._path, value, self._version), note
                return
            with contextlib.suppress(NoNodeError):
                await self._store.sync(self._path)
                found, version = await self._store.get(self._path)
                if version == self._version + 1 and found == value:
                    self._version, self._note = version, note
                    return
                if version == self._version:
                    continue
            break
        raise LogError(
            f"log {self._log}: another rsm log detach has taken over what this one had begun, since its session with "
            "the metadata store was lost; or the log was deleted. Run it once more"
        )


async def checked_copies(client: LedgerClient, chain: LogChain, copies: Iterable[LedgerCopy]) -> list[LedgerCopy]:
    """Return the copies of what a chain shares, after a look at what the metadata store says of each.

    Raises:
        LogError: One of them is none.
        LedgerError, MetadataError: The metadata store cannot be asked.

    """
    shared = {ledger.ledger_id: ledger.closed for ledger in shared_ledgers(chain)}
    found = [copy for copy in copies if copy.shared_id in shared]
    for copy in found:
        end = shared[copy.shared_id]
        try:
            metadata = await client.metadata(copy.ledger_id)
        except NoSuchLedgerError as error:
            raise LogError(f"ledger {copy.ledger_id} is to be a copy of {copy.shared_id}, and is not there") from error
        said = (maker_of(metadata.custom), metadata.is_closed, metadata.last_entry_id, metadata.length)
        if end is None or said != (chain.log_id, True, end.last_entry_id, copy.length):
            raise LogError(f"ledger {copy.ledger_id} is no copy of {copy.shared_id}: its metadata say {said}")
    return found


def detaching_path(log_id: str, rsm_root: str) -> str:
    """Return the node that holds the copies of what a log shares."""
    return f"{rsm_root}/detaching/{log_id}"


async def noted_copies(store: MetadataStore, log_id: str, rsm_root: str) -> list[int]:
    """Return the copies that the mark of a log notes, whole or not.

    Raises:
        CorruptLogError: The mark cannot be read.
        MetadataError: The metadata store cannot be asked.

    """
    path = detaching_path(log_id, rsm_root)
    with contextlib.suppress(NoNodeError):
        return [one.ledger_id for one in _decoded((await store.get(path)).value, path).copies.values()]
    return []


def _decoded(value: bytes, path: str) -> _Note:
    try:
        return json_decoder(_Note).decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"{path}: it does not say which copies are made: {error}. Nothing is changed") from error
