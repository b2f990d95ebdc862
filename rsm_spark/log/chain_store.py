"""The log chain in the metadata store: one node, read after sync, written by compare-and-set."""

from __future__ import annotations

import contextlib
import time

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
from rsm_spark.core.partition_layout import layout_path, partition_log
from rsm_spark.errors import LogExistsError, NoSuchLogError, PartitionedLogError, RenamedLogError
from rsm_spark.log.former_names import former_name, present_name


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
        self._rsm_root = rsm_root
        self._path = chain_path(log_name, rsm_root)

    async def ensure(self, log_id: str) -> LogChain:
        """Create the log if there is none, and return its chain.

        Args:
            log_id: 32 hex digits, drawn by the caller; only used if the log is created by this call.

        Raises:
            RenamedLogError: The log that had this name has another one now.
            PartitionedLogError: It is the name of a partitioned log.
            MetadataError: The metadata store cannot be asked.

        """
        await self._store.sync(self._path)
        if await self._store.exists(self._path) is None:
            await self.explain_absence()
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
        if await self._store.exists(layout_path(self.log_name, self._rsm_root)) is not None:
            raise LogExistsError(f"log {self.log_name}: there is a partitioned one already: choose another name")
        try:
            await self._store.create(self._path, value, parents=True)
        except NodeExistsError as error:
            raise LogExistsError(f"log {self.log_name}: there is one already: choose another name") from error

    async def read(self, *, watch: Watcher | None = None, sync: bool = True) -> tuple[LogChain, int]:
        """Return the chain and its version.

        Args:
            watch: Called once when the chain may have changed.
            sync: See every write that was acknowledged before this call.

        Raises:
            NoSuchLogError: There is no log of this name; see `explain_absence`.
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
            await self.explain_absence()
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

    async def explain_absence(self) -> None:
        """Say what is known of a name of which there is no chain.

        Raises:
            RenamedLogError: The log that had it has another name now.
            PartitionedLogError: A partitioned log has it.
            MetadataError: The metadata store cannot be asked.

        """
        if await self._store.exists(layout_path(self.log_name, self._rsm_root)) is not None:
            first = partition_log(self.log_name, 0)
            raise PartitionedLogError(
                f"log {self.log_name}: it is partitioned: this is done to one of its partitions, which are logs named "
                f"{first} and so on; what takes it as a whole is named in docs/logs.md"
            )
        found = await former_name(self._store, self.log_name, self._rsm_root)
        if found is None:
            return
        named = await present_name(self._store, found.new_name, found.log_id, self._rsm_root)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.at_ms / 1000))
        now = f"use the name {named}" if named else f"and is not there any more (last name known: {found.new_name})"
        raise RenamedLogError(
            f"log {self.log_name}: {found.by or 'somebody'} renamed it to {found.new_name} at {since}: {now}. To begin "
            f"another log of this name: rsm log rename {self.log_name} --forget",
            named or found.new_name,
        )
