"""`rsm config`: what a process would run with, where each value comes from, and a commented file to begin with."""

from __future__ import annotations

import os
import textwrap
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from ledger.configuration import (
    CONF_PARAMETER,
    check_value,
    check_values,
    check_variables,
    find_file,
    read_file,
    variable_prefix,
)
from ledger.errors import UsageError

_NAMES = {
    "sql": "serve",
    "gateway": "serve",
    "files": "serve",
}  # Of the command that runs a process, where it is not `run`.
_GROUPS = {"gateway": "log"}  # Where it is not the name of the process.
PROCESSES = (
    "autorecovery",
    "bookie",
    "broker",
    "console",
    "files",
    "gateway",
    "serve",
    "sql",
    "store",
    "worker",
    "zookeeper",
)
"""Processes that a file `<process>.toml` configures; `run_words` says what runs each."""

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
    (entry_point,) = entry_points(group="rsm_spark.commands", name=_GROUPS.get(process, process))
    found = entry_point.load()
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found).commands[_NAMES.get(process, "run")]
    alone = typer.Typer(add_completion=False)
    alone.command(process)(found)
    return typer.main.get_command(alone)


def run_words(process: str) -> str:
    """Return the command that runs a process."""
    if process == "serve":
        return "rsm serve MODULE:CLASS"
    if process == "console":
        return "rsm console"
    return f"rsm {_GROUPS.get(process, process)} {_NAMES.get(process, 'run')}"


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
    values = {} if path is None else read_file(path, names)
    # Resilient: what is required and missing is shown, not asked for. Errors are passed over, hence all the checks.
    arguments = [] if path is None else ["--conf", str(path)]
    context = command.make_context("run", arguments, resilient_parsing=True)
    if path is not None:
        check_values(context, path, values)
    settings = []
    for option in options:
        _check_variable(context, option)
        value = _plain(context.params[option.name])
        origin = _ORIGINS[context.get_parameter_source(option.name).name]
        settings.append(Setting(option.name, value, origin, option.help or "", option.required))
    return settings


def _check_variable(context: Any, option: Any) -> None:
    value = option.value_from_envvar(context)
    if value is not None:
        name = next(name for name in option.envvar if os.environ.get(name))
        check_value(context, option, value, f"environment: {name}")


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


class ProcessOption(NamedTuple):
    """One option of a process, as pages and files name it.

    Attributes:
        name: Key in its file.
        default: As TOML writes it; "" for one that is not set.
        told: Default in words; "" = as it is.
        values: Kind and bounds of what is typed.
        text: Its help.
        is_required: There is no default.

    """

    name: str
    default: str
    told: str
    values: str
    text: str
    is_required: bool


def options_of(process: str) -> list[ProcessOption]:
    """Return every option of a process, in the order of its help."""
    return [
        ProcessOption(
            option.name,
            "" if option.required else _toml(_plain(option.default)),
            option.show_default if isinstance(option.show_default, str) else "",
            _values(option),
            " ".join((option.help or "").split()),
            option.required,
        )
        for option in _command(process).params
        if option.name not in _FLAGS_ONLY
    ]


def _values(option: Any) -> str:
    if option.param_type_name == "argument":
        return option.metavar or ""
    bounds = [f"{word} {value:,}" for word, value in (("from", option.min), ("to", option.max)) if value is not None]
    return "true, false" if option.is_flag else " ".join(bounds) or option.metavar or ""


def example_file(process: str) -> str:
    """Return the text of a commented file with every option of a process."""
    prefix, options = f"{variable_prefix(process)}_", options_of(process)
    lines = [
        f"# `{run_words(process)}`: every option with its default. Flags go before variables, and",
        "# variables before this file.",
        f"# Variables are named {prefix}<KEY>, for example {prefix}{options[0].name.upper()}.",
        "",
    ]
    for option in options:
        lines += textwrap.wrap(option.text, _COMMENT_COLUMNS, initial_indent="# ", subsequent_indent="# ")
        lines += [f"#{option.name} = {option.default}".rstrip(), ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Return a value as TOML writes it; "" for one that is not set."""
    if value is None:
        return ""
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return msgspec.json.encode(value).decode()
