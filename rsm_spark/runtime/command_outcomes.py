"""Outcomes of commands whose answers were never heard, read from the log that a replica goes on following.

A leader that was deposed has commands on its way of which it cannot know whether they were confirmed. As a follower it
learns: once it has applied an entry of a later leader, the log of its own time has its end, and a command is in the
state, with its reply, or will never be.
"""

from __future__ import annotations

from rsm_spark.core.commands import Answer, AnswerStatus, Command
from rsm_spark.core.replies import answer_verdict
from rsm_spark.core.sessions import SessionVerdict
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.replica import Replica


class CommandOutcomes:
    """Outcomes of the commands that one replica was given while it led.

    Args:
        context: Of the replica.

    """

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context

    @classmethod
    def of(cls, replica: Replica) -> CommandOutcomes:
        """Return those of a replica."""
        return cls(replica._context)

    def are_known(self, leader_epoch: int) -> bool:
        """Return whether what was decided under this epoch, of this replica's own, is confirmed or gone for good."""
        context = self._context
        return context.has_state and context.state_is_confirmed and context.tip.leader_epoch > leader_epoch

    def of_command(self, command: Command) -> Answer:
        """Return the answer to a command that was decided, or queued, under an epoch whose fates are known.

        Returns:
            Its reply; NOT_LEADER if it was certainly not applied and this replica will not propose it any more;
            OUTCOME_UNKNOWN if its session has expired since.

        """
        context = self._context
        assert context.has_state
        assert context.state_is_confirmed
        revision = context.tip.revision
        verdict, reply = context.state.sessions.judge(command.session, command.sequence, command.answered_up_to)
        match verdict:
            case SessionVerdict.REPEATED:
                return answer_verdict(verdict, reply, revision)
            case SessionVerdict.EXECUTE | SessionVerdict.GAP | SessionVerdict.FULL:
                return Answer(AnswerStatus.NOT_LEADER, revision, b"")
            case _:
                return Answer(AnswerStatus.OUTCOME_UNKNOWN, revision, b"")
