"""Mark of a log that is being made: its ledgers are swept if its maker is gone before there is a chain.

    <root>/making/<log id>         which log is being made, by whom; "swept" once somebody has begun to sweep it
    <root>/making/<log id>-alive   its maker runs; goes with its session

1. A maker shows itself, sets the mark, creates ledgers, then the chain, and looks before and after that whether the
   mark is as it set it. If it is not, the maker was taken for dead: it takes the chain back.
2. Who sweeps finds a mark without its maker, changes it, and only then looks for the chain. If there is one, the log is
   made, and its ledgers stay.
"""

from __future__ import annotations

import contextlib

import msgspec

from ledger.client.client import LedgerClient
from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, MetadataDeniedError, MetadataError, NoNodeError
from ledger.ports import MetadataStore
from rsm_spark.backup.manifest import BackupError
from rsm_spark.core.chain import LogChain, chain_path
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.former_names import present_name
from rsm_spark.log.remains import ledgers_of
from rsm_spark.log.sharing import SharedLedgers

_ALIVE = "-alive"


class _Note(msgspec.Struct, frozen=True):
    log: str
    log_id: str
    by: str
    swept: bool = False


class RestoreMark:
    """Mark of one log that is being made.

    Args:
        store: Session with the metadata store.
        rsm_root: Root of the logs.
        log: Name of the new log.
        log_id: Its uuid, 32 hex digits.
        by: Who makes it.

    """

    def __init__(self, store: MetadataStore, rsm_root: str, log: str, log_id: str, by: str) -> None:
        self._store = store
        self._root = rsm_root
        self._note = _Note(log, log_id, by)
        self._path = f"{rsm_root}/making/{log_id}"

    async def set(self) -> None:
        """Set the mark; from here on ledgers may be created for the log.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        await self._store.create(f"{self._path}{_ALIVE}", ephemeral=True, parents=True)
        await self._store.create(self._path, msgspec.json.encode(self._note))

    async def create_chain(self, chain: LogChain) -> None:
        """Create the chain, unless the maker was taken for dead meanwhile.

        Raises:
            BackupError: It was; there is no such log.
            LogError, MetadataError: As `ChainStore.create`.

        """
        await self._check()
        await ChainStore(self._store, self._note.log, self._root).create(chain)
        try:
            await self._check()
        except BackupError:
            with contextlib.suppress(NoNodeError, BadVersionError):
                await self._store.delete(chain_path(self._note.log, self._root), 0)
            raise
        await self.clear()

    async def clear(self) -> None:
        """Take the mark away: the log is made, or all that was written for it is deleted."""
        for path in (self._path, f"{self._path}{_ALIVE}"):
            with contextlib.suppress(MetadataError):  # Who sweeps finds the chain, or nothing.
                await self._store.delete(path)

    async def _check(self) -> None:
        await self._store.sync(self._path)
        if await self._store.exists(self._path) != 0:
            raise BackupError(
                f"log {self._note.log}: this command lost its session with the metadata store and was taken for dead: "
                "what it had written is deleted. Begin again"
            )


async def sweep_restores(client: LedgerClient, rsm_root: str) -> list[int]:
    """Delete the ledgers of logs whose makers were killed; return their ids, ascending.

    Raises:
        LedgerError, MetadataError: Bookies or metadata store cannot be asked; the next call goes on.

    """
    store = client.store
    swept: list[int] = []
    root = f"{rsm_root}/making"
    await store.sync(root)
    try:
        names = await store.children(root)
    except NoNodeError:
        return []
    for name in names:
        if name.endswith(_ALIVE) or f"{name}{_ALIVE}" in names:
            continue
        path = f"{root}/{name}"
        # Another one sweeps it, or has to: this log-in may not; or it is no mark.
        with contextlib.suppress(NoNodeError, BadVersionError, MetadataDeniedError, msgspec.MsgspecError):
            if await store.exists(f"{path}{_ALIVE}") is not None:
                continue
            value, version = await store.get(path)
            note = json_decoder(_Note).decode(value)
            if note.log_id != name:
                continue
            await store.set(path, msgspec.json.encode(msgspec.structs.replace(note, swept=True)), version)
            if not await _is_made(store, rsm_root, note):
                # The log may have been made, forked and deleted since: what its forks use stays.
                shared = SharedLedgers(client, note.log_id, rsm_root)
                swept += (await shared.delete(await ledgers_of(client, note.log_id, unread=[]))).deleted
            await store.delete(path)
    return sorted(swept)


async def _is_made(store: MetadataStore, rsm_root: str, note: _Note) -> bool:
    return await present_name(store, note.log, note.log_id, rsm_root) is not None
