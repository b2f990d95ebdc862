"""Bugs of writers, planted: each must be found by `tests.sim.writer_world`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rsm_spark.core.batching import Composer
from rsm_spark.core.records import MACHINE_TYPE_FIRST
from rsm_spark.core.writer_marks import MarkKind, WriterMark
from rsm_spark.core.writers import MarkJudgement, MarkVerdict, WriterRow, WriterTable


class MarkerBeforeRows(Composer):
    """The mark is in one entry, its rows are in the next."""

    def _decide_marked(self, command: bytes) -> tuple[Sequence[tuple[int, tuple[Any, ...]]], bytes]:
        records, reply = super()._decide_marked(command)
        self.wanted += [one for one in records if one[0] >= MACHINE_TYPE_FIRST]
        return [one for one in records if one[0] < MACHINE_TYPE_FIRST], reply


class RowsBeforeMarker(Composer):
    """The rows are in one entry, their mark is in the next."""

    def _decide_marked(self, command: bytes) -> tuple[Sequence[tuple[int, tuple[Any, ...]]], bytes]:
        records, reply = super()._decide_marked(command)
        self.wanted += [one for one in records if one[0] < MACHINE_TYPE_FIRST]
        return [one for one in records if one[0] >= MACHINE_TYPE_FIRST], reply


class BothDriversWrite(WriterTable):
    """A run that was taken over from takes over again."""

    def judge(self, mark: WriterMark) -> MarkJudgement:
        own = self.get(mark.writer)
        if own is not None:
            kept = self._rows[mark.writer][-1]
            self._rows[mark.writer][-1] = kept._replace(row=msgspec.structs.replace(own, former_runs=b""))
        return super().judge(mark)


class LostReplyIsNews(WriterTable):
    """A chunk that comes again, because its reply was lost, is applied again."""

    def _judge_chunk(self, mark: WriterMark, own: WriterRow, part: WriterRow | None) -> MarkJudgement:
        judged = super()._judge_chunk(mark, own, part)
        if judged.standing is MarkVerdict.DONE:
            return super()._judge_chunk(msgspec.structs.replace(mark, is_repeatable=True, digest=bytes(8)), own, part)
        return judged


class LostReplyIsANewCall(WriterTable):
    """A call that comes again, because its reply was lost, is made again."""

    def _judge_call(self, mark: WriterMark, own: WriterRow, part: WriterRow, at: str) -> MarkJudgement:
        judged = super()._judge_call(mark, own, part, at)
        if judged.standing is MarkVerdict.DONE:
            return MarkJudgement(MarkVerdict.APPLY)
        return judged


class OldBatchesAreNews(WriterTable):
    """A batch that has ended begins again when a zombie sends of it."""

    def judge(self, mark: WriterMark) -> MarkJudgement:
        judged = super().judge(mark)
        own = self.get(mark.writer)
        if judged.standing is MarkVerdict.DONE and own is not None and mark.kind == MarkKind.CHUNK and own.is_ended:
            return MarkJudgement(MarkVerdict.APPLY)
        return judged


class EndsWithoutItsParts(WriterTable):
    """A batch is taken for whole as soon as the first of its chunks has come."""

    def _judge_chunk(self, mark: WriterMark, own: WriterRow, part: WriterRow | None) -> MarkJudgement:
        return super()._judge_chunk(mark, msgspec.structs.replace(own, is_ended=True), part)
