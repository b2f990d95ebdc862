"""Client of a file store for commands of `rsm files`: finds the leader by the log's name, over a replica's own ports.

Programs have WebHDFS for the same: fsspec, Hadoop's clients, or any client of HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Self

from ledger.client.client import LedgerClient
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.files.commands import (
    EntriesPage,
    EntriesSum,
    EntryShown,
    FileCommand,
    FileDone,
    FilePart,
    FilePlace,
    FileQuery,
    FileRefused,
    FileResult,
    ListEntries,
    ReadFile,
    ShowEntry,
    SumEntries,
    UploadBegun,
    decode_reply,
    decode_result,
    encode,
)
from rsm_spark.files.content_ledgers import ContentLedgers
from rsm_spark.files.records import FILES_DESCRIPTION
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.settings import ReplicaSettings


class FileClient:
    """See the module. Made by `connect`; for one event loop.

    Args:
        service: Sends commands and queries; closed with it.
        ledgers: Connects to the cluster's ledgers, once a content is read that lies in one; closed with it.
        log: Name of the log.
        rsm_root: Where logs live.

    """

    def __init__(
        self,
        service: ServiceClient,
        ledgers: Callable[[], Awaitable[LedgerClient]],
        log: str,
        rsm_root: str = DEFAULT_RSM_ROOT,
    ) -> None:
        self._service = service
        self._connect = ledgers
        self._log = log
        self._rsm_root = rsm_root
        self._ledgers: LedgerClient | None = None

    @classmethod
    async def connect(
        cls, log: str, metadata_uri: str | None = None, *, rsm_root: str = DEFAULT_RSM_ROOT, timeout_s: float = 30.0
    ) -> FileClient:
        """Return a client of the file store whose log has this name.

        Raises:
            MetadataUnavailableError: ZooKeeper does not answer.
            UsageError: A file of TLS or tokens cannot be used.

        """
        service = await ServiceClient.connect(
            log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout_s, machine=FILES_DESCRIPTION.name
        )
        return cls(service, lambda: LedgerClient.connect(metadata_uri), log, rsm_root)

    def keep_session(self, kept: KeptSession) -> None:
        """Send commands in a session that was kept, and keep it again at the end; before the first call."""
        self._service.keep_session(kept)

    async def execute(self, command: FileCommand) -> FileDone | UploadBegun:
        """Have a command carried out; return its reply.

        Raises:
            FileError: It was refused.
            RsmError: See `ServiceClient`.

        """
        reply = decode_reply((await self._service.execute(encode(command))).payload)
        if isinstance(reply, FileRefused):
            raise reply.error()
        return reply

    async def query(self, query: FileQuery) -> FileResult:
        """Return what is asked.

        Raises:
            FileError: There is no such thing.
            RsmError: See `ServiceClient`.

        """
        result = decode_result((await self._service.query(encode(query))).payload)
        if isinstance(result, FileRefused):
            raise result.error()
        return result

    async def show(self, path: str) -> EntryShown:
        """Return what lies at a path."""
        found = await self.query(ShowEntry(path))
        assert isinstance(found, EntryShown)
        return found

    async def entries(self, path: str) -> AsyncIterator[EntryShown]:
        """Iterate over a directory in the order of its names; of a file itself."""
        after = ""
        while True:
            page = await self.query(ListEntries(path, after))
            assert isinstance(page, EntriesPage)
            for entry in page.entries:
                yield entry
            if not page.has_more:
                return
            after = page.entries[-1].name

    async def sum_up(self, path: str) -> EntriesSum:
        """Return the sum of what lies at a path and below."""
        found = await self.query(SumEntries(path))
        assert isinstance(found, EntriesSum)
        return found

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        """Iterate over the content of a file as it is at the first piece.

        Raises:
            FileError: There is none, or another one took its place meanwhile.
            DamagedContentError: Its ledger does not hold what was written.
            LedgerError: Its ledger cannot be read.

        """
        found = await self.query(ReadFile(path))
        at = 0
        while True:
            assert isinstance(found, FilePart | FilePlace)
            size, number = found.size, found.number
            if isinstance(found, FilePlace):
                contents = await self._contents()
                async with aclosing(contents.pieces(found, at, found.content.size)) as pieces:
                    async for piece in pieces:
                        at += len(piece)
                        yield piece
            else:
                at += len(found.content)
                yield found.content
            if at >= size:
                return
            found = await self.query(ReadFile(path, at, size - at, number))

    async def _contents(self) -> ContentLedgers:
        if self._ledgers is None:
            self._ledgers = await self._connect()
        chains = ChainStore(self._ledgers.store, self._log, self._rsm_root)
        return ContentLedgers(self._ledgers, chains, self._log, ReplicaSettings(rsm_root=self._rsm_root))

    async def close(self) -> None:
        """Disconnect."""
        if self._ledgers is not None:
            await self._ledgers.close()
        await self._service.close()

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()
