"""The driver's way to metadata store and bookies: blocking calls that outlast a blink of either.

Nothing is connected before the first call: Spark builds readers in several processes and pickles them.
"""

from __future__ import annotations

import difflib
import logging
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from connectors.errors import OptionError
from connectors.source.decode import StoredEntry
from connectors.source.look import Confirmed
from connectors.source.options import SourceOptions
from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.core.metadata import LedgerMetadata
from ledger.errors import (
    MetadataError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NoNodeError,
    RetryableError,
    UsageError,
    WrongPasswordError,
)
from ledger.loop_thread import LoopThread
from ledger.private_files import refuse_loose
from rsm_spark.core.chain import LogChain, chain_path, decode_chain
from rsm_spark.core.orphans import KEY_ID_OF_LEDGER
from rsm_spark.core.partition_layout import PartitionLayout, decode_layout, layout_path
from rsm_spark.core.seal import KeyRing
from rsm_spark.errors import NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import ConsumerState, LogConsumers
from rsm_spark.log.former_names import former_name, former_names, present_name
from rsm_spark.log.key_file import KeyFile

_LOGGER = logging.getLogger(__name__)
_RETRY_S_MAX = 60.0
_RETRY_DELAY_S_MAX = 2.0
_LOGS_NAMED_MAX = 5
REACH_S = 3.0
"""For a metadata server to take the first connection: where none does, the address is wrong, and a query is told so."""
_AUTH_FILE_VARIABLE = "RSM_ZK_AUTH_FILE"
_BLINKS = (RetryableError, MetadataUnavailableError, MetadataSessionLostError)
_T = TypeVar("_T")


