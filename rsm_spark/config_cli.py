"""`rsm config`: what a process would run with, where each value comes from, and a commented file to begin with."""

from __future__ import annotations

import os
import textwrap
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from ledger.configuration import CONF_PARAMETER, check_variables, find_file, read_file, variable_prefix
from ledger.errors import UsageError

__all__ = ["PROCESSES", "Setting", "app", "example_file", "settings_of"]

PROCESSES = ("autorecovery", "bookie", "broker", "store", "worker")
"""Processes that a file `<process>.toml` configures; each is run by `rsm <process> run`."""

_ORIGINS = {"COMMANDLINE": "flag", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file", "DEFAULT": "default"}
_COMMENT_COLUMNS = 116
# Said on the command line of one run; no key of a file.
_FLAGS_ONLY = ("json", "help", CONF_PARAMETER)

app = typer.Typer(
    no_args_is_help=True,
    help="Show what a process would run with; write a file to begin with.\n\nExample: rsm config show store --origin",
)

_Process = Annotated[str, typer.Argument(metavar="PROCESS", help=f"One of {', '.join(PROCESSES)}.")]


class Setting(NamedTuple):
    """One option of a process.

    Attributes:
        name: Key in its file.
        value: What it would run with; None = not set.
        origin: "default", "file", "environment" or "flag".
        text: Its help.
        is_required: There is no default.

    """

    name: str
    value: Any
    origin: str
    text: str
    is_required: bool


def _command(process: str) -> Any:
    if process not in PROCESSES:
        raise UsageError(f"there is no process {process!r}: use one of {', '.join(PROCESSES)}")
    (entry_point,) = entry_points(group="rsm_spark.commands", name=process)
    return typer.main.get_group(entry_point.load()).commands["run"]


def settings_of(process: str, conf: Path | None) -> list[Setting]:
    """Return every option of a process as it would be now, in the order of its help.

    Args:
        process: One of `PROCESSES`.
        conf: As its `--conf`.

    Raises:
        UsageError: No such process, or a file or variable that it would refuse.

    """
    command = _command(process)
    options = [option for option in command.params if option.name not in _FLAGS_ONLY]
    names = [option.name for option in command.params if option.name != CONF_PARAMETER]
    check_variables(process, os.environ, names)
    path = find_file(process, conf, os.environ)
    if path is not None:
        read_file(path, names)
    # Resilient: what is required and missing is shown, not asked for. Errors would be passed over, hence the above.
    arguments = [] if path is None else ["--conf", str(path)]
    context = command.make_context("run", arguments, resilient_parsing=True)
    settings = []
    for option in options:
        value = _plain(context.params[option.name])
        origin = _ORIGINS[context.get_parameter_source(option.name).name]
        settings.append(Setting(option.name, value, origin, option.help or "", option.required))
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, bool | int | float | None) else str(value)


@app.command()
def show(
    process: _Process,
    conf: Annotated[Path | None, typer.Option("--conf", metavar="FILE", help="As the process would be given.")] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Show what a process would run with, in this folder and environment.

    Examples:
        rsm config show bookie

        rsm config show store --origin --conf /etc/rsm-spark/store.toml

    """
    settings = settings_of(process, conf)
    if json:
        shown = {one.name: {"value": one.value, "origin": one.origin} if origin else one.value for one in settings}
        typer.echo(msgspec.json.encode(shown).decode())
        return
    width = max(len(one.name) for one in settings)
    for one in settings:
        value = "" if one.value is None else f" = {_toml(one.value)}"
        if one.value is None and one.is_required:
            value = " has to be given"
        typer.echo(f"{one.name:{width}}{value}" + (f"  # {one.origin}" if origin else ""))


@app.command()
def example(process: _Process) -> None:
    """Print a file that holds every option, with its default, as a comment.

    Example:
        rsm config example store > store.toml

    """
    typer.echo(example_file(process), nl=False)


def example_file(process: str) -> str:
    """Return the text of a commented file with every option of a process."""
    prefix = f"{variable_prefix(process)}_"
    lines = [
        f"# `rsm {process} run`: every option with its default. Flags go before variables, variables before this file.",
        f"# Variables are named {prefix}<KEY>, for example {prefix}{_command(process).params[0].name.upper()}.",
        "",
    ]
    for option in _command(process).params:
        if option.name in _FLAGS_ONLY:
            continue
        default = None if option.required else _plain(option.default)
        lines += textwrap.wrap(
            " ".join((option.help or "").split()), _COMMENT_COLUMNS, initial_indent="# ", subsequent_indent="# "
        )
        lines += [f"#{option.name} = {_toml(default)}" if default is not None else f"#{option.name} =", ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Return a value as TOML writes it; "" for one that is not set."""
    if value is None:
        return ""
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return msgspec.json.encode(value).decode()
