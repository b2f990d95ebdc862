"""`rsm log writer list | show | forget | take-over`: programs whose batches a log remembers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ledger.configuration import options_command
from rsm_spark.cli.log_requests import OrderOptions, give_order, place_order
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, print_result, printable, run
from rsm_spark.log.admin_requests import ForgetWriterRequest, HandOverWriterRequest, WritersRequest

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List, show, forget and hand over writers: programs whose batches a log remembers, such as Spark queries.",
    pretty_exceptions_enable=False,
)

_NameArgument = Annotated[str, typer.Argument(help="Name of the writer.")]
_TIMEOUT_S = 30.0


def _line(one: dict[str, Any]) -> str:
    """Return a writer in words."""
    batch = f"batch {one['batch']} has ended" if one["is_ended"] else f"batch {one['batch']} has begun, not ended"
    rows = f", {one['row_count']:,} rows" if one["is_ended"] else ""
    return f"writer {printable(one['name'])}: {batch}{rows}; checkpoint {printable(one['checkpoint'])}"


@app.command("list")
@options_command
def list_writers(log: LogArgument, at: LogsOptions) -> None:
    """List the writers of a log, and which batch each has written last; with --json, one line each.

    Examples:
        rsm log writer list orders

    """
    after = ""
    while True:
        answer = run(place_order(log, WritersRequest(after=after), _TIMEOUT_S, at.metadata_uri, at.rsm_root))
        for one in answer["writers"]:
            if at.json:
                print_json(one)
            else:
                typer.echo(_line(one))
            after = one["name"]
        if not answer["more"]:
            return


@app.command()
@options_command
def show(log: LogArgument, name: _NameArgument, at: LogsOptions) -> None:
    """Show a writer, and which parts of its last batch were applied.

    Examples:
        rsm log writer show orders job-7

    """
    answer = run(place_order(log, WritersRequest(name), _TIMEOUT_S, at.metadata_uri, at.rsm_root))
    one = answer["writer"]
    if at.json:
        print_json(one)
        return
    typer.echo(_line(one))
    typer.echo(f"  run {printable(one['run'])}")
    for part in one["parts"]:
        typer.echo(f"  part {part['part']}: {part['chunks']} chunks, {part['row_count']:,} rows")
    if len(one["parts"]) < one["part_count"]:
        typer.echo(f"  and {one['part_count'] - len(one['parts'])} parts more")


@app.command()
@options_command
def forget(log: LogArgument, name: _NameArgument, at: LogsOptions, order: OrderOptions) -> None:
    """Forget a writer: if it writes again, whatever batch it brings is a new one. What it wrote stays.

    Examples:
        rsm log writer forget orders job-7 --reason "the job is gone"

    """
    answer = give_order(log, ForgetWriterRequest(name), at, order, "rsm log writer forget")
    print_result(at.json, {"log": log, **answer}, f"log {log}: forgotten is {_line(answer['writer'])}")


@app.command("take-over")
@options_command
def take_over(
    log: LogArgument,
    name: _NameArgument,
    at: LogsOptions,
    order: OrderOptions,
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="Id of the checkpoint that writes from now on.")],
) -> None:
    """Give a writer to another checkpoint: its batches are counted from here on, those of the one before are refused.

    Examples:
        rsm log writer take-over orders job-7 --checkpoint 6f1c0a3e-9b6e-4f3b-8f0d-1f0d7a2a9a11

    """
    answer = give_order(log, HandOverWriterRequest(name, checkpoint), at, order, "rsm log writer take-over")
    print_result(
        at.json, {"log": log, **answer}, f"log {log}: checkpoint {checkpoint} takes over from {_line(answer['writer'])}"
    )
