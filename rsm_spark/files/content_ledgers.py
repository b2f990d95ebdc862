"""Contents in ledgers of their own: written while they come, closed, then read by whoever has the log's word for them.

A writer holds some chunks in memory, a reader two, however long the content is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from typing import NamedTuple

from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.client.write_handle import WriteHandle
from rsm_spark.core.chain import LogChain
from rsm_spark.core.contents import CHUNK_BYTES, FileContent, digest_of
from rsm_spark.core.orphans import content_metadata
from rsm_spark.errors import DamagedContentError
from rsm_spark.files.commands import FilePlace
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.contents import ContentPlaces, checked_chunk, logged_ledgers, note_contents, open_content
from rsm_spark.runtime.settings import ReplicaSettings

_FETCHED_MAX = 32
"""Chunks that are fetched at once, for all who read: they count against nobody before they are there."""
_WINDOW = 4
"""Chunks of one content that are on their way to bookies at once."""
_INDEXES_BYTES_MAX = 16 * 1024 * 1024
"""Of all contents that are read now and then: an index has 256 KiB at most."""


class ContentWriter:
    """Writes one content. Made by `ContentLedgers.create`.

    Args:
        handle: Of its ledger.

    Attributes:
        ledger: Its id.
        size: Bytes taken so far.

    """

    def __init__(self, handle: WriteHandle) -> None:
        self.ledger = handle.ledger_id
        self.size = 0
        self._handle = handle
        self._digests: list[bytes] = []
        self._under_way: deque[asyncio.Future[int]] = deque()

    async def write(self, chunk: bytes) -> None:
        """Write a chunk: `CHUNK_BYTES`, the last one may be shorter. Waits while some are on their way.

        Raises:
            LedgerError: Bookies do not take it: the content is lost.

        """
        assert self.size == len(self._digests) * CHUNK_BYTES, "a short chunk is the last one"
        self._digests.append(digest_of(chunk))
        self.size += len(chunk)
        self._under_way.append(self._handle.append(chunk))
        while len(self._under_way) >= _WINDOW:
            await self._under_way.popleft()

    async def close(self) -> FileContent:
        """Write the index, and close the ledger: from then on it is as it is, for ever.

        Raises:
            LedgerError: Bookies or the metadata store do not take it: the content is lost.

        """
        index = b"".join(self._digests)
        await self._handle.append(index)
        last = await self._handle.close()
        content = FileContent(self.ledger, self.size, len(self._digests), digest_of(index))
        if last != content.chunk_count:
            # Somebody else has closed it, at another end: what was acknowledged is there, and something is wrong.
            raise DamagedContentError(f"ledger {self.ledger} was closed at entry {last} by somebody else")
        return content

    def give_up(self) -> None:
        """Write no more. The ledger goes when the log says that nothing will name it."""
        self._handle.abandon()
        for future in self._under_way:
            future.add_done_callback(_passed_over)
            future.cancel()


def _passed_over(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()


class _Opened(NamedTuple):
    handle: ReadHandle
    digests: bytes


class ContentLedgers:
    """Ledgers of the contents of one log. For one event loop.

    Args:
        client: Connected ledger client; stays the caller's.
        chains: Of the log.
        log: Its name.
        settings: Of its replicas: quorums and passwords of ledgers.

    """

    def __init__(self, client: LedgerClient, chains: ChainStore, log: str, settings: ReplicaSettings) -> None:
        self._client = client
        self._chains = chains
        self._log = log
        self._settings = settings
        self._places = ContentPlaces(client.store, settings.rsm_root)
        self._opened: OrderedDict[FileContent, _Opened] = OrderedDict()
        self._index_bytes = 0
        self._is_noted = False
        self._fetching = asyncio.Semaphore(_FETCHED_MAX)

    # ---- writing

    async def create(self, number: int) -> ContentWriter:
        """Return a writer of a new ledger, as the log's own are.

        Args:
            number: Of the upload: the ledger says for ever for which one it was made.

        Raises:
            LedgerError: There are too few bookies, or the metadata store does not answer.
            RsmError: The chain cannot be read.

        """
        chain, _ = await self._chains.read()
        settings = self._settings
        if not self._is_noted:
            await note_contents(self._client.store, chain.log_id, settings.rsm_root)
            self._is_noted = True
        older = logged_ledgers((await self._places.of(chain)).values())
        while True:
            handle = await self._new_ledger(chain, number)
            if handle.ledger_id not in older:  # Else the log could not tell it from a content of the log of before.
                return ContentWriter(handle)
            handle.abandon()
            await self._client.delete(handle.ledger_id)

    async def _new_ledger(self, chain: LogChain, number: int) -> WriteHandle:
        settings = self._settings
        return await self._client.create(
            ensemble_size=settings.ensemble_size,
            write_quorum=settings.write_quorum,
            ack_quorum=settings.ack_quorum,
            password=self._password(chain),
            custom=content_metadata(self._log, chain.log_id, number),
            ensemble_min=settings.ack_quorum,
        )

    def _password(self, chain: LogChain) -> bytes:
        keys = self._settings.log_keys
        if not chain.key_id or keys is None:
            return self._settings.ledger_password
        return keys.password(chain.key_id, chain.log_id)

    # ---- reading

    async def pieces(self, place: FilePlace, offset: int, end: int) -> AsyncGenerator[bytes]:
        """Iterate over a part of a content, chunk by chunk; the next one is fetched while one is taken.

        Args:
            place: What the log says of it.
            offset: Of the part.
            end: Behind its last byte; not behind that of the content.

        Raises:
            DamagedContentError: The ledger does not hold what was written.
            LedgerError: Bookies do not answer, or the ledger is gone: the file was deleted long ago.

        """
        content = place.content
        opened = await self._open(place)
        number, last = offset // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        coming = self._fetch(opened, content, number)
        try:
            while True:
                chunk = await coming
                begin = number * CHUNK_BYTES
                number += 1
                if number <= last:
                    coming = self._fetch(opened, content, number)
                yield chunk[max(0, offset - begin) : end - begin]
                if number > last:
                    return
        finally:
            coming.cancel()
            coming.add_done_callback(_looked_at)

    def _fetch(self, opened: _Opened, content: FileContent, number: int) -> asyncio.Task[bytes]:
        return asyncio.get_running_loop().create_task(self._chunk(opened, content, number))

    async def _chunk(self, opened: _Opened, content: FileContent, number: int) -> bytes:
        async with self._fetching:
            (entry,) = await opened.handle.read(number, number)
        return checked_chunk(content, opened.digests, number, entry.payload)

    async def _open(self, place: FilePlace) -> _Opened:
        content = place.content
        found = self._opened.get(content)
        if found is not None:
            self._opened.move_to_end(content)
            return found
        chain, _ = await self._chains.read()
        ledger = await self._places.ledger_of(chain, place.number, content.ledger)
        opened = _Opened(*await open_content(self._client, chain, place.number, content, ledger))
        self._remember(content, opened)
        return opened

    def _remember(self, content: FileContent, opened: _Opened) -> None:
        if content in self._opened:  # Read by another request meanwhile.
            return
        self._opened[content] = opened
        self._index_bytes += len(opened.digests)
        while self._index_bytes > _INDEXES_BYTES_MAX:
            _, oldest = self._opened.popitem(last=False)
            self._index_bytes -= len(oldest.digests)


def _looked_at(task: asyncio.Task[bytes]) -> None:
    if not task.cancelled():
        task.exception()
