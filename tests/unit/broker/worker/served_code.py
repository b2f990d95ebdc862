"""Code pools whose archives a test serves: the broker's end of a download is played."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from broker.machine.worker_messages import CodePiece
from broker.worker.code.pools import CodePools, PoolLimits
from broker.worker.code.support import CodeSupport
from broker.worker.jail.jails import JailSettings
from broker.worker.stream import CodeGoneError, WorkerStream
from rsm_spark.errors import ConnectionLostError
from tests.unit.broker.worker.archives import pool
from tests.unit.broker.worker.listening import Listening

__all__ = ["HANDLERS", "Served", "handlers", "pools"]

HANDLERS = """
import os
VERSION = {version!r}

def version(context, payload):
    return VERSION + payload.decode()

def where(context, payload):
    import sys
    return "|".join([os.getcwd(), __file__, str(sorted(n for n in os.environ if n.startswith("RSM")))])

def hang(context, payload):
    context.progress(0.5, "here")
    import time
    time.sleep(600)
"""


class Served:
    """Plays the stream: hands archives out in small pieces, and breaks off when it is told to."""

    def __init__(self, piece_bytes: int = 100) -> None:
        self.archives: dict[str, bytes] = {}
        self.said_sha256: str | None = None
        self.break_after = 10**9
        self.asked: list[tuple[str, int]] = []
        self._piece_bytes = piece_bytes

    async def download(self, code: str, offset: int) -> AsyncGenerator[CodePiece, None]:
        self.asked.append((code, offset))
        found = self.archives.get(code)
        if found is None or offset > len(found):
            raise CodeGoneError(f"this broker knows no code {code!r}")
        sha256 = self.said_sha256 or hashlib.sha256(found).hexdigest()
        sent = 0
        while True:
            if sent >= self.break_after:
                raise ConnectionLostError("broken off")
            piece = found[offset : offset + self._piece_bytes]
            yield CodePiece(piece, len(found), sha256)
            sent += 1
            offset += len(piece)
            if offset >= len(found):
                return


@asynccontextmanager
async def pools(
    served: Served,
    folder: Path,
    *,
    jail: JailSettings | None = None,
    support: CodeSupport | None = None,
    **limits: Any,
) -> AsyncIterator[tuple[CodePools, Listening]]:
    stream = cast("WorkerStream", served)
    made = CodePools(lambda: stream, folder=folder, limits=PoolLimits(**limits), jail=jail, support=support)
    heard = Listening()
    await made.start(heard, 2)
    try:
        yield made, heard
    finally:
        await made.close()


def handlers(version: str) -> bytes:
    declared = ("handlers:version", "handlers:where", "handlers:hang")
    return pool({"handlers.py": HANDLERS.format(version=version)}, *declared)
