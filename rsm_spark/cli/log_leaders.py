"""`rsm log leaders`: who led a log, epoch by epoch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, printable, run
from rsm_spark.core.leadership_ends import described_end
from rsm_spark.log.past_leaderships import LeaderChange, PastLeadership, past_leaderships

_WORDS = {
    LeaderChange.FIRST: "the first leader",
    LeaderChange.OTHER_REPLICA: "another replica than before",
    LeaderChange.NEW_PROCESS: "the same replica as before, as a new process",
    LeaderChange.SAME_PROCESS: "the same process as before, once more",
    LeaderChange.UNKNOWN: "not known whether that is who led before",
}


@options_command
def leaders(
    log: LogArgument,
    at: LogsOptions,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many, the newest.")] = None,
) -> None:
    """Show who led a log, epoch by epoch, from when, who came next and why; oldest first, as far as it is not trimmed.

    Examples:
        rsm log leaders orders

        rsm log leaders orders --limit 10 --json

    """

    async def _leaders() -> None:
        async with await at.connect_ledgers() as client:
            async for one in past_leaderships(client, log, at.rsm_root, limit):
                if at.json:
                    print_json(msgspec.to_builtins(one))
                else:
                    typer.echo(_line(one))

    run(_leaders())


def _line(one: PastLeadership) -> str:
    who = "somebody" if one.replica_id is None else printable(one.replica_id)
    since = f"{'from' if one.is_beginning else 'before'} {_time(one.since_ms)}"
    if one.last_entry_ms is None:
        end = f"revisions {one.first_revision} on"
    else:
        end = f"last entry {_time(one.last_entry_ms)}, revisions {one.first_revision} to {one.last_revision}"
    whose = f", of log id {one.log_id}" if one.log_id else ""
    why = "" if one.before_ended is None else f"; {described_end(one.before_ended, printable(one.before_said))}"
    return f"epoch {one.epoch}{whose}: {who} {since}, {end}; {_WORDS[one.change]}{why}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
