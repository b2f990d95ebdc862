r"""Lines that a person types into `rsm sql shell`: statements, and words of the shell itself.

    .tables [LIKE]     tables and views
    .schema [NAME]     the statements that make a table and what belongs to it; of all
    .timing on|off     show how long each statement took
    \watch [S [N]]     the query before again each S seconds (2), N times
    .help, .quit

A line that begins with "." or "\" is of the shell where a statement would begin.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from typing import Final

from ledger.errors import UsageError
from rsm_spark.sql.cli.printing import ResultWriter
from rsm_spark.sql.cli.statement_runner import ScriptRunner
from rsm_spark.sql.client.client import SqlClient
from rsm_spark.sql.engine.scripts import StatementBuffer
from rsm_spark.sql.statement_words import is_of_rows, reads_only

_KEYWORDS: Final = (
    "ADD AFTER ALL ALTER AND AS ASC BEFORE BEGIN BETWEEN BY CASE CAST CHECK COLLATE COLUMN COMMIT CONFLICT CONSTRAINT "
    "CREATE CROSS CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DEFAULT DELETE DESC DISTINCT DO DROP ELSE END ESCAPE "
    "EXCEPT EXISTS EXPLAIN FILTER FOREIGN FROM FULL GENERATED GLOB GROUP HAVING IF IGNORE IN INDEX INNER INSERT "
    "INSTEAD INTERSECT INTO IS ISNULL JOIN KEY LEFT LIKE LIMIT NATURAL NOT NOTHING NOTNULL NULL OF OFFSET ON OR ORDER "
    "OUTER OVER PARTITION PLAN PRAGMA PRIMARY QUERY RECURSIVE REFERENCES RELEASE RENAME REPLACE RETURNING RIGHT "
    "ROLLBACK ROW ROWID SAVEPOINT SELECT SET STRICT TABLE THEN TO TRIGGER UNION UNIQUE UPDATE USING VALUES VIEW WHEN "
    "WHERE WINDOW WITH WITHOUT"
)
_NOT_OWN: Final = "name NOT LIKE '\\_rsm\\_%' ESCAPE '\\'"
_NAMES: Final = f"SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND {_NOT_OWN}"
_COLUMNS: Final = (
    "SELECT DISTINCT c.name FROM sqlite_schema AS s JOIN pragma_table_info(s.name) AS c "
    f"WHERE s.type IN ('table', 'view') AND s.{_NOT_OWN} LIMIT 5000"
)
_TABLES: Final = f"{_NAMES} AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name LIKE ? ORDER BY name"
_SCHEMA: Final = (
    f"SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND tbl_{_NOT_OWN} "
    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "AND (?1 = '' OR lower(tbl_name) = lower(?1) OR lower(name) = lower(?1)) "
    "ORDER BY tbl_name, type <> 'table', name"
)
_WATCH_S: Final = 2.0
_WATCH_S_MIN: Final = 0.1
_OWN_WORDS: Final = (".help", ".quit", ".schema", ".tables", ".timing", "\\watch")


class SqlShell:
    """See the module.

    Args:
        client: Connected.
        printer: Of results.

    Attributes:
        is_over: It was told to quit.
        names: Of tables and columns, as far as `learn_names` has heard.

    """

    def __init__(self, client: SqlClient, printer: ResultWriter) -> None:
        self.is_over = False
        self.names: tuple[str, ...] = ()
        self._client = client
        self._printer = printer
        self._runner = ScriptRunner(client, printer, "the shell")
        self._buffer = StatementBuffer()
        self._has_timing = False
        self._last = ""
        self._knows_names = False

    @property
    def prompt(self) -> str:
        """Words before the next line: they tell whether a transaction is open, a statement is not whole."""
        star = "*" if self._runner.is_inside else ""
        return f"sql{star}> " if not self._buffer.text.strip() else f"  {star}-> "

    async def take(self, line: str) -> None:
        """Take a line; run what is whole now.

        Raises:
            SqlError: A statement failed; those behind it in the line were not run.
            UsageError: It is no word of the shell.

        """
        begins = line.lstrip()
        if not self._buffer.text.strip() and begins.startswith((".", "\\")):
            await self._own(begins.strip())
            return
        for statement in self._buffer.add(line + "\n"):
            await self._run(statement)

    async def end(self) -> None:
        """Run what is left without a semicolon; then no transaction may be open.

        Raises:
            SqlError: It failed.
            UsageError: A transaction was not ended.

        """
        left = self._buffer.end()
        if left:
            await self._run(left)
        self._runner.check_outside()

    def forget_line(self) -> None:
        """Forget the statement that is not whole."""
        self._buffer.end()

    async def close(self) -> None:
        """Roll back what is open."""
        await self._runner.close()

    def completions(self, begun: str) -> list[str]:
        """Return words that begin so, in any case: names as they are, keywords in the case of what was typed."""
        if begun.startswith((".", "\\")):
            return [word for word in _OWN_WORDS if word.startswith(begun)]
        if not begun:
            return []
        low = begun.lower()
        names = [name for name in self.names if name.lower().startswith(low)]
        words = [word for word in _KEYWORDS.split() if word.lower().startswith(low)]
        return names + ([word.lower() for word in words] if begun == low else words)

    async def learn_names(self) -> None:
        """Ask for the names of tables and columns, if they may have changed."""
        if not self._knows_names and not self._runner.is_inside:
            found = await self._client.query(f"{_NAMES} LIMIT 5000")
            columns = await self._client.query(_COLUMNS)
            self.names = tuple(sorted({str(name) for (name,) in (*found.rows, *columns.rows)}))
            self._knows_names = True

    async def _run(self, statement: str) -> None:
        self._last = statement
        if not (is_of_rows(statement) or reads_only(statement)):
            self._knows_names = False
        began_s = time.monotonic()
        await self._runner.run(statement)
        if self._has_timing and not self._printer.as_json:
            self._printer.line(f"({(time.monotonic() - began_s) * 1000:.1f} ms)")

    async def _own(self, line: str) -> None:
        try:
            word, *arguments = shlex.split(line, posix=not line.startswith("\\"))
        except ValueError as error:
            raise UsageError(f"{line}: {error}") from None
        match word, arguments:
            case ".quit" | ".exit" | "\\q", []:
                self.is_over = True
            case ".help", []:
                for one in (__doc__ or "").split("\n\n")[1].splitlines():
                    self._printer.line(one.strip())
            case ".tables", ([] | [_]):
                self._printer.rows(await self._client.query(_TABLES, (arguments[0] if arguments else "%",)))
            case ".schema", ([] | [_]):
                await self._schema(arguments[0] if arguments else "")
            case ".timing", ["on" | "off"]:
                self._has_timing = arguments[0] == "on"
            case "\\watch", ([] | [_] | [_, _]):
                await self._watch(arguments)
            case _:
                raise UsageError(f"{line}: the shell does not know this; .help says what it knows")

    async def _schema(self, name: str) -> None:
        found = await self._client.query(_SCHEMA, (name,))
        if self._printer.as_json:
            self._printer.rows(found)
            return
        for (sql,) in found.rows:
            self._printer.line(f"{sql!s};")

    async def _watch(self, arguments: list[str]) -> None:
        if not reads_only(self._last):
            raise UsageError("\\watch repeats the query before it, and there is none")
        try:
            seconds = float(arguments[0]) if arguments else _WATCH_S
            count = int(arguments[1]) if arguments[1:] else None
        except ValueError:
            raise UsageError("\\watch SECONDS TIMES: both are numbers") from None
        if not _WATCH_S_MIN <= seconds <= 86_400 or (count is not None and count < 1):
            raise UsageError(f"\\watch SECONDS TIMES: from {_WATCH_S_MIN:g} s to a day, once at least")
        done = 0
        while count is None or done < count:
            if done:
                await asyncio.sleep(seconds)
            await self._run(self._last)
            done += 1
