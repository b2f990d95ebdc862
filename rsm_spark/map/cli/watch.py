"""`rsm map watch`: changes as they are confirmed."""

from __future__ import annotations

import sys
from typing import Annotated, cast

import typer

from ledger.configuration import options_command
from rsm_spark.cli.terminal import key_bytes, print_json, run, shown
from rsm_spark.map.cli.connection import MapReadOptions
from rsm_spark.map.client.watch import ChangeKind, MapChange


@options_command
def watch(
    at: MapReadOptions,
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys that begin with it.")] = "",
    start: Annotated[str | None, typer.Option("--start", help="First key.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Behind the last key.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="put, deleted or expired: only these; several times for several.")
    ] = None,
    old_values: Annotated[bool, typer.Option("--old-values", help="Print what the key held before, too.")] = False,
    from_revision: Annotated[
        int | None, typer.Option("--from", min=1, help="First revision; without it, what is yet to come.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many changes.")] = None,
) -> None:
    """Print changes as they are confirmed, each once, in order, over failovers; until ctrl-C.

    A line is the revision, the kind (put, deleted, expired), the key and the value, with tabs between; with
    --old-values then what the key held before, if it was there. All changes of one command have one revision: go on
    behind the revision of a line whose `is_last` (--json) is true, or begin again with the last line's revision.

    Examples:
        rsm map watch --prefix order/ --log orders

        rsm map watch --kind deleted --kind expired --log orders

        rsm map watch --from 1 --limit 10 --log orders --json

        rsm map watch --old-values --log orders --json

    """

    async def _watch() -> None:
        left = limit
        async with await at.connect() as client:
            changes = client.watch(
                prefix=key_bytes(prefix),
                start=None if start is None else key_bytes(start),
                end=None if end is None else key_bytes(end),
                kinds=cast("list[ChangeKind]", kind or []),
                old_values=old_values,
                from_revision=from_revision,
                patience_s=at.timeout_s,
            )
            async for change in changes:
                _show(change, json=at.json)
                left = None if left is None else left - 1
                if left == 0:
                    await changes.aclose()
                    return

    run(_watch())


def _show(change: MapChange, *, json: bool) -> None:
    if json:
        told = change._asdict() | {"key": shown(change.key), "value": shown(change.value)}
        if change.old is not None:
            told["old"] = change.old._asdict() | {"value": shown(change.old.value)}
        print_json(told)
    else:
        value = b"\t" + (change.value or b"") if change.value is not None or change.old is not None else b""
        if change.old is not None:
            value += b"\t" + change.old.value
        sys.stdout.buffer.write(b"%d\t%s\t%s%s\n" % (change.revision, change.kind.encode(), change.key, value))
        sys.stdout.buffer.flush()
