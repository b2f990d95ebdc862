"""Contents of a log that is being made of another one: written into ledgers of its own, which its pages then name."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

from ledger.client.client import LedgerClient
from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError, NoSuchLedgerError
from rsm_spark.backup.copied_ledgers import create_ledger
from rsm_spark.core.contents import KnownContent, digest_of
from rsm_spark.core.orphans import content_metadata
from rsm_spark.errors import CorruptLogError
from rsm_spark.log.contents import ContentPlace

_WINDOW = 4
"""Chunks that are on their way at once."""


class MadeContents:
    """Writes contents for one log that is being made.

    Args:
        client: Connected ledger client.
        name, log_id: Of the log.
        password: Of its ledgers.
        quorum: Ensemble, write quorum, ack quorum.

    Attributes:
        places: Where they lie.
        bytes: Written.

    """

    def __init__(
        self, client: LedgerClient, name: str, log_id: str, *, password: bytes, quorum: tuple[int, int, int]
    ) -> None:
        self.places: list[ContentPlace] = []
        self.bytes = 0
        self._client = client
        self._name = name
        self._log_id = log_id
        self._password = password
        self._quorum = quorum
        self._created: list[int] = []

    async def write(self, known: KnownContent, chunks: AsyncIterator[bytes]) -> None:
        """Write a content.

        Args:
            known: What it is.
            chunks: Its chunks, checked.

        Raises:
            LedgerError, MetadataError: Bookies or metadata store do not take it.

        """
        custom = content_metadata(self._name, self._log_id, known.number)
        handle = await create_ledger(self._client, self._quorum, self._password, custom)
        self._created.append(handle.ledger_id)
        try:
            await self._fill(handle, chunks)
            last = await handle.close()
        except BaseException:
            handle.abandon()
            raise
        if last != known.content.chunk_count:
            raise CorruptLogError(f"ledger {handle.ledger_id} was closed at entry {last} by somebody else")
        self.places.append(ContentPlace(known.number, known.content.ledger, handle.ledger_id))

    async def _fill(self, handle: WriteHandle, chunks: AsyncIterator[bytes]) -> None:
        digests: list[bytes] = []
        under_way: deque[asyncio.Future[int]] = deque()
        try:
            async for chunk in chunks:
                digests.append(digest_of(chunk))
                under_way.append(handle.append(chunk))
                self.bytes += len(chunk)
                while len(under_way) >= _WINDOW:
                    await under_way.popleft()
            await handle.append(b"".join(digests))
        finally:
            for future in under_way:
                future.add_done_callback(_look_at)

    async def forget(self) -> bool:
        """Delete what was written, for a log that does not come to be; return whether all of it is gone."""
        left = len(self._created)
        for ledger_id in self._created:
            with contextlib.suppress(LedgerError):
                with contextlib.suppress(NoSuchLedgerError):
                    await self._client.delete(ledger_id)
                left -= 1
        return not left


async def in_thread(chunks: Iterator[bytes]) -> AsyncGenerator[bytes]:
    """Iterate over chunks that are read by calls that block, one at a time."""
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _look_at(written: asyncio.Future[int]) -> None:
    if not written.cancelled():
        written.exception()  # The last entry is waited for.
