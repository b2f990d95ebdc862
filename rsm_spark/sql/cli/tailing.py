"""`rsm sql tail`: changes of tables as they are confirmed."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from rsm_spark.cli.terminal import print_json, printable, run
from rsm_spark.sql.cli.sql_options import SqlOptions
from rsm_spark.sql.client.changes import FeedBegin
from rsm_spark.sql.feed.events import SqlChange


@options_command
def tail(
    at: SqlOptions,
    tables: Annotated[list[str] | None, typer.Argument(help="Names of tables; none = all.", metavar="TABLE")] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="First revision; or `beginning`, the first that the log holds; or `now`. Without it where the "
            "consumer stands, else `now`.",
        ),
    ] = None,
    consumer: Annotated[
        str, typer.Option("--consumer", help="Hold the log under this name; go on behind what was printed.")
    ] = "",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many changes.")] = None,
) -> None:
    """Print changes of tables as they are confirmed, each once, in order, over failovers; until ctrl-C.

    A line is the revision, the kind (insert, update, delete, put, schema), the table, the key, the row before and the
    row after, with tabs between; or the statement that has changed the schema. To go on later begin at the last
    revision plus one, or name a consumer: `rsm log consumers` lists it, and removes it.

    Examples:
        rsm sql tail item --log shop

        rsm sql tail --from beginning --limit 10 --log shop --json

        rsm sql tail item sale --consumer billing --log shop --json

    """
    first = _first(begin)

    async def _tail() -> None:
        left = limit
        async with await at.connect() as client:
            changes = client.changes(*(tables or ()), begin=first, patience_s=at.timeout_s, consumer=consumer)
            changes.on_partial = _say_partial
            async for change in changes:
                _show(change, as_json=at.json)
                if consumer:
                    await client.processed(consumer, change.revision)
                left = None if left is None else left - 1
                if left == 0:
                    await changes.aclose()
                    return

    run(_tail())


def _say_partial() -> None:
    typer.echo("of some tables nothing is shown: the caller has no right to read them", err=True)


def _first(text: str | None) -> FeedBegin | None:
    match text:
        case None:
            return None
        case "now":
            return "now"
        case "beginning":
            return "beginning"
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    raise UsageError(f"--from {text}: expected a revision from 1 on, `beginning`, or `now`")


def _show(change: SqlChange, *, as_json: bool) -> None:
    told = change.shown()
    if as_json:
        print_json(told)
        return
    if change.kind == "schema":
        rest = [printable(" ".join(change.sql.split()))]
    else:
        rest = [_cell(told["key"]), _cell(told["old"]) if change.is_old_known else "?", _cell(told["new"])]
    typer.echo("\t".join([str(change.revision), change.kind, printable(change.table), *rest]))


def _cell(value: object) -> str:
    return "-" if value is None else printable(msgspec.json.encode(value).decode())
