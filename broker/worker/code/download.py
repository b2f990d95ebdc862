"""Downloads an archive over whatever stream there is: what breaks off goes on where it was, over the next one too."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable

from broker.machine.limits import CODE_BYTES_MAX
from broker.worker.code.archive import CodeArchiveError
from broker.worker.stream import CodeGoneError, WorkerStream
from rsm_spark.errors import ConnectionLostError

_LOGGER = logging.getLogger(__name__)
_RETRY_S = 0.2


async def download(
    stream_now: Callable[[], WorkerStream | None], code: str, known_sha256: str, known_size: int
) -> bytes | None:
    """Return an archive; None if the one that is known is the same.

    Args:
        stream_now: Returns the stream to download over; None = there is none at present.
        code: Name of the pool.
        known_sha256: Of the archive that is here.
        known_size: Its bytes; 0 = none is here.

    Raises:
        CodeGoneError: The broker has no such code.
        CodeArchiveError: It is too large, or not what the broker says it is.

    """
    arrived = bytearray()
    sha256 = ""
    while True:
        stream = stream_now()
        if stream is None:
            await asyncio.sleep(_RETRY_S)
            continue
        offset = len(arrived) if arrived else known_size
        try:
            async with contextlib.aclosing(stream.download(code, offset)) as pieces:
                async for piece in pieces:
                    if sha256 and piece.sha256 != sha256:
                        arrived.clear()  # Another archive by the same name: from the beginning.
                    sha256 = piece.sha256
                    if not arrived and offset:
                        if sha256 == known_sha256:
                            return None
                        known_size = offset = 0
                        break
                    arrived += piece.data
                    if max(piece.total_bytes, len(arrived)) > CODE_BYTES_MAX:
                        raise CodeArchiveError(f"it has {piece.total_bytes:,} bytes; {CODE_BYTES_MAX:,} are allowed")
                    if len(arrived) >= piece.total_bytes:
                        return _verified(bytes(arrived), sha256)
            await asyncio.sleep(_RETRY_S)
        except ConnectionLostError as error:
            said = "download of code %s broke off at byte %d: %s"
            _LOGGER.info(said, code, len(arrived), error, extra={"code": code})
            await asyncio.sleep(_RETRY_S)
        except CodeGoneError:
            if not known_size:
                raise
            known_size = 0  # Another, shorter archive by the same name perhaps.


def _verified(archive: bytes, sha256: str) -> bytes:
    found = hashlib.sha256(archive).hexdigest()
    if found != sha256:
        raise CodeArchiveError(f"the downloaded archive has SHA-256 {found}, the broker says {sha256}")
    return archive
