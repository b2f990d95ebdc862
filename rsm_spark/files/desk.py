"""Commands and queries of a replica's own door: commands go to the leader, each applied once; queries are read here.

A query sees all that was acknowledged before it was asked, on a follower too: it asks the leader how far the log is.
While nobody leads, both wait for whoever does, for a time.
"""

from __future__ import annotations

import asyncio

from rsm_spark.client.leader_links import LeaderLinks
from rsm_spark.core.commands import AnswerStatus, Query
from rsm_spark.core.freshness import INDEXED
from rsm_spark.core.outcome_errors import AskedReplica, error_of_answer
from rsm_spark.errors import NoLeaderError, NotLeaderError, NotReadyError, TooStaleError
from rsm_spark.files.commands import (
    FileCommand,
    FileDone,
    FileQuery,
    FileRefused,
    FileResult,
    UploadBegun,
    decode_reply,
    decode_result,
    encode,
)
from rsm_spark.runtime.replica import Replica

ANSWER_S = 30.0
"""In which a command or a query has its answer: longer than a leader takes to be followed by another one."""
_RETRY_S = 0.05


class FileDesk:
    """See the module. For one event loop.

    Args:
        replica: Whose state is read.
        links: To the leader, one for each caller: who writes much does not stand before the others. Stay the caller's.
        answer_s: See `ANSWER_S`.

    """

    def __init__(self, replica: Replica, links: LeaderLinks, *, answer_s: float = ANSWER_S) -> None:
        self._replica = replica
        self._links = links
        self._answer_s = answer_s

    async def execute(self, command: FileCommand, owner: str) -> FileDone | UploadBegun:
        """Have a command carried out; return its reply.

        Args:
            command: What.
            owner: Whose it is.

        Raises:
            FileError: It was refused, nothing was changed.
            OutcomeUnknownError: It may have been carried out.
            RsmError: It was not carried out: nobody leads, or too much waits.

        """
        async with self._links.of(owner) as client:
            reply = decode_reply((await client.execute(encode(command), timeout_s=self._answer_s)).payload)
        if isinstance(reply, FileRefused):
            raise reply.error()
        return reply

    async def query(self, query: FileQuery, owner: str) -> FileResult:
        """Return what is asked.

        Args:
            query: What.
            owner: Whose turn it is.

        Raises:
            FileError: There is no such thing, or it cannot be asked like that.
            RsmError: It cannot be answered now.

        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._answer_s
        text = encode(query)
        while True:
            (answer,) = await self._replica.submit([Query(text)], freshness=INDEXED, owner=owner)
            if answer.status is AnswerStatus.OK:
                result = decode_result(answer.payload)
                if isinstance(result, FileRefused):
                    raise result.error()
                return result
            error = error_of_answer(answer, AskedReplica("this replica", leader=self._replica.leader_address or ""))
            passes = isinstance(error, NotLeaderError | NoLeaderError | NotReadyError | TooStaleError)
            if not passes or loop.time() >= due_s:
                raise error
            await asyncio.sleep(_RETRY_S)
