"""Prepared statements, portals and cursors that a session of PostgreSQL's protocol keeps, within bounds. Pure."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from rsm_spark.sql.messages import SqlResult, SqlSlice
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg import faults as f
from rsm_spark.sql.pg.portals import STATEMENT_BYTES, PgPortal, PreparedStatement, size_of
from rsm_spark.sql.pg.row_answers import PgRowAnswers, Steps
from rsm_spark.sql.pg.statements import PgStatement, tag_of_rows
from rsm_spark.sql.pg.tasks import PgTask, ReadSlice, TaskAnswer
from rsm_spark.sql.pg.values import parameter_value, spread
from rsm_spark.sql.pg.wire import PgBindRequest, PgCloseRequest

STATEMENTS_MAX: Final = 2_000
PORTALS_MAX: Final = 500
HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of prepared statements, of portals and of their rows."""


class PgPortalDesk(PgRowAnswers):
    """Part of a session; see the module.

    Attributes:
        held_bytes: Bytes that are kept for it.

    """

    def __init__(self) -> None:
        super().__init__()
        self.held_bytes = 0
        self._statements: dict[str, PreparedStatement] = {}
        self._portals: dict[str, PgPortal] = {}

    def _hold(self, size: int) -> None:
        if self.held_bytes + size > HELD_BYTES_MAX:
            raise f.PgFault(
                f.MEMORY,
                f"prepared statements, portals and rows that wait have more than {HELD_BYTES_MAX} bytes: close some",
            )
        self.held_bytes += size

    def _drop_portals(self, *, is_kept: bool) -> None:
        """Forget the portals of a transaction; cursors that are held stay, unless it is dropped."""
        for name, portal in list(self._portals.items()):
            if portal.is_held and (is_kept or portal.is_of_none):
                portal.is_of_none = True
            else:
                self._drop_portal(name)

    def _drop_portal(self, name: str) -> None:
        found = self._portals.pop(name, None)
        if found is not None:
            self.held_bytes -= found.size
            if found.left is not None:
                self._dropped.append(found.left)

    def _drop_statement(self, name: str) -> None:
        found = self._statements.pop(name, None)
        if found is not None:
            self.held_bytes -= found.size

    def _drop_all(self) -> None:
        for name in list(self._statements):
            self._drop_statement(name)

    def _drop_cursors(self, *, is_all: bool) -> None:
        """Close all cursors, or those of the open transaction."""
        for name, portal in list(self._portals.items()):
            if portal.is_cursor and (is_all or not portal.is_of_none):
                self._drop_portal(name)

    def _deallocate(self, statement: PgStatement) -> None:
        name = statement.sql.split()[-1].strip('"')
        if name.upper() == "ALL":
            self._drop_all()
        elif name not in self._statements:
            raise f.PgFault(f.NO_STATEMENT, f"there is no prepared statement {name!r}")
        else:
            self._drop_statement(name)

    def _statement(self, name: str) -> PreparedStatement:
        found = self._statements.get(name)
        if found is None:
            raise f.PgFault(f.NO_STATEMENT, f"there is no prepared statement {name!r}")
        return found

    def _portal(self, name: str) -> PgPortal:
        found = self._portals.get(name)
        if found is None:
            raise f.PgFault(f.NO_PORTAL, f"there is no portal {name!r}")
        return found

    def _cursor(self, name: str) -> PgPortal:
        found = self._portals.get(name)
        if found is None or not found.is_cursor:
            raise f.PgFault(f.NO_PORTAL, f"there is no cursor {name!r}: DECLARE it, in this transaction or WITH HOLD")
        return found

    def _bind(self, request: PgBindRequest) -> None:
        prepared = self._statement(request.statement)
        types = prepared.types
        if len(request.values) != len(types):
            raise f.PgFault(
                f.PROTOCOL_VIOLATION, f"{len(request.values)} values for the {len(types)} parameters of a statement"
            )
        formats = spread(request.formats, len(types), "values")
        values = tuple(map(parameter_value, types, formats, request.values))
        if request.portal and request.portal in self._portals:
            raise f.PgFault(f.HAS_PORTAL, f"there is a portal {request.portal!r} already")
        self._drop_portal(request.portal)
        if len(self._portals) >= PORTALS_MAX:
            raise f.PgFault(f.MEMORY, f"a session has at most {PORTALS_MAX} portals: close some, or send Sync")
        count = 0 if prepared.statement is None else prepared.statement.parameter_count
        portal = PgPortal(prepared, values[:count], request.result_formats, STATEMENT_BYTES + sum(map(size_of, values)))
        self._hold(portal.size)
        self._portals[request.portal] = portal
        self._say(answers.BOUND)

    def _close(self, request: PgCloseRequest) -> None:
        if request.is_portal:
            self._drop_portal(request.name)
        else:
            self._drop_statement(request.name)
        self._say(answers.CLOSED)

    def _fill(self, portal: PgPortal, result: SqlResult) -> None:
        """Give a portal the next of its rows, in place of those that were sent."""
        self.held_bytes -= portal.rows_size
        portal.size -= portal.rows_size
        portal.rows_size = 0
        portal.result, portal.sent = result, 0
        size = sum(sum(map(size_of, row)) for row in result.rows)
        self._hold(size)
        portal.size += size
        portal.rows_size = size

    def _take_rows(
        self, portal: PgPortal, rows_max: int, formats: Sequence[int] | None
    ) -> Generator[PgTask, TaskAnswer, int]:
        """Send the next rows of a portal, or pass over them; return how many.

        Args:
            portal: Its first rows were read.
            rows_max: So many at most; none above 0 = all.
            formats: Of its columns; None = the rows are passed over.

        """
        count = 0
        while True:
            assert portal.result is not None
            assert portal.columns is not None
            rows = portal.result.rows
            end = len(rows) if rows_max <= 0 else min(len(rows), portal.sent + rows_max - count)
            part = rows[portal.sent : end]
            portal.sent = end
            count += len(part)
            if formats is not None:
                yield from self._send_rows(part, portal.columns, formats)
            if portal.left is None or 0 < rows_max <= count:
                return count
            more: SqlSlice = yield ReadSlice(portal.left)
            if more.is_last:
                self._dropped.append(portal.left)
                portal.left = None
            self._fill(portal, SqlResult(portal.result.columns, more.rows))

    def _send_portal(self, portal: PgPortal, statement: PgStatement, rows_max: int) -> Steps:
        assert portal.result is not None
        formats = spread(portal.formats, len(portal.columns or ()), "columns")
        count = yield from self._take_rows(portal, rows_max, formats)
        if rows_max > 0 and (portal.sent < len(portal.result.rows) or portal.left is not None):
            self._say(answers.SUSPENDED)
        else:
            self._say(answers.done(tag_of_rows(statement, count)))
