"""A server of a file store in which a process is killed at a named point.

python -m tests.spark.killed_file_server FOLDER POINT …: the rest is what `rsm files serve` takes. The point is one of
`tests.spark.file_kill_points`. Functions of the product are wrapped here before it serves, so there are no hooks in it.
The first server that comes to the point leaves a mark in the folder and kills.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from ledger.client.write_handle import WriteHandle
from rsm_spark.cli.main import main
from rsm_spark.files.commands import FileCommand, FilePlace, FileQuery, decode_command
from rsm_spark.files.content_ledgers import ContentLedgers, ContentWriter
from rsm_spark.files.desk import FileDesk
from rsm_spark.files.machine import FileMachine
from tests.spark.file_kill_points import (
    ASKED,
    BY_NAME,
    CHUNK,
    DECIDED,
    DONE,
    DRIVER,
    IN_LEDGER,
    READING,
    SENT,
    SERVER,
    FileKillPoint,
    armed_file,
    mark_of,
    pid_file,
    subject_of,
)


class FileKiller:
    """Counts what comes by the point, and kills there.

    Args:
        point: Where.
        folder: Of marks, counts and ids of processes.

    """

    def __init__(self, point: FileKillPoint, folder: Path) -> None:
        self._point, self._folder = point, folder
        self._is_on_its_way = False

    def meet(self, moment: str, subject: str) -> None:
        """Kill if this is the point."""
        if self._is_reached(moment, subject):
            self._kill()

    def decided(self, command: bytes) -> None:
        """Note that the leader has made a command's records."""
        subject = subject_of(decode_command(command))
        self.meet(DECIDED, subject)
        self._is_on_its_way = self._is_on_its_way or self._is_reached(SENT, subject)

    def sent(self) -> None:
        """Note that an entry is on its way to bookies."""
        if self._is_on_its_way:
            self._is_on_its_way = False
            self._kill()

    def _is_reached(self, moment: str, subject: str) -> bool:
        point = self._point
        if not point.matches(moment, subject) or not armed_file(self._folder).exists():
            return False
        descriptor = os.open(self._folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, b".")
            return os.fstat(descriptor).st_size == point.nth
        finally:
            os.close(descriptor)

    def _kill(self) -> None:
        point = self._point
        is_own = point.victim == SERVER
        victim = os.getpid() if is_own else int(pid_file(self._folder, point.victim).read_text())
        mark_of(self._folder).write_text(str(victim))
        (os.killpg if point.victim == DRIVER else os.kill)(victim, signal.SIGKILL)
        if is_own:
            signal.pause()


def install(killer: FileKiller) -> None:
    """Have the killer hear of all that is asked of this process."""
    for name in ("execute", "query"):
        setattr(FileDesk, name, _asked(getattr(FileDesk, name), killer))
    decide, append_many, write = FileMachine.decide, WriteHandle.append_many, ContentWriter.write
    pieces = ContentLedgers.pieces

    @functools.wraps(decide)
    def decide_and_tell(self: FileMachine, command: bytes, revision: int, now_ms: int) -> Any:
        decision = decide(self, command, revision, now_ms)
        killer.decided(command)
        return decision

    @functools.wraps(append_many)
    def append_and_tell(self: WriteHandle, payloads: Sequence[bytes]) -> asyncio.Future[int]:
        added = append_many(self, payloads)
        # The ledger sends at the end of this turn of the loop.
        asyncio.get_running_loop().call_soon(killer.sent)
        return added

    @functools.wraps(write)
    async def write_and_tell(self: ContentWriter, chunk: bytes) -> None:
        await write(self, chunk)
        killer.meet(IN_LEDGER, CHUNK)

    @functools.wraps(pieces)
    async def pieces_and_tell(self: ContentLedgers, place: FilePlace, offset: int, end: int) -> AsyncGenerator[bytes]:
        async for piece in pieces(self, place, offset, end):
            yield piece
            killer.meet(READING, CHUNK)

    FileMachine.decide = decide_and_tell  # type: ignore[method-assign]
    WriteHandle.append_many = append_and_tell  # type: ignore[method-assign]
    ContentWriter.write = write_and_tell  # type: ignore[method-assign]
    ContentLedgers.pieces = pieces_and_tell  # type: ignore[method-assign]


def _asked(function: Any, killer: FileKiller) -> Any:
    @functools.wraps(function)
    async def ask(self: FileDesk, message: FileCommand | FileQuery, owner: str) -> Any:
        subject = subject_of(message)
        killer.meet(ASKED, subject)
        answer = await function(self, message, owner)
        killer.meet(DONE, subject)
        return answer

    return ask


if __name__ == "__main__":
    folder, name = sys.argv[1:3]
    install(FileKiller(BY_NAME[name], Path(folder)))
    sys.argv[1:3] = ["files", "serve"]
    main()
