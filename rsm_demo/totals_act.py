"""An act in which Spark writes: each airline's totals, back into an SQL table, beside four answers that others give."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rsm_demo.child import Child
from rsm_demo.sql_answer import TOTALS, from_totals, make_totals
from rsm_demo.stack import LOG, SQL_LOG, Stack
from rsm_demo.verdict import Answers, compare

_WRITING_S_MAX = 600.0


class TotalsOutcome(msgspec.Struct):
    """Part of the last JSON line about the airlines' totals.

    Attributes:
        ok: Nothing differs, and something was written.
        airlines: Rows that Spark wrote.
        flights: In these rows.
        differences: Airlines on which the answers differ, in words.

    """

    ok: bool
    airlines: int
    flights: int
    differences: list[str]


class TotalsAct:
    """One run of it; the flights are in the map and in the SQL table.

    Args:
        stack: The processes; replicas of the map run.
        tell: Called with what happened.

    """

    def __init__(self, stack: Stack, tell: Callable[[str], None]) -> None:
        self._stack = stack
        self._tell = tell

    async def run(self, accounts: Mapping[str, Mapping[str, Any]]) -> TotalsOutcome:
        """Have Spark write the totals, and compare the table with the answers of others.

        Args:
            accounts: Source -> tail number -> account, of those that keep the airlines in it.

        """
        self._tell("Spark sums the map up by airline, and writes the totals into an SQL table")
        places = await self._stack.start_tables()
        try:
            await make_totals(places[0], SQL_LOG)
            await self._write()
            totals = await from_totals(places[-1], SQL_LOG)
        finally:
            await self._stack.stop_tables()
        by_source = Answers.by_airline(accounts).by_source
        answers = Answers.of({"Spark's table": totals.written, "SQL": totals.summed, **by_source})
        differences = [str(difference) for difference in compare(answers)]
        airlines, flights, _, _ = answers.totals()["Spark's table"]
        outcome = TotalsOutcome(bool(airlines) and not differences, airlines, flights, differences)
        self._tell(said_of(outcome))
        return outcome

    async def _write(self) -> None:
        stack = self._stack
        command = [sys.executable, "-P", "-m", "rsm_demo.totals_writer", stack.metadata_uri, LOG, SQL_LOG, TOTALS]
        child = await Child.start("totals", command, log_dir=stack.log_dir)
        try:
            await child.until(lambda said: "airlines" in said, timeout_s=_WRITING_S_MAX, what="writing the totals")
        finally:
            await child.stop()


def said_of(outcome: TotalsOutcome) -> str:
    """Return an outcome in one line."""
    said = f"Spark wrote the totals of {outcome.airlines} airlines, {outcome.flights:,} flights, into an SQL table: "
    if outcome.differences:
        return f"{said}they differ: {'; '.join(outcome.differences)}"
    return f"{said}map, SQL, Delta and CSV agree"
