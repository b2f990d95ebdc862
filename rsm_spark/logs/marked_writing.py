"""Batches of writers in a plain log: each row once, however often a batch is run; and orders about writers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec

from rsm_spark.core.append_queue import WriterRecord
from rsm_spark.core.plain_log import PlainLogError, TransactionIdError
from rsm_spark.core.records import pack
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, MarkKind, WriterMark, digest_of
from rsm_spark.core.writers import MarkVerdict, WriterTable
from rsm_spark.logs.writing import WriterDriver
from rsm_spark.runtime.writer_upkeep import checked_checkpoint, described_one, own_row, tell_writers

WRITERS_BYTES_MAX = 1024 * 1024
"""Bytes of what a log remembers of writers: a note of all has to fit an entry, beside records."""

OWNER_BYTES_MAX = WRITERS_BYTES_MAX // 4
"""The same of the writers of one owner."""


class AppendBehindMark(Protocol):
    """Appends records behind those of a batch's writer; see `PlainLogWriter.append_marked`."""

    def __call__(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        records: Sequence[WriterRecord],
        txids: Sequence[int] | None = None,
    ) -> asyncio.Future[int]:
        """Append; the future has the last position."""
        ...


class MarkedWriting:
    """See the module; of one writer of the log. Of what a batch's writer sends, one thing goes after another.

    Args:
        log: Its name.
        driver: Of the log's writer.
        append: Appends records behind those of a batch's writer.

    """

    def __init__(self, log: str, driver: WriterDriver, append: AppendBehindMark) -> None:
        self._log = log
        self._driver = driver
        self._append = append
        self._lanes = WriterLanes()

    async def write(
        self,
        mark: WriterMark,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        owner: str,
        txids: Sequence[int] | None = None,
    ) -> MarkedReply:
        """Do what a mark says; see `PlainLogWriter.write_marked`."""
        # Rows without transaction ids of their own keep the digest that they have in logs of before.
        rows = (keys, payloads) if txids is None else (keys, payloads, txids)
        mark = msgspec.structs.replace(checked_mark(self._log, mark, payloads, owner), digest=digest_of(pack(rows)))
        name = mark.writer
        async with self._lane(name):
            table = self._table()
            if mark.kind is MarkKind.END:  # Readers rely on it: what was appended counts, not what is said.
                row_count = sum(row.row_count for row in table.parts(name).values())
                mark = msgspec.structs.replace(mark, row_count=row_count)
            judged = table.judge(mark)
            if judged.standing is MarkVerdict.DONE:
                return MarkedReply(MarkedStatus.DONE)
            reason = judged.reason
            if judged.standing is MarkVerdict.APPLY:
                reason = "" if mark.kind is MarkKind.FORGET else no_room(table, name, owner, judged.records)
                if not reason:
                    try:
                        appended = self._append(payloads, keys, judged.records, txids)
                    except TransactionIdError:
                        await self._look()  # Who was deposed may know ids that are in no log.
                        raise
                    await appended
                    return MarkedReply(MarkedStatus.APPLIED)
            await self._look()
            is_gone = judged.standing is MarkVerdict.GONE
            return MarkedReply(MarkedStatus.GONE if is_gone else MarkedStatus.REFUSED, reason)

    # ---- operators

    def described(self, name: str, after: str) -> dict[str, Any]:
        """Return a writer with its parts, or all behind a name; see `tell_writers`."""
        return tell_writers(self._log, self._table(), name, after)

    async def forget(self, name: str) -> dict[str, Any]:
        """Have the log forget a writer; return it as it was.

        Raises:
            RsmError: There is no writer of this name.

        """
        async with self._lane(name):
            table = self._table()
            own = own_row(self._log, table, name)
            await self._append((), (), table.forgetting(name))
            return described_one(name, own)

    async def hand_over(self, name: str, checkpoint: str) -> dict[str, Any]:
        """Give a writer to another checkpoint; return it as it was.

        Raises:
            RsmError: There is no writer of this name, or it is that checkpoint's; the checkpoint's name is none.

        """
        async with self._lane(name):
            table = self._table()
            own = checked_checkpoint(self._log, table, name, checkpoint)
            await self._append((), (), table.handing_over(name, checkpoint))
            return described_one(name, own)

    async def _look(self) -> None:
        """Return if this is the log's writer still: who was deposed and does not know it refuses nobody.

        Raises:
            NotLeaderError: Another one was opened.
            RsmError, MetadataError: Nobody can say; the same call may succeed later.

        """
        await self._driver.check()

    def _table(self) -> WriterTable:
        return writers_of(self._log, self._driver)

    def _lane(self, name: str) -> asyncio.Lock:
        return self._lanes.of(name)


class WriterLanes:
    """Lanes of writers that have something on its way: of one writer one thing goes after another."""

    def __init__(self) -> None:
        # Nobody else holds a lane.
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        """Return the lane of a writer."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = asyncio.Lock()
        return lane


def writers_of(log: str, driver: WriterDriver) -> WriterTable:
    """Return the writers of batches that a log remembers, as of what its writer has composed.

    Raises:
        NotLeaderError: The log's writer is over.
        PlainLogError: The log was opened without producers.

    """
    if driver.refusal is not None:
        raise driver.refusal
    if driver.writers is None:
        raise PlainLogError(f"log {log}: it has no producers: open_writer(log, producers=True)")
    return driver.writers


def checked_mark(log: str, mark: WriterMark, payloads: Sequence[bytes], owner: str) -> WriterMark:
    """Return a mark as a log takes it: of the owner's writer, for rows that are never written twice.

    Raises:
        PlainLogError: It has records that it cannot have, or none where it must.

    """
    if payloads and mark.kind not in (MarkKind.CHUNK, MarkKind.WHOLE):
        raise PlainLogError(f"log {log}: a mark of kind {mark.kind.name} takes no records")
    if mark.kind is MarkKind.CHUNK and not payloads:
        raise PlainLogError(f"log {log}: a chunk has one record at least")
    row_count = mark.row_count if mark.kind is MarkKind.END else len(payloads)
    return msgspec.structs.replace(
        mark, writer=_prefix(owner) + mark.writer, row_count=row_count, payload=b"", is_repeatable=False, is_call=False
    )


def _prefix(owner: str) -> str:
    """Return how the names of an owner's writers begin: no two owners have one."""
    return f"{quote(owner, safe='')}/" if owner else ""


def no_room(table: WriterTable, name: str, owner: str, records: Sequence[WriterRecord]) -> str:
    """Return why the log cannot remember more; "" = it can."""
    grows = len(pack(records))
    whose = _prefix(owner)
    for size, most, of in (
        (table.size(), WRITERS_BYTES_MAX, "writers"),
        (table.size(whose) if whose else 0, OWNER_BYTES_MAX, f"writers of {owner}"),
    ):
        if size + grows > most:
            return (
                f"writer {name!r}: the log remembers {size:,} bytes of {of}, {most:,} go: forget those that will not "
                "write again by `rsm log writer forget`, or let batches have fewer parts"
            )
    return ""