class DriverAccess:
    """Implements `look.LogAccess` and `holding.ConsumerAccess` on a real cluster.

    Args:
        options: Of the query.
        reach_s: For a metadata server to take the first connection.

    """

    def __init__(self, options: SourceOptions, *, reach_s: float = REACH_S) -> None:
        self._options = options
        self._reach_s = reach_s
        self._thread: LoopThread | None = None
        self._client: LedgerClient | None = None
        self._handles: dict[int, ReadHandle] = {}
        self._keys: KeyFile | None = None

    def chain(self, log: str) -> LogChain:
        """Read the chain of a log, no older than this call.

        Raises:
            NoSuchLogError: There is none.

        """
        return self._call(lambda client: self._chain(client, log))

    async def _chain(self, client: LedgerClient, log: str) -> LogChain:
        path = chain_path(log, self._options.rsm_root)
        await client.store.sync(path)
        try:
            value = (await client.store.get(path)).value
        except NoNodeError:
            # Whoever knows a former name hears the new one.
            await ChainStore(client.store, log, self._options.rsm_root).explain_absence()
            raise NoSuchLogError(
                f"there is no log {log} under {self._options.rsm_root} ({await self._known_logs(client, path)}): check "
                "the options log, metadataUri and rsmRoot, or start the service that writes it first"
            ) from None
        return decode_chain(value, log_name=log)

    async def _known_logs(self, client: LedgerClient, path: str) -> str:
        """Name the logs that there are, the nearest first."""
        try:
            names = await client.store.children(path.rpartition("/")[0])
        except NoNodeError:
            names = []
        nearest = difflib.get_close_matches(path.rpartition("/")[2], names, n=_LOGS_NAMED_MAX, cutoff=0.0)
        return f"known: {', '.join(nearest)}" if names else "it knows no logs at all"

    def logs(self) -> list[str]:
        """Return the names of all logs under the options' `rsmRoot`, ascending; no older than this call."""
        return self._children_of(chain_path("", self._options.rsm_root).rstrip("/"))

    def _children_of(self, folder: str) -> list[str]:
        async def ask(client: LedgerClient) -> list[str]:
            await client.store.sync(folder)
            try:
                return sorted(await client.store.children(folder))
            except NoNodeError:
                return []

        return self._call(ask)

    def layout(self, log: str) -> PartitionLayout | None:
        """Read the layout of a partitioned log, no older than this call; None = there is none of this name.

        Raises:
            CorruptLogError: What stands there cannot be right.

        """

        async def ask(client: LedgerClient) -> PartitionLayout | None:
            path = layout_path(log, self._options.rsm_root)
            await client.store.sync(path)
            try:
                return decode_layout((await client.store.get(path)).value, log=log)
            except NoNodeError:
                return None

        return self._call(ask)

    def partitioned_logs(self) -> list[str]:
        """Return the names of all partitioned logs under the options' `rsmRoot`, ascending; no older than this call."""
        return self._children_of(layout_path("", self._options.rsm_root).rstrip("/"))

    def present_name(self, log: str) -> str | None:
        """Return the name that the log has now which had this one; None = none is known, or it is gone."""

        async def ask(client: LedgerClient) -> str | None:
            root = self._options.rsm_root
            if await client.store.exists(chain_path(log, root)) is not None:
                return None  # Another log has this name.
            found = await former_name(client.store, log, root)
            return None if found is None else await present_name(client.store, found.new_name, found.log_id, root)

        return self._call(ask)

    def former_names(self, log: str) -> tuple[str, list[str]]:
        """Return the id of a log, 32 hex digits, and the names that it had.

        Raises:
            NoSuchLogError: There is none.

        """

        async def ask(client: LedgerClient) -> tuple[str, list[str]]:
            log_id = (await self._chain(client, log)).log_id
            return log_id, await former_names(client.store, log_id, self._options.rsm_root)

        return self._call(ask)

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Read a ledger's metadata, no older than this call.

        Raises:
            NoSuchLedgerError: It does not exist.

        """

        async def ask(client: LedgerClient) -> LedgerMetadata:
            metadata = await client.metadata(ledger_id, sync=True)
            handle = self._handles.get(ledger_id)
            if handle is not None:
                handle.metadata = metadata
            return metadata

        return self._call(ask)

    def confirmed(self, ledger_id: int) -> Confirmed:
        """Ask the bookies for a ledger's end.

        Raises:
            QuorumLostError: No bookie answered, for as long as is waited.

        """

        async def ask(client: LedgerClient) -> Confirmed:
            handle = await self._handle(client, ledger_id)
            info = await handle.read_lac()
            return Confirmed(info.last_add_confirmed, info.explicit_lac)

        return self._call(ask)

    def read(self, ledger_id: int, first_entry_id: int, last_entry_id: int) -> list[StoredEntry]:
        """Read entries of a ledger; they must be confirmed, or at most at the highest LAC."""

        async def ask(client: LedgerClient) -> list[StoredEntry]:
            handle = await self._handle(client, ledger_id)
            # Not `read`: a LAC that another handle has proved may not have reached this one yet.
            entries = await handle.read_unconfirmed(first_entry_id, last_entry_id)
            return [StoredEntry(entry.entry_id, entry.length, bytes(entry.payload)) for entry in entries]

        return self._call(ask)

    def addresses(self, bookie_ids: frozenset[str]) -> dict[str, tuple[str, int]]:
        """Return where bookies listen, by their ids: tasks have no metadata store to ask."""

        async def ask(client: LedgerClient) -> dict[str, tuple[str, int]]:
            return {bookie_id: await client.ledgers.bookie_address(bookie_id) for bookie_id in sorted(bookie_ids)}

        return self._call(ask)

    def register_consumer(self, log: str, name: str, state: ConsumerState) -> int:
        """Hold a log from a position on; see `LogConsumers.register`."""

        async def ask(client: LedgerClient) -> int:
            consumers = await self._consumers(client, log)
            return await consumers.register(
                log, name, state.revision, what=state.what, holder=state.holder, hold_ms=state.hold_ms,
                hold_bytes=state.hold_bytes,
            )  # fmt: skip

        return self._call(ask)

    def move_consumer(self, log: str, name: str, revision: int, holder: str) -> bool:
        """Let go of what a consumer has read; see `LogConsumers.advance`."""

        async def ask(client: LedgerClient) -> bool:
            return await (await self._consumers(client, log)).advance(name, revision, holder=holder)

        return self._call(ask)

    async def _consumers(self, client: LedgerClient, log: str) -> LogConsumers:
        return LogConsumers(client.store, (await self._chain(client, log)).log_id, self._options.rsm_root)

    def close(self) -> None:
        """End all connections; the next call opens them again."""
        thread, client = self._thread, self._client
        self._thread, self._client, self._handles = None, None, {}
        if thread is not None:
            if client is not None:
                thread.run(client.close())
            thread.stop()

    def _call(self, work: Callable[[LedgerClient], Coroutine[Any, Any, _T]]) -> _T:
        """Run `work` again while a bookie or the metadata store blinks, for at most `_RETRY_S_MAX`."""
        client = self._connected()
        assert self._thread is not None, "connected above"
        deadline = time.monotonic() + _RETRY_S_MAX
        delay_s = 0.1
        while True:
            try:
                return self._thread.run(work(client))
            except _BLINKS as error:
                if time.monotonic() + delay_s > deadline:
                    raise
                _LOGGER.warning("trying again: %s", error)
                time.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_DELAY_S_MAX)
            except MetadataError as error:
                if _AUTH_FILE_VARIABLE not in str(error):
                    raise
                raise MetadataError(f"{error}, or in option zkAuthFile") from error

    def _connected(self) -> LedgerClient:
        if self._client is None:
            self._thread = self._thread or LoopThread("ledger-driver")
            options = self._options
            connect = LedgerClient.connect(
                options.metadata_uri,
                zk_auth_file=options.zk_auth_file,
                zk_tls_file=options.zk_tls_file,
                reach_timeout_s=self._reach_s,
            )
            self._client = self._thread.run(connect)
        return self._client

    async def _handle(self, client: LedgerClient, ledger_id: int) -> ReadHandle:
        handle = self._handles.get(ledger_id)
        if handle is None:
            try:
                handle = await client.open_no_recovery(ledger_id, password=self.password())
            except WrongPasswordError:
                # A log's key makes the passwords of its ledgers: they guard writing, and readers need no key.
                if KEY_ID_OF_LEDGER not in (await client.metadata(ledger_id)).custom:
                    raise
                handle = await client.open_no_recovery(ledger_id, password=None)
            self._handles[ledger_id] = handle
        return handle

    def log_keys(self) -> KeyRing | None:
        """Return the keys of the file that `logKeyFile` names, as it is now; None without one.

        Raises:
            OptionError: It cannot be read, or is none.

        """
        path = self._options.log_key_file
        if path is None:
            return None
        if self._keys is None:
            try:
                self._keys = KeyFile.read(Path(path), may_sign=False)
            except UsageError as error:
                raise OptionError(f"option logKeyFile: {error}") from error
        self._keys.refresh()
        return self._keys

    def password(self) -> bytes:
        """Read the password of the ledgers from where the options say.

        Raises:
            OptionError: It cannot be read.

        """
        options = self._options
        if options.password_env is not None:
            value = os.environ.get(options.password_env)
            if value is None:
                raise OptionError(f"option passwordEnv names {options.password_env}: the driver has no such variable")
            return value.encode()
        if options.password_file is None:
            return b""
        try:
            refuse_loose(options.password_file, "passwordFile")
            return Path(options.password_file).read_bytes().rstrip(b"\r\n")
        except (OSError, UsageError) as error:
            raise OptionError(f"option passwordFile: {error}") from error
