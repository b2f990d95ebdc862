"""`rsm log detach`: a fork shares nothing any more."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.operator_commands import audited_command, this_operator
from ledger.options import Option
from rsm_spark.cli.copying import LogKeyOption
from rsm_spark.cli.log_requests import OrderOptions
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, run


class DetachOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of the copies."""

    bookies: Annotated[str, Option("Ensemble, write quorum and ack quorum of the copies.", metavar="E/Qw/Qa")] = "2/2/2"
    password_file: Annotated[
        Path | None, Option("Password of the log's ledgers, as rsm store run takes it.", metavar="FILE")
    ] = None


@options_command
def detach(log: LogArgument, how: DetachOptions, order: OrderOptions, log_key: LogKeyOption = None) -> None:
    """Make a fork independent: what it shares is copied into ledgers of its own, while it is served.

    The leader then puts the copies into the log's chain, in one step; where no replica runs, this command does. Readers
    go on where they are. Cut off, run the command again: it goes on with the copies that are there. A log that shares
    nothing stays as it is.

    Examples:
        rsm log detach orders-test

        rsm log detach orders-test --log-key /etc/rsm-spark/orders.key --json

    """
    from rsm_spark.backup.detaching import DetachedLog, DetachSpec, LogDetachment  # noqa: PLC0415 - as a fork
    from rsm_spark.cli.copying import CopyProgress  # noqa: PLC0415 - likewise
    from rsm_spark.log.key_file import KeyFile  # noqa: PLC0415 - likewise
    from rsm_spark.server.replica_options import password_of, quorum_of  # noqa: PLC0415 - likewise

    by = this_operator(order.reason)
    target = DetachSpec(
        log=log,
        rsm_root=how.rsm_root,
        keys=None if log_key is None else KeyFile.read(log_key, may_sign=False),
        password=password_of(how.password_file),
        quorum=quorum_of(how.bookies),
        timeout_s=order.timeout_s,
        by=by,
    )

    progress = CopyProgress(f"log {log}", how.json)

    async def _detach() -> DetachedLog:
        async with await how.connect_ledgers() as client:
            return await LogDetachment(client, target, secrets.token_hex(8), progress).detach()

    began_s = time.monotonic()
    with audited_command(order.audit_file, "rsm log detach", f"log {log}", by):
        done = run(_detach())
    if how.json:
        print_json({**msgspec.to_builtins(done), "seconds": round(time.monotonic() - began_s, 3)})
    elif not done.ledgers:
        typer.echo(f"log {log}, id {done.log_id}: it shares nothing")
    else:
        typer.echo(
            f"log {log}, id {done.log_id}: {done.ledgers} ledgers that it shared are its own now, "
            f"{done.bytes / 1e6:,.1f} MB copied in {time.monotonic() - began_s:.1f} s"
        )
