"""Contents beside a log, in a place of backups: copied chunk by chunk, each checked on its way in and out.

A content never changes, and its digest is in the names of its files: what is there, whole, is not copied again, also
where a backup that was killed has left it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import IO, Any

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError, MetadataError, NoSuchLedgerError
from rsm_spark.backup.manifest import PART_CHUNKS, BackupError, BackupManifest, CorruptBackupError, content_files
from rsm_spark.backup.place import BackupPlace
from rsm_spark.core.chain import LogChain
from rsm_spark.core.contents import DIGEST_BYTES, KnownContent
from rsm_spark.core.orphans import content_number, maker_of
from rsm_spark.errors import DamagedContentError
from rsm_spark.log.contents import ContentPlace, checked_chunk, makers_of, open_content

_CHUNKS_AT_ONCE = 4


class ContentCopies:
    """Copies contents of one log to a place of backups.

    Args:
        client: Connected ledger client.
        chain: Of the log.
        moved: Where contents lie that were begun before the log was made of another one.
        place: Of the backups.
        folder: Of the log, in the place.
        hold_back: Told of bytes that were copied; waits if that was too fast.

    Attributes:
        copied: How many were copied.

    """

    def __init__(
        self,
        client: LedgerClient,
        chain: LogChain,
        moved: Mapping[int, ContentPlace],
        place: BackupPlace,
        folder: str,
        hold_back: Callable[[int], Awaitable[None]],
    ) -> None:
        self.copied = 0
        self._client = client
        self._chain = chain
        self._moved = moved
        self._place = place
        self._folder = folder
        self._hold_back = hold_back

    async def keep(self, known: KnownContent, sizes: MutableMapping[str, int]) -> bool:
        """Have a content in the place; return False if it is gone, or not readable, and no state names it any more.

        Args:
            known: The content.
            sizes: Of the files that are there, by path below the log's folder; what is copied is added.

        Raises:
            DamagedContentError: Its ledger does not hold what was written, and the last state names it.
            BackupError: It is gone, or bookies cannot give it, and the last state names it; or the place cannot be
                written.
            MetadataError: The metadata store cannot be asked.

        """
        lacking = [path for path, size in content_files(known).items() if sizes.get(path) != size]
        if not lacking:
            return True
        moved = self._moved.get(known.number)
        ledger = known.content.ledger if moved is None else moved.ledger
        if known.freed and not await self._is_there(known.number, ledger):
            return False
        try:
            await self._copy(known, ledger, lacking)
        except MetadataError:
            raise
        except (DamagedContentError, LedgerError) as error:
            if known.freed:
                return False  # The next backup tries again, if it is there still.
            if isinstance(error, LedgerError) and not await self._is_there(known.number, ledger):
                raise BackupError(
                    f"ledger {ledger}, the content of file {known.number}, was deleted meanwhile: make the backup once "
                    "more"
                ) from error
            kind = DamagedContentError if isinstance(error, DamagedContentError) else BackupError
            raise kind(
                f"file {known.number}, whose content is ledger {ledger}, cannot be read: {error}. No backup is made "
                "without it: if that stays so, delete the file or write it anew (rsm files ls --json tells numbers; an "
                "earlier backup may have it whole)"
            ) from error
        sizes.update(content_files(known))
        self.copied += 1
        return True

    async def _is_there(self, number: int, ledger: int) -> bool:
        """Return whether a ledger was made for a content, and is not deleted; if not, it stayed with an older log."""
        try:
            custom = (await self._client.metadata(ledger)).custom
        except NoSuchLedgerError:
            return False
        return content_number(custom) == number and maker_of(custom) in makers_of(self._chain)

    async def _copy(self, known: KnownContent, ledger: int, lacking: list[str]) -> None:
        content = known.content
        handle, index = await open_content(self._client, self._chain, known.number, content, ledger)
        try:
            for part, path in enumerate(content_files(known)):
                if path not in lacking:
                    continue
                with tempfile.NamedTemporaryFile(prefix="rsm-backup-") as draft:
                    if not part:
                        draft.write(index)
                    end = min((part + 1) * PART_CHUNKS, content.chunk_count)
                    for first in range(part * PART_CHUNKS, end, _CHUNKS_AT_ONCE):
                        for entry in await handle.read(first, min(first + _CHUNKS_AT_ONCE, end) - 1):
                            draft.write(checked_chunk(content, index, entry.entry_id, entry.payload))
                            await self._hold_back(len(entry.payload))
                    draft.flush()
                    await asyncio.to_thread(self._place.copy_in, Path(draft.name), f"{self._folder}/{path}")
        finally:
            await handle.close()


def content_chunks(place: BackupPlace, manifest: BackupManifest, known: KnownContent) -> Iterator[bytes]:
    """Yield the chunks of a content of a backup, each checked. Blocks; holds one chunk and the index.

    Raises:
        CorruptBackupError: Its files do not hold what the log names.
        BackupError: The place cannot be read.

    """
    content, index = known.content, b""
    for part, path in enumerate(content_files(known)):
        shown = f"{place.shown}/{manifest.folder}/{path}"
        with place.open(f"{manifest.folder}/{path}") as file:
            if not part:
                index = _exactly(file, content.chunk_count * DIGEST_BYTES)
                fault = content.fault_of_index(index)
                if fault:
                    raise CorruptBackupError(f"{shown}: {fault}: cut or changed")
            for number in range(part * PART_CHUNKS, min((part + 1) * PART_CHUNKS, content.chunk_count)):
                chunk = _exactly(file, content.bytes_of(number))
                fault = content.fault_of_chunk(index, number, chunk)
                if fault:
                    raise CorruptBackupError(f"{shown}: {fault}: cut or changed")
                yield chunk
            if file.read(1):
                raise CorruptBackupError(f"{shown}: it is longer than it should be: changed")


def _exactly(file: IO[bytes] | Any, size: int) -> bytes:
    """Read so many bytes, or as many as there are."""
    found = bytearray()
    while len(found) < size:
        more = file.read(size - len(found))
        if not more:
            break
        found += more
    return bytes(found)
