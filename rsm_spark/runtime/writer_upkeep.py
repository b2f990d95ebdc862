"""Writers of a log, for its operators: who there is, and who is forgotten or taken over from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from rsm_spark.core.batching import Composer
from rsm_spark.core.writer_marks import NAME_CHARS_MAX
from rsm_spark.core.writers import WriterRow, WriterTable
from rsm_spark.errors import RsmError
from rsm_spark.runtime.context import ReplicaContext, subscribe

LISTED_MAX = 200
"""Writers in one answer."""
_PARTS_SHOWN_MAX = 1_000


class WriterUpkeep:
    """See the module; of one leadership.

    Args:
        context: Of the replica.
        wake: Makes the leader compose an entry soon.

    Attributes:
        composer: Of its entries, once it has begun.

    """

    def __init__(self, context: ReplicaContext, wake: Callable[[], None]) -> None:
        self.composer: Composer | None = None
        self._context = context
        self._wake = wake

    def described(self, name: str, after: str) -> dict[str, Any]:
        """Return a writer with its parts, or all writers behind a name, `LISTED_MAX` at most; as the leader has them.

        Raises:
            RsmError: There is no writer of this name.

        """
        return tell_writers(self._context.log, self._context.state.writers, name, after)

    async def forget(self, name: str) -> dict[str, Any]:
        """Have the log forget a writer; return it as it was.

        Raises:
            RsmError: There is no writer of this name.

        """
        own = own_row(self._context.log, self._context.state.writers, name)
        self._log(self._context.state.writers.forgetting(name))
        await self._until(lambda: self._context.state.writers.get(name) is None)
        return described_one(name, own)

    async def hand_over(self, name: str, checkpoint: str) -> dict[str, Any]:
        """Give a writer to another checkpoint; return it as it was.

        Raises:
            RsmError: There is no writer of this name, or it is that checkpoint's; the checkpoint's name is none.

        """
        own = checked_checkpoint(self._context.log, self._context.state.writers, name, checkpoint)
        self._log(self._context.state.writers.handing_over(name, checkpoint))

        def is_done() -> bool:
            found = self._context.state.writers.get(name)
            return found is None or found.checkpoint == checkpoint

        await self._until(is_done)
        return described_one(name, own)

    def _log(self, records: tuple[tuple[int, tuple[Any, ...]], ...]) -> None:
        assert self.composer is not None
        self.composer.wanted += records
        self._wake()

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """Wait until something is so in the confirmed state."""
        confirmed = asyncio.Event()

        def _look(_revision: int) -> None:
            if is_done():
                confirmed.set()

        unsubscribe = subscribe(self._context.applied_listeners, _look)
        try:
            await confirmed.wait()
        finally:
            unsubscribe()


class KnownWriters(Protocol):
    """Writers that a log remembers: the table of one log, or of all partitions of one."""

    def names(self) -> list[str]: ...

    def get(self, writer: str) -> WriterRow | None: ...

    def parts(self, writer: str) -> dict[int, WriterRow]: ...


def tell_writers(log: str, writers: KnownWriters, name: str, after: str) -> dict[str, Any]:
    """Return a writer with its parts, or all writers behind a name, `LISTED_MAX` at most.

    Raises:
        RsmError: There is no writer of this name.

    """
    if name:
        own = own_row(log, writers, name)
        parts = list(writers.parts(name).items())
        return {
            "writer": {
                **described_one(name, own),
                "part_count": len(parts),
                "parts": [
                    {"part": part, "chunks": row.chunks, "row_count": row.row_count}
                    for part, row in parts[:_PARTS_SHOWN_MAX]
                ],
            }
        }
    named = [one for one in writers.names() if one > after]
    listed = [described_one(one, own_row(log, writers, one)) for one in named[:LISTED_MAX]]
    return {"writers": listed, "more": len(named) > LISTED_MAX}


def own_row(log: str, writers: KnownWriters, name: str) -> WriterRow:
    """Return a writer's own row.

    Raises:
        RsmError: There is no writer of this name.

    """
    own = writers.get(name)
    if own is None:
        raise RsmError(f"log {log}: there is no writer {name!r}; see `rsm log writer list`")
    return own


def checked_checkpoint(log: str, writers: WriterTable, name: str, checkpoint: str) -> WriterRow:
    """Return the row of a writer that may be given to a checkpoint.

    Raises:
        RsmError: There is no writer of this name, or it is that checkpoint's; the checkpoint's name is none.

    """
    own = own_row(log, writers, name)
    check_checkpoint(log, name, own, checkpoint)
    return own


def check_checkpoint(log: str, name: str, own: WriterRow, checkpoint: str) -> None:
    """Check whether a writer may be given to a checkpoint.

    Raises:
        RsmError: It is that checkpoint's; or the checkpoint's name is none.

    """
    if not 0 < len(checkpoint) <= NAME_CHARS_MAX or not checkpoint.isprintable():
        raise RsmError(f"checkpoint {checkpoint[:40]!r}: its name has 1 to {NAME_CHARS_MAX} printable characters")
    if own.checkpoint == checkpoint:
        raise RsmError(f"writer {name!r} of log {log} is checkpoint {checkpoint!r}'s already")


def described_one(name: str, own: WriterRow) -> dict[str, Any]:
    """Return what is told of a writer."""
    return {
        "name": name,
        "checkpoint": own.checkpoint,
        "run": own.run,
        "batch": own.batch,
        "is_ended": own.is_ended,
        "row_count": own.row_count,
    }
