"""Statements of a session of PostgreSQL's protocol that write, until they are done together. Pure.

They wait for the others of their transaction, and their answers stand among those that were said, in their places.
"""

from __future__ import annotations

from typing import Final, cast

from rsm_spark.sql.messages import SqlResult, SqlStatement, SqlValue
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg import faults as f
from rsm_spark.sql.pg.portal_desk import PgPortalDesk
from rsm_spark.sql.pg.portals import KeptStatement, PgPortal, answer_of, size_of
from rsm_spark.sql.pg.statements import PgStatement, PgStatementKind
from rsm_spark.sql.pg.wire import PgExecuteRequest

_KEPT_STATEMENTS_MAX: Final = 5_000
_KEPT_BYTES_MAX: Final = 3 * 1024 * 1024

IDLE: Final = "I"
OPEN: Final = "T"
FAILED: Final = "E"
"""States of a session, as clients are told them."""


class PgWriteDesk(PgPortalDesk):
    """Part of a session; see the module.

    Args:
        may_write: Its principal may.

    """

    def __init__(self, *, may_write: bool) -> None:
        super().__init__()
        self._may_write = may_write
        # Invariant: a `KeptStatement` stands in `_out` if and only if it is in `_kept`.
        self._kept: list[KeptStatement] = []
        self._kept_bytes = 0
        self._state = IDLE
        self._is_read_only = False

    def take_answers(self) -> bytes:
        """Return what may be sent now."""
        if not self._kept:
            out, self._out = self._out, []
            self._out_bytes = 0
            return b"".join(cast("list[bytes]", out))  # See the invariant.
        place = next(place for place, part in enumerate(self._out) if isinstance(part, KeptStatement))
        ready, self._out = self._out[:place], self._out[place:]
        return b"".join(part for part in ready if isinstance(part, bytes))

    def _check_not_failed(self, statement: PgStatement | None) -> None:
        if self._state == FAILED and (statement is None or statement.kind is not PgStatementKind.TRANSACTION):
            raise f.PgFault(f.ABORTED, "a statement of the transaction has failed: roll it back first")

    def _fail(self, fault: f.PgFault) -> None:
        """Answer with a fault; nothing of what was kept is done."""
        if self._kept:
            place = next(place for place, part in enumerate(self._out) if isinstance(part, KeptStatement))
            del self._out[place:]
            self._forget_kept()
        self._say(answers.fault(fault))

    def _keep(self, statement: PgStatement, values: tuple[SqlValue, ...], portal: PgPortal | None) -> None:
        self._check_may_write()
        size = len(statement.sql) + sum(map(size_of, values))
        if len(self._kept) >= _KEPT_STATEMENTS_MAX or self._kept_bytes + size > max(_KEPT_BYTES_MAX, size):
            raise f.PgFault(
                f.TOO_LARGE,
                f"statements that come together are one transaction, of at most {_KEPT_STATEMENTS_MAX} statements and "
                f"{_KEPT_BYTES_MAX} bytes: send Sync, or begin another text, in between",
            )
        kept = KeptStatement(statement, SqlStatement(statement.sql, values), portal)
        self._kept.append(kept)
        self._kept_bytes += size
        self._out.append(kept)

    def _check_may_write(self) -> None:
        if not self._may_write:
            raise f.PgFault(f.DENIED, "this principal reads only")
        if self._is_read_only:
            raise f.PgFault(f.READ_ONLY, "the transaction was begun as one that reads only")

    def _forget_kept(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def _answer_kept(self, results: tuple[SqlResult, ...]) -> None:
        """Put the answers to what was kept in their places."""
        for kept, result in zip(self._kept, results, strict=True):
            kept.answer = answer_of(kept, result)
        self._out = [part if isinstance(part, bytes) else part.answer or b"" for part in self._out]
        self._out_bytes = sum(len(part) for part in self._out if isinstance(part, bytes))
        self._forget_kept()

    def _execute_write(self, request: PgExecuteRequest, portal: PgPortal, statement: PgStatement) -> None:
        """Keep a statement that writes, or say what it has done already."""
        self._check_not_failed(statement)
        if portal.is_done:
            raise executed_already(request.portal)
        portal.is_done = True
        if portal.result is None:
            self._keep(statement, portal.values, portal)
        else:
            self._say(answer_of(KeptStatement(statement, SqlStatement(statement.sql), portal), portal.result))


def executed_already(portal: str) -> f.PgFault:
    """Return the fault of a portal that has done all that it does."""
    return f.PgFault("55000", f"the portal {portal!r} was executed already")
