"""Bugs to plant into linearizable reads on followers: `test_indexed_reads` must find each."""

from __future__ import annotations

import pytest

from rsm_spark.core.commands import AnswerStatus
from rsm_spark.runtime.peers import LogIndex
from rsm_spark.runtime.read_index import IndexedRead, ReadIndexes
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.serving import Serving

__all__ = ["answers_without_waiting", "leader_tells_without_proof", "question_covers_reads_that_came_later"]


def answers_without_waiting(patch: pytest.MonkeyPatch) -> None:
    on_index = Serving._on_index

    def answer(self: Serving, read: IndexedRead, revision: int) -> None:
        del revision
        on_index(self, read, 0)

    patch.setattr(Serving, "_on_index", answer)


def leader_tells_without_proof(patch: pytest.MonkeyPatch) -> None:
    async def tell(self: Replica) -> LogIndex:
        return LogIndex(AnswerStatus.OK, self._context.tip.revision)

    patch.setattr(Replica, "read_index", tell)


def question_covers_reads_that_came_later(patch: pytest.MonkeyPatch) -> None:
    end = ReadIndexes._end

    def end_all(self: ReadIndexes, reads: list[IndexedRead], index: LogIndex | None) -> None:
        late, self._waiting = self._waiting, []
        end(self, reads + late, index)

    patch.setattr(ReadIndexes, "_end", end_all)
