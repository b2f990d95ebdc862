"""`rsm log fork`: a new log of one that is there, in seconds, whatever its size."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.configuration import options_command
from ledger.operator_commands import AuditOptions
from rsm_spark.cli.copying import ForkOptions, LogKeyOption
from rsm_spark.cli.terminal import LogArgument


@options_command
def fork(
    log: LogArgument,
    how: ForkOptions,
    audit: AuditOptions,
    name: Annotated[str, typer.Option("--as", metavar="NEW", help="Name of the new log.")],
    log_key: LogKeyOption = None,
) -> None:
    """Make a new log of one that is there, up to now, a revision or a time; both go on, each for itself.

    Closed ledgers are shared, and little of the open one is copied. Whichever log trims them or is deleted, they stay
    until the other needs them no more. With --independent everything is copied. Start replicas with --log NEW
    afterwards; the first of them with --data-dir, if one was named here.

    Examples:
        rsm log fork orders --as orders-test

        rsm log fork orders --as orders-before --at-time 2026-11-23T14:00:00Z --data-dir /var/lib/orders-before-a

    """
    from rsm_spark.cli.forking import fork_log  # noqa: PLC0415 - only a fork needs all that snapshots need

    fork_log(log, name, how, audit, log_key)
