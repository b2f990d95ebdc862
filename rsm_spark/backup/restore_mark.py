"""Mark of a log that is being made: its ledgers are swept if its maker is gone before there is a chain.

    <root>/making/<log id>         which log is being made, by whom; "swept" once somebody has begun to sweep it
    <root>/making/<log id>-alive   its maker runs; goes with its session

1. A maker shows itself, sets the mark, creates ledgers, and at the end puts the chain into the place of the mark, in
   one write, which fails if the mark is not as it set it: then the maker was taken for dead.
2. A write whose reply is lost is looked at: without the mark and with the chain it has arrived; with the mark as it
   was it may still arrive, and is sent again.
3. Who gives up, or sweeps after a maker that is gone, changes the mark first: then no chain comes any more, however
   late. If there is no mark, the log is made, and its ledgers stay as long as the chain does.
"""

from __future__ import annotations

import contextlib

import msgspec

from ledger.client.client import LedgerClient
from ledger.decoding import json_decoder
from ledger.errors import (
    BadVersionError,
    MetadataDeniedError,
    MetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.ports import MetadataStore, NodeChange
from rsm_spark.backup.manifest import BackupError
from rsm_spark.core.chain import CHAIN_BYTES_MAX, LogChain, chain_path, check_chain_size, encode_chain
from rsm_spark.errors import LogError, LogExistsError
from rsm_spark.log.deletion import contents_path, delete_tree, ensure_node
from rsm_spark.log.former_names import present_name
from rsm_spark.log.remains import ledgers_of
from rsm_spark.log.sharing import SharedLedgers

_ALIVE = "-alive"
_TRIES = 5


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
            LogError: There is a log of this name; or its chain is longer than the metadata store takes.
            MetadataError: The metadata store cannot be asked: `withdraw` tells whether the log is made.

        """
        log, path, value = self._note.log, chain_path(self._note.log, self._root), encode_chain(chain)
        check_chain_size(value, len(chain.ledgers), CHAIN_BYTES_MAX, log_name=log)
        await ensure_node(self._store, path.rpartition("/")[0])
        for attempt in range(1, _TRIES + 1):
            try:
                await self._store.change([NodeChange(path, value, None), NodeChange(self._path, None, 0)])
            except (NodeExistsError, BadVersionError, NoNodeError) as error:
                if await _is_made(self._store, self._root, self._note):
                    break
                if isinstance(error, NodeExistsError):
                    raise LogExistsError(f"log {log}: there is one already: choose another name") from error
                raise BackupError(
                    f"log {log}: this command lost its session with the metadata store and was taken for dead: what it "
                    "had written is deleted. Begin again"
                ) from error
            except MetadataUnavailableError:
                if attempt == _TRIES:
                    raise
            else:
                break
        await self.clear()

    async def withdraw(self) -> bool:
        """Have no chain come any more, and take back one that came; return False if the log is made and used.

        Only after True what was written for the log may be deleted.

        Raises:
            MetadataError: The metadata store cannot be asked: who sweeps finds out.

        """
        swept = msgspec.json.encode(msgspec.structs.replace(self._note, swept=True))
        for attempt in range(1, _TRIES + 1):
            try:
                await self._store.set(self._path, swept, 0)
            except BadVersionError:
                return True  # By an earlier try, or by one who sweeps.
            except NoNodeError:
                gone = NodeChange(chain_path(self._note.log, self._root), None, 0)
                with contextlib.suppress(MetadataUnavailableError):  # The next try tells.
                    try:
                        await self._store.change([gone, NodeChange(self._path, swept, None)])
                    except (BadVersionError, NoNodeError):
                        return not await _is_made(self._store, self._root, self._note)
                    return True
            except MetadataUnavailableError:
                if attempt == _TRIES:
                    raise
            else:
                return True
        raise MetadataUnavailableError(f"{self._path}: no reply to {_TRIES} tries to take a log back")

    async def clear(self) -> None:
        """Take the mark away: the log is made, or all that was written for it is deleted."""
        for path in (self._path, f"{self._path}{_ALIVE}"):
            with contextlib.suppress(MetadataError):  # Who sweeps finds the chain, or nothing.
                await self._store.delete(path)


async def is_withdrawn(mark: RestoreMark, log: str, why: BaseException) -> bool:
    """Return whether what was written for a log may be deleted; False = nobody knows: who sweeps finds out.

    Args:
        mark: Of the log.
        log: Its name.
        why: What has broken the making off.

    Raises:
        LogError: The log is made all the same.

    """
    try:
        if await mark.withdraw():
            return True
    except MetadataError:
        return False
    raise LogError(
        f"log {log}: this command was broken off ({str(why) or type(why).__name__}), but the log was made before, and "
        f"is used already. If it is not wanted: rsm log delete {log}"
    ) from why


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
                await delete_tree(store, contents_path(note.log_id, rsm_root))
            await store.delete(path)
    return sorted(swept)


async def _is_made(store: MetadataStore, rsm_root: str, note: _Note) -> bool:
    return await present_name(store, note.log, note.log_id, rsm_root) is not None
