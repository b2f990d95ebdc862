"""The log chain in the metadata store: one node, read after sync, written by compare-and-set."""

from __future__ import annotations

import contextlib

from ledger.errors import NodeExistsError, NoNodeError
from ledger.ports import MetadataStore, Watcher
from rsm_spark.core.chain import (
    CHAIN_BYTES_MAX,
    DEFAULT_RSM_ROOT,
    LogChain,
    chain_path,
    check_chain_size,
    decode_chain,
    encode_chain,
)
from rsm_spark.errors import LogError, NoSuchLogError


class ChainStore:
    """Chain of one log.

    Args:
        store: Session with the metadata store.
        log_name: Name of the log.
        rsm_root: Where logs live.

    """

    def __init__(self, store: MetadataStore, log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> None:
        self.log_name = log_name
        self._store = store
        self._path = chain_path(log_name, rsm_root)

    async def ensure(self, log_id: str) -> LogChain:
        """Create the log if there is none, and return its chain.

        Args:
            log_id: 32 hex digits, drawn by the caller; only used if the log is created by this call.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        await self._store.sync(self._path)
        if await self._store.exists(self._path) is None:
            with contextlib.suppress(NodeExistsError):  # Another replica was faster: its log id counts.
                await self._store.create(self._path, encode_chain(LogChain(log_id)), parents=True)
        return (await self.read())[0]

    async def create(self, chain: LogChain) -> None:
        """Begin a log with the chain of one that was made elsewhere.

        Raises:
            LogError: There is a log of this name; or its chain is longer than the metadata store takes.
            MetadataError: The metadata store cannot be asked.

        """
        value = encode_chain(chain)
        check_chain_size(value, len(chain.ledgers), CHAIN_BYTES_MAX, log_name=self.log_name)
        try:
            await self._store.create(self._path, value, parents=True)
        except NodeExistsError as error:
            raise LogError(f"log {self.log_name}: there is one already: choose another name") from error

    async def read(self, *, watch: Watcher | None = None, sync: bool = True) -> tuple[LogChain, int]:
        """Return the chain and its version.

        Args:
            watch: Called once when the chain may have changed.
            sync: See every write that was acknowledged before this call.

        Raises:
            NoSuchLogError: There is no log of this name.
            CorruptLogError: The node holds no chain.
            MetadataError: The metadata store cannot be asked.

        """
        value, version = await self.read_bytes(watch=watch, sync=sync)
        return decode_chain(value, log_name=self.log_name), version

    async def read_if_changed(
        self, known: tuple[LogChain, int] | None, *, watch: Watcher | None = None
    ) -> tuple[LogChain, int]:
        """Return chain and version as `read` does; only a version is asked for if it is the one that is known.

        The chain of a log with thousands of ledgers has hundreds of kilobytes, and every follower looks each second.
        """
        await self._store.sync(self._path)
        if known is not None and await self._store.exists(self._path, watch=watch) == known[1]:
            return known
        return await self.read(watch=watch, sync=False)

    async def read_bytes(self, *, watch: Watcher | None = None, sync: bool = True) -> tuple[bytes, int]:
        """Return the node as it is; errors as `read`."""
        if sync:
            await self._store.sync(self._path)
        try:
            found = await self._store.get(self._path, watch=watch)
        except NoNodeError as error:
            raise NoSuchLogError(
                f"log {self.log_name}: there is no node {self._path}: check the name and the metadata URI"
            ) from error
        return found.value, found.version

    async def write(self, value: bytes, held_version: int) -> int:
        """Compare-and-set; return the version that it produced.

        Raises:
            BadVersionError: The chain has another version; nothing was changed.
            MetadataUnavailableError: No reply: the write may have arrived, or may still.
            MetadataError: Other answers of the metadata store.

        """
        return await self._store.set(self._path, value, held_version)
