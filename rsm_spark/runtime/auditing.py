"""The audit: who changes rights, code, holds or the log itself, written into the log before it is done.

1. What is asked is confirmed in the log before anybody acts on it: nothing of this kind happens without a trace.
2. What came of it follows as a second record. An "asked" without one: its outcome was not learned, or not in time.
3. Refusals are counted, and one of each kind is told in a while; they are never logged: a stranger must not be able to
   fill the log.

Each is a line of the logger `rsm.audit` too. `rsm audit LOG` reads the records back, Spark has them as records of type
`audited`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ledger.audit_lines import Refusals, tell
from ledger.logs import AUDIT_LOGGER
from ledger.rereads import Reread
from rsm_spark.core.commands import ASKED, Answer, AnswerStatus, Audited, Request
from rsm_spark.errors import NoLeaderError, NotLeaderError, OutcomeUnknownError, OverloadedError

_lines = logging.getLogger(AUDIT_LOGGER)
_ATTEMPTS = 10
_PAUSE_S = 1.0


class AuditedReplica(Protocol):
    """Part of a replica that the audit needs; `rsm_spark.runtime.Replica` is one."""

    @property
    def leader_address(self) -> str | None:
        """Advertised address of the leader, as far as known."""
        ...

    def submit(self, requests: Sequence[Request]) -> asyncio.Future[Sequence[Answer]]:
        """Queue requests; one future of all their answers."""
        ...


class AuditTrail:
    """The audit of one replica.

    Args:
        replica: Logs while it leads.
        log: Name of its log.

    """

    def __init__(self, replica: AuditedReplica, log: str) -> None:
        self._replica = replica
        self._log = log
        self._refusals = Refusals()

    @property
    def refusals(self) -> int:
        """Number of calls refused since the process began."""
        return self._refusals.count

    async def asked(self, audited: Audited) -> None:
        """Log that something is about to be done; it may be done when this returns.

        Raises:
            NotLeaderError: This replica does not lead.
            OverloadedError: Too much waits.
            OutcomeUnknownError: It may have been logged. Nothing may be done.

        """
        await self._note(msgspec.structs.replace(audited, outcome=ASKED))

    async def ended(self, audited: Audited, outcome: str) -> None:
        """Log what came of it: "done", or why not. A leader that was deposed meanwhile tells it by its line alone."""
        try:
            await self._note(msgspec.structs.replace(audited, outcome=outcome))
        except (NoLeaderError, NotLeaderError, OverloadedError, OutcomeUnknownError) as error:
            _lines.warning("the outcome %r of %s is not in the log: %s", outcome, audited.action, error)

    def refused(self, audited: Audited, now_s: float) -> None:
        """Count a refusal; tell of one of each kind in a while.

        Args:
            audited: What was tried, with the reason as outcome.
            now_s: Monotonic time.

        """
        self._refusals.add(msgspec.structs.asdict(audited), now_s, log=self._log)

    async def reread(self, found: Reread) -> None:
        """Log, if this replica leads, that a file of rights was read again; its line was told by who read it."""
        said = Audited(**msgspec.structs.asdict(found.line()))
        for _ in range(_ATTEMPTS):
            (answer,) = await self._replica.submit([said])
            if answer.status in (AnswerStatus.OK, AnswerStatus.REFUSED, AnswerStatus.NOT_LEADER):
                return
            await asyncio.sleep(_PAUSE_S)
        _lines.warning("not in the log, too much waits: %s", said.action)

    async def _note(self, audited: Audited) -> None:
        (answer,) = await self._replica.submit([audited])
        match answer.status:
            case AnswerStatus.OK | AnswerStatus.REFUSED:  # Refused: a log of a format level without audits.
                revision = answer.revision if answer.status is AnswerStatus.OK else None
                tell(msgspec.structs.asdict(audited), log=self._log, revision=revision)
            case AnswerStatus.NOT_LEADER:
                raise NotLeaderError(
                    f"log {self._log}: this replica does not lead, {audited.action} was not done",
                    leader=self._replica.leader_address,
                )
            case AnswerStatus.OUTCOME_UNKNOWN:
                raise OutcomeUnknownError(
                    f"log {self._log}: whether {audited.action} was audited is not known; it was not done"
                )
            case _:
                raise OverloadedError(f"log {self._log}: too much waits, {audited.action} was not done: ask later")


def no_audit(log: str, level: int) -> str:
    """Say that a log's format does not know audits yet, and what helps."""
    return (
        f"log {log}: it has format level {level} and holds no audit: only lines tell who changes what "
        f"(--audit-file). Once every replica runs this version: rsm log raise-format {log}"
    )
