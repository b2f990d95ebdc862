"""The command `rsm`: finds its sub-commands by entry points and imports only the one that is asked for.

A sub-command is an entry point of the group `rsm_spark.commands`: a `typer.Typer` becomes a group of commands, a
function becomes a command. Nothing here imports them, so that `rsm --help` is quick and works whatever extras
are installed.

Exit codes: 0 done, 130 interrupted; an error is one line on standard error, and `ledger.exit_codes` has the code of its
kind: 1 other, 2 wrong usage, 4 not found, 5 refused, 6 unavailable, 7 conflict.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ledger.errors import LedgerError
from ledger.exit_codes import exit_code
from ledger.logs import configure_command_logs
from ledger.telemetry.start import start_from_environment
from rsm_spark.cli.extras import is_of_an_extra, say_missing
from rsm_spark.errors import RsmError
from rsm_spark.own_packages import hidden_package

_GROUP = "rsm_spark.commands"
_DISTRIBUTION = "rsm-spark"
_HELP = """Services made highly available by a replicated log, and that same log open to Spark.

Examples:

    rsm up                      a development cluster on this machine

    rsm ledger create           a first ledger on it

    rsm up --help               what a command takes
"""
# What `rsm --help` says without importing the command; a command that is not here is imported for its help.
_SUMMARIES = {
    "up": "Start ZooKeeper and bookies on this machine.",
    "ps": "Show what runs of that.",
    "down": "End what `rsm up` started, and nothing else.",
    "demo": "Show it all on real data: failures, failover, Spark, Delta, and the proof.",
    "ledger": "Create, append, read, tail, recover and list ledgers.",
    "bookie": "Run a bookie, a server that stores ledgers.",
    "zookeeper": "Run ZooKeeper's server, alone or as one of an ensemble.",
    "init-cluster": "Write all files of a cluster of three machines or more.",
    "init-release": "Write the secrets of a release of the Helm chart.",
    "node": "Run all processes of one machine, as its node.toml names them.",
    "cluster": "Look at the bookies and copies of a cluster; take a bookie out.",
    "autorecovery": "Keep all copies of ledgers complete when bookies are lost.",
    "store": "Run a replica of the state store.",
    "serve": "Run a replica of a state machine of your own.",
    "call": "Have a service execute a command, or answer a query.",
    "generate-client": "Print typed clients of a service of your own.",
    "broker": "Run a task broker.",
    "worker": "Run a worker: a process that runs tasks of the broker.",
    "map": "Put, get, scan: the replicated map.",
    "task": "Submit tasks, look at them, wait for them, cancel them.",
    "tenant": "Set what tenants are entitled to; pause, drain and resume their tasks.",
    "sql": "Serve replicated SQL tables; run statements, scripts and a shell; import and export.",
    "files": "Serve a replicated file store behind WebHDFS; list, read, write and move files.",
    "log": "List, describe and print replicated logs.",
    "audit": "Show who changed rights, code, holds or a log, from the log itself.",
    "snapshot": "List, describe and verify snapshots.",
    "lake": "List the typed tables that a lake has of a log's state.",
    "backup": "Copy logs elsewhere, verify the copies, make a log of one again.",
    "status": "Show leader, replicas and lag.",
    "probe": "Ask a process whether it works, for health checks of containers.",
    "monitoring": "Show or copy rules of Prometheus and dashboards of Grafana.",
    "console": "Serve a page that shows the whole cluster.",
    "doctor": "Look at this installation and the cluster, and say what to do.",
    "config": "Show what a process would run with, and from where.",
    "bench": "Put a known load on a running store and measure it.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `rsm` and end the process with its exit code.

    Args:
        arguments: What was typed behind `rsm`; None takes it from the command line.

    """
    try:
        configure_command_logs()
        start_from_environment("rsm")
        typer.main.get_command(_app)(args=arguments, prog_name="rsm")
    except BaseExceptionGroup as group:
        _end(_first_of_ours(group) or group)
    except Exception as error:  # noqa: BLE001 - the outermost place; what is not ours is raised again
        _end(error)


class _LazyCommand(TyperCommand):
    """Stands for a sub-command in lists and is replaced by it when it is called."""

    def __init__(self, entry_point: EntryPoint) -> None:
        super().__init__(name=entry_point.name, callback=None, help=_SUMMARIES[entry_point.name])
        self._entry_point = entry_point

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and hand over to it."""
        return _load(self._entry_point).make_context(info_name, args, parent=parent, **extra)


class _Commands(TyperGroup):
    """The sub-commands that are installed, whoever brought them."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        found = {entry_point.name: entry_point for entry_point in entry_points(group=_GROUP)}
        ranks = {name: rank for rank, name in enumerate(_SUMMARIES)}
        for name in sorted(found, key=lambda name: (ranks.get(name, len(ranks)), name)):
            known = name in _SUMMARIES
            self.add_command(_LazyCommand(found[name]) if known else _load(found[name]), name)


def _load(entry_point: EntryPoint) -> Any:
    """Import a sub-command.

    Raises:
        LedgerError: A library is missing; the message names the extra that brings it.

    """
    package = entry_point.module.partition(".")[0]
    if entry_point.dist is not None and entry_point.dist.name == _DISTRIBUTION and (why := hidden_package(package)):
        raise LedgerError(f"rsm {entry_point.name} cannot be loaded: {why}")
    try:
        target = entry_point.load()
    except ModuleNotFoundError as error:
        raise LedgerError(say_missing(error, f"rsm {entry_point.name}")) from error
    if isinstance(target, typer.Typer):
        group = typer.main.get_group(target)
        group.name = entry_point.name
        return group
    app = typer.Typer(add_completion=False)
    app.command(entry_point.name)(target)
    return typer.main.get_command(app)


def _first_of_ours(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the first error of ours in a group whose errors are all of ours, else None."""
    matched, rest = group.split((LedgerError, RsmError))
    if rest is not None or matched is None:
        return None
    first: BaseException = matched
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _end(error: BaseException) -> None:
    """Print one line for an error that is a message, and let everything else be seen as the bug it is."""
    match error:
        case LedgerError() | RsmError():
            message = str(error)
        case ModuleNotFoundError() if is_of_an_extra(error):
            message = say_missing(error, "this command")
        case OSError() if error.filename is not None:
            message = f"{error.filename}: {error.strerror}"
        case _:
            raise error
    if os.environ.get("RSM_DEBUG"):
        raise error
    sys.stderr.write(f"rsm: {' '.join(message.split())}\n")
    sys.exit(exit_code(error))


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        sys.stdout.write(f"{_DISTRIBUTION} {version(_DISTRIBUTION)}\n")
    except PackageNotFoundError as error:
        raise LedgerError(f"{_DISTRIBUTION} is not installed: run `make setup`") from error
    raise typer.Exit


_app = typer.Typer(cls=_Commands, help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False)


@_app.callback()
def _rsm(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    # Only carries the options of `rsm` itself.
    pass
