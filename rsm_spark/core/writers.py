"""Writers: what of their batches was applied, so that it is applied once. Part of the replicated state.

A writer is a program that writes rows batch after batch and may begin again from its own checkpoint: a Spark query. It
has a row of its own (part -1), and one for each part of its batch, which the next batch writes over:

    key   writer, part
    row   checkpoint, run, batch, chunks, digests, row_count, is_ended, former_runs

1. A batch is older, or has ended: what comes of it again is done, and changes nothing.
2. A chunk of a part that has come before, with the same digest, is done. With another one it is applied if the writer's
   rows may be written twice, else refused.
3. A batch ends only when every part that its end names was applied, to as many chunks. One that has begun and not ended
   is in the way of the next.
4. Another checkpoint is refused, unless it says whose place it takes. A run takes over from the one before it; a run
   that was taken over from is refused (of the last `FORMER_RUNS_MAX`; older ones come with older batches).
5. Of calls, which are rows that the machine decides one by one, the state has one digest a part: a call follows exactly
   those that were made. What the machine refuses is made, too.
6. The rows of a command and its mark are in one entry: there is no state that has one without the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from ledger.decoding import convert, msgpack_decoder
from rsm_spark.core.machine import Row, RowChange
from rsm_spark.core.records import WRITERS_TABLE, KernelRecord, pack
from rsm_spark.core.writer_marks import DIGEST_BYTES, MarkKind, WriterMark, digest_after
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError

OWN_PART = -1
"""Part of the row that is the writer's own."""

WRITERS_MAX = 10_000
ROWS_MAX = 200_000
"""Rows of the table: each is of a part of some writer's last batch."""
FORMER_RUNS_MAX = 64
_RUN_BYTES = 8


class WriterRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row of `WRITERS_TABLE`.

    Attributes:
        checkpoint: Of the writer, or of the batch that the part is of.
        run: Of the writer; "" of a part.
        batch: The last one that has begun; that of the part.
        chunks: Of the part that were applied; 0 of a writer.
        digests: Of these chunks, one after the other; of calls, one of all of them.
        row_count: Of the batch once it has ended; of a part: rows applied.
        is_ended: The batch has.
        former_runs: Digests of runs that were taken over from, the last one last.

    """

    checkpoint: str
    run: str
    batch: int
    chunks: int = 0
    digests: bytes = b""
    row_count: int = 0
    is_ended: bool = False
    former_runs: bytes = b""


class _Kept(NamedTuple):
    """Row as the table holds it: decoded, canonical, and the revision of its record."""

    row: WriterRow
    packed: bytes
    revision: int


class MarkVerdict(Enum):
    """Verdicts on a marked command, as `MarkedStatus` has them."""

    APPLY = "apply"
    DONE = "done"
    REFUSED = "refused"
    GONE = "gone"


class MarkJudgement(NamedTuple):
    """Judgement on a marked command.

    Attributes:
        standing: What is to be done.
        reason: Why it is refused, or gone.
        records: (type, fields) to be logged behind what the machine decides; of APPLY.

    """

    standing: MarkVerdict
    reason: str = ""
    records: tuple[tuple[int, tuple[Any, ...]], ...] = ()


class WriterTable:
    """All writers."""

    def __init__(self) -> None:
        # By writer, then by part.
        self._rows: dict[str, dict[int, _Kept]] = {}
        self._count = 0

    def names(self) -> list[str]:
        """Return the writers' names, sorted."""
        return sorted(self._rows)

    def get(self, writer: str) -> WriterRow | None:
        """Return a writer's own row; None if there is no such writer."""
        kept = self._rows.get(writer, {}).get(OWN_PART)
        return None if kept is None else kept.row

    def parts(self, writer: str) -> dict[int, WriterRow]:
        """Return the parts of a writer's last batch, by number."""
        own = self.get(writer)
        if own is None:
            return {}
        rows = self._rows[writer].items()
        return {part: kept.row for part, kept in sorted(rows) if part != OWN_PART and _is_of(kept.row, own)}

    def row(self, writer: str, part: int) -> WriterRow | None:
        """Return one row of a writer, of whichever batch; None if there is none."""
        kept = self._rows.get(writer, {}).get(part)
        return None if kept is None else kept.row

    def part_rows(self, writer: str) -> list[tuple[int, WriterRow]]:
        """Return the rows of a writer's parts, of whichever batch, by number."""
        return [(part, kept.row) for part, kept in sorted(self._rows.get(writer, {}).items()) if part != OWN_PART]

    def judge(self, mark: WriterMark) -> MarkJudgement:
        """Say what is to be done with a marked command on the present state, without changing it."""
        fault = mark.fault
        if fault:
            return _refused(f"writer {mark.writer[:40]!r}: {fault}")
        own = self.get(mark.writer)
        if mark.kind == MarkKind.FORGET:
            return self._judge_forget(mark, own)
        if own is None:
            return self._judge_first(mark)
        claimed = _claimed(own, mark)
        if isinstance(claimed, MarkJudgement):
            return claimed
        if mark.batch < claimed.batch or (mark.batch == claimed.batch and claimed.is_ended):
            return MarkJudgement(MarkVerdict.DONE)
        if mark.batch > claimed.batch and not claimed.is_ended:
            return _refused(
                f"writer {mark.writer!r}: batch {claimed.batch} has begun and has not ended, batch {mark.batch} cannot "
                f"begin. Run batch {claimed.batch} again from its checkpoint, or give it up by `rsm log writer forget`"
            )
        return self._judge_batch(mark, claimed)

    def _judge_first(self, mark: WriterMark) -> MarkJudgement:
        if mark.is_passing and mark.kind != MarkKind.BEGIN:
            return MarkJudgement(
                MarkVerdict.GONE, f"writer {mark.writer!r}: there is none, its batch has ended or it was forgotten"
            )
        if len(self._rows) >= WRITERS_MAX:
            return _refused(
                f"writer {mark.writer!r}: the log remembers {WRITERS_MAX} writers already: see `rsm log writer list`, "
                "and forget those that will not write again by `rsm log writer forget`"
            )
        return self._judge_batch(mark, WriterRow(mark.checkpoint, mark.run, mark.batch))

    def _judge_forget(self, mark: WriterMark, own: WriterRow | None) -> MarkJudgement:
        if own is None:
            return MarkJudgement(MarkVerdict.DONE)
        if own.checkpoint != mark.checkpoint:
            return _refused(f"writer {mark.writer!r}: it is of checkpoint {own.checkpoint!r}, not {mark.checkpoint!r}")
        return MarkJudgement(MarkVerdict.APPLY, records=self.forgetting(mark.writer))

    def _judge_batch(self, mark: WriterMark, own: WriterRow) -> MarkJudgement:
        """Judge what comes of a batch that has not ended; `own` is the writer's row as the claim makes it."""
        if mark.batch > own.batch:
            own = msgspec.structs.replace(own, batch=mark.batch, row_count=0, is_ended=False)
        if mark.kind == MarkKind.BEGIN:
            return self._applied(mark, own)
        if mark.kind == MarkKind.CHUNK:
            kept = self._rows.get(mark.writer, {}).get(mark.part)
            return self._judge_chunk(mark, own, kept.row if kept is not None and _is_of(kept.row, own) else None)
        rows = self._rows.get(mark.writer, {}).items()
        fault = _end_fault(mark, {part: kept.row for part, kept in rows if part != OWN_PART and _is_of(kept.row, own)})
        if fault:
            return _refused(f"writer {mark.writer!r}, batch {mark.batch}: {fault}")
        ended = self._applied(mark, msgspec.structs.replace(own, is_ended=True, row_count=mark.row_count))
        if mark.is_passing:
            # Its end is said, and then it is forgotten: readers tell a finished batch from one that was given up.
            return ended._replace(records=ended.records + self.forgetting(mark.writer))
        return ended

    def _judge_chunk(self, mark: WriterMark, own: WriterRow, part: WriterRow | None) -> MarkJudgement:
        at = f"writer {mark.writer!r}, batch {mark.batch}, part {mark.part}"
        if part is None:
            part = WriterRow(own.checkpoint, "", own.batch)
        if mark.chunk > part.chunks:
            return _refused(f"{at}: chunk {mark.chunk} comes before chunk {part.chunks}")
        is_new = mark.part not in self._rows.get(mark.writer, {})
        if is_new and self._count >= ROWS_MAX:
            return _refused(f"{at}: the log remembers {ROWS_MAX} parts already: forget writers that write no more")
        if mark.is_call:
            return self._judge_call(mark, own, part, at)
        begin, end = mark.chunk * DIGEST_BYTES, (mark.chunk + 1) * DIGEST_BYTES
        if mark.chunk < part.chunks:
            if part.digests[begin:end] == mark.digest:
                return MarkJudgement(MarkVerdict.DONE)
            if not mark.is_repeatable:
                return _refused(
                    f"{at}: chunk {mark.chunk} was applied with other rows, when this batch was run before. Its rows "
                    "may not be written twice: let the query give the same rows in the same order at each run "
                    "(repartition by a column, sortWithinPartitions), or give the batch up by `rsm log writer forget`"
                )
        changed = msgspec.structs.replace(
            part,
            chunks=max(part.chunks, mark.chunk + 1),
            digests=part.digests[:begin] + mark.digest + part.digests[end:],
            row_count=part.row_count + mark.row_count,
        )
        return self._applied(mark, own, (mark.part, changed))

    def _judge_call(self, mark: WriterMark, own: WriterRow, part: WriterRow, at: str) -> MarkJudgement:
        """Judge a call: of those before it the state has one digest, which tells whether they were the same."""
        digest = digest_after(mark.digest, mark.payload)
        is_last = mark.chunk == part.chunks - 1
        if mark.chunk < part.chunks and (not is_last or part.digests == digest):
            return MarkJudgement(MarkVerdict.DONE)
        if is_last or mark.digest != (part.digests or bytes(DIGEST_BYTES)):
            return _refused(
                f"{at}: other calls were made before call {mark.chunk}, when this batch was run before. Calls are not "
                "made twice: let the query give the same rows in the same order at each run (repartition by a column, "
                "sortWithinPartitions), or give the batch up by `rsm log writer forget`"
            )
        changed = msgspec.structs.replace(
            part, chunks=mark.chunk + 1, digests=digest, row_count=part.row_count + mark.row_count
        )
        return self._applied(mark, own, (mark.part, changed))

    def _applied(self, mark: WriterMark, own: WriterRow, *parts: tuple[int, WriterRow]) -> MarkJudgement:
        """Return the judgement to apply, with the rows that change: the writer's own only if it does."""
        changed = [*parts] if own == self.get(mark.writer) else [*parts, (OWN_PART, own)]
        return MarkJudgement(
            MarkVerdict.APPLY,
            records=tuple(
                (KernelRecord.WRITER_MARKED, (mark.writer, part, *msgspec.structs.astuple(row)))
                for part, row in changed
            ),
        )

    def forgetting(self, writer: str) -> tuple[tuple[int, tuple[Any, ...]], ...]:
        """Return the records that make the log forget a writer; none if there is no such writer."""
        return tuple((KernelRecord.WRITER_FORGOTTEN, (writer, part)) for part in sorted(self._rows.get(writer, {})))

    def handing_over(self, writer: str, checkpoint: str) -> tuple[tuple[int, tuple[Any, ...]], ...]:
        """Return the records that give a writer to another checkpoint, from whichever batch; none if there is none."""
        own = self.get(writer)
        if own is None:
            return ()
        row = _handed_over(own, checkpoint, own.run, 0)
        return ((KernelRecord.WRITER_MARKED, (writer, OWN_PART, *msgspec.structs.astuple(row))),)

    def size(self, prefix: str = "") -> int:
        """Return the bytes of all rows, nearly; of the writers whose names begin so."""
        return sum(
            len(kept.packed) + len(writer.encode())
            for writer, rows in self._rows.items()
            if writer.startswith(prefix)
            for kept in rows.values()
        )

    def all_fields(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows as the fields of WRITER_MARKED."""
        for writer, rows in self._rows.items():
            for part, kept in rows.items():
                yield writer, part, *msgspec.structs.astuple(kept.row)

    # ---- folding

    def fold(self, record_type: int, fields: Sequence[Any], revision: int) -> RowChange:
        """Fold WRITER_MARKED or WRITER_FORGOTTEN.

        Raises:
            CorruptLogError: The fields are not those of the record.

        """
        try:
            if record_type == KernelRecord.WRITER_FORGOTTEN:
                writer, part = convert(fields, tuple[str, int])
                row = None
            else:
                writer, part = convert(fields[:2], tuple[str, int])
                row = convert(fields[2:], WriterRow)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise CorruptLogError(f"revision {revision}: record of a writer with the fields {fields!r:.200}") from error
        rows = self._rows.get(writer)
        old = None if rows is None else rows.get(part)
        packed = None
        if row is not None:
            packed = pack(fields[2:])
            if rows is None:
                rows = self._rows[writer] = {}
            rows[part] = _Kept(row, packed, revision)
            self._count += old is None
        elif rows is not None and old is not None:
            del rows[part]
            self._count -= 1
            if not rows:
                del self._rows[writer]
        return RowChange(WRITERS_TABLE, pack((writer, part)), None if old is None else old.packed, packed)

    def row_of(self, key: bytes) -> Row | None:
        """Return the row of a canonical key; None if there is none."""
        writer, part = msgpack_decoder(tuple[str, int]).decode(key)
        kept = self._rows.get(writer, {}).get(part)
        return None if kept is None else Row(WRITERS_TABLE, key, kept.packed, kept.revision)

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are at this call; any thread may consume."""
        frozen = [(writer, part, kept) for writer, rows in self._rows.items() for part, kept in rows.items()]
        return (Row(WRITERS_TABLE, pack((writer, part)), kept.packed, kept.revision) for writer, part, kept in frozen)

    def restore(self, rows: Sequence[Row]) -> None:
        """Replace all by these rows.

        Raises:
            CorruptSnapshotError: A row is none of this table.

        """
        self._rows = {}
        self._count = len(rows)
        for row in rows:
            try:
                writer, part = msgpack_decoder(tuple[str, int]).decode(row.key)
                decoded = msgpack_decoder(WriterRow).decode(row.row)
            except msgspec.MsgspecError as error:
                raise CorruptSnapshotError(f"row of {WRITERS_TABLE} is no writer's: {error}") from error
            self._rows.setdefault(writer, {})[part] = _Kept(decoded, row.row, row.revision)


def _refused(reason: str) -> MarkJudgement:
    return MarkJudgement(MarkVerdict.REFUSED, reason)


def _is_of(part: WriterRow, own: WriterRow) -> bool:
    """Return whether a part is of the batch that its writer is at."""
    return part.batch == own.batch and part.checkpoint == own.checkpoint


def _run_digest(run: str) -> bytes:
    return blake2b(run.encode(), digest_size=_RUN_BYTES).digest()


def _handed_over(own: WriterRow, checkpoint: str, run: str, batch: int) -> WriterRow:
    """Return a writer's row when a run of another checkpoint takes its place: nothing of its batches has come."""
    # Ended: any batch may be the first one. The one before it is none of this checkpoint's.
    own = msgspec.structs.replace(own, checkpoint=checkpoint, run=run, batch=batch - 1)
    return msgspec.structs.replace(own, row_count=0, is_ended=True)


def _claimed(own: WriterRow, mark: WriterMark) -> WriterRow | MarkJudgement:
    """Return a writer's row with the checkpoint and the run of a mark, or why they may not have it."""
    if own.checkpoint != mark.checkpoint:
        if mark.takes_over_from != own.checkpoint:
            return _refused(
                f"writer {mark.writer!r}: it writes from checkpoint {own.checkpoint!r}, up to batch {own.batch}; "
                f"checkpoint {mark.checkpoint!r} counts other batches. Choose another name for this writer, or say "
                f"that it takes over: option takeOver={own.checkpoint}, or `rsm log writer take-over`"
            )
        own = _handed_over(own, mark.checkpoint, own.run, mark.batch)
    if own.run == mark.run:
        return own
    digest = _run_digest(mark.run)
    former = own.former_runs
    if any(former[at : at + _RUN_BYTES] == digest for at in range(0, len(former), _RUN_BYTES)):
        return _refused(
            f"writer {mark.writer!r}: run {mark.run!r} was taken over from by a later one, {own.run!r}: two drivers "
            "write as one writer, this one has to stop"
        )
    former = (former + _run_digest(own.run))[-_RUN_BYTES * FORMER_RUNS_MAX :]
    return msgspec.structs.replace(own, run=mark.run, former_runs=former)


def _end_fault(mark: WriterMark, parts: dict[int, WriterRow]) -> str:
    """Return why a batch cannot end with these parts; "" = it can."""
    named = dict(mark.parts) if mark.kind == MarkKind.END else {}
    for part, chunks in named.items():
        found = parts[part].chunks if part in parts else 0
        if found < chunks or (found > chunks and not mark.is_repeatable):
            return f"its end names {chunks} chunks of part {part}, {found} were applied"
    others = parts.keys() - named.keys()
    if others and not mark.is_repeatable:
        return (
            f"part {min(others)} was applied when the batch was run before, and is none of it now: its rows may not be "
            "written twice. Give it up by `rsm log writer forget`"
        )
    return ""
